"""Ops that inspect areas, queues and accumulators without waiting, and ops that wake what waits for them.

They are made before the graph is finalized: when a stall is found, no op can be added.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable
from dataclasses import dataclass
from typing import Any

from staging_tf1._tf import tf
from staging_tf1.graph.area_base import MISFIT, BaseStagingArea, areas_of, store_of
from staging_tf1.graph.areas import StagingArea
from staging_tf1.graph.map_area import MapStagingArea
from staging_tf1.graph.state import state_of

_QUEUE_OPS = ("FIFOQueueV2", "RandomShuffleQueueV2", "PaddingFIFOQueueV2", "PriorityQueueV2")
_TAKES = frozenset(
    f"{kind}{op}" for kind in ("", "Map", "OrderedMap") for op in ("Unstage", "UnstageNoKey", "Peek", "StagePeek")
)
_KEYED = frozenset(f"{kind}{op}" for kind in ("Map", "OrderedMap") for op in ("Unstage", "Peek"))
_PUTS = frozenset(("Stage", "MapStage", "OrderedMapStage"))
_ACCUMULATORS = ("ConditionalAccumulator", "ResourceConditionalAccumulator", "SparseConditionalAccumulator")
# What a reader takes is in its second input.
_READS = ("ReaderRead", "ReaderReadV2", "ReaderReadUpTo", "ReaderReadUpToV2")


@dataclass(frozen=True)
class Probe:
    """The ops that inspect one area, queue, barrier or accumulator. All of them return at once."""

    # For messages: "queue 'shuffle_batch'", "barrier 'b'", "area 'train' (made at train.py:41)".
    name: str
    # Unique: the name of a queue's op, or "area:" and the name of an area's store.
    key: str
    # "queue", "area", "barrier" or "accumulator".
    kind: str
    # A scalar int32.
    size: Any
    # A scalar bool. None for what cannot be closed, and for a barrier.
    closed: Any | None = None
    # In elements; 0 is unbounded.
    capacity: int = 0
    # Elements that a dequeue leaves in a shuffle queue; 0 for everything else.
    min_after_dequeue: int = 0
    # Fail a waiting get, each in a run of its own. None for an accumulator: only the close of its session can.
    wake_takers: tuple[Any, ...] = ()
    # Lets a waiting put through, or fails it. None if none waits.
    wake_putters: Any | None = None
    # For `wake_takers`: the tensor of the key that the get waits for. None without keys.
    wake_key: Any | None = None
    # The number of elements of a barrier that lack a component.
    incomplete: Any | None = None


def probes_of(graph: Any, hidden: Collection[str] = ()) -> dict[str, Probe]:
    """Return the probes of all areas and queues of `graph` by key. Make missing ones while the graph is open.

    Args:
      hidden: keys of queues and areas to leave out, because they are parts of something else.
    """
    probes = state_of(graph).ops.probes
    if not graph.finalized:
        makers = dict.fromkeys(_QUEUE_OPS, _probe_queue) | dict.fromkeys(_ACCUMULATORS, _probe_accumulator)
        makers["Barrier"] = _probe_barrier
        stores = [op for op in graph.get_operations() if op.type in makers]
        with graph.as_default(), tf.control_dependencies(None), tf.name_scope("staging_doctor/"):
            for op in stores:
                if op.name not in probes and op.name not in hidden:
                    probes[op.name] = makers[op.type](op)
            for area in areas_of(graph):
                if area_key(area.name) not in probes and area_key(area.name) not in hidden:
                    probes[area_key(area.name)] = _probe_area(area)
    return {key: probe for key, probe in probes.items() if key not in hidden}


def area_key(shared_name: str) -> str:
    return f"area:{shared_name}"


@dataclass(frozen=True)
class Touched:
    """The keys of the stores that some ops use: taken from, with the elements per get, and put into."""

    takes: dict[str, int]
    puts: frozenset[str]


def touched_by(ops: Iterable[Any]) -> Touched:
    """Return the stores that `ops` use, judging by their types and inputs."""
    takes: dict[str, int] = {}
    puts: set[str] = set()
    for op in ops:
        if op.type.startswith("QueueDequeue"):
            key = op.inputs[0].op.name
            takes[key] = max(takes.get(key, 0), _elements_of(op))
        elif op.type == "BarrierTakeMany" or op.type.endswith("AccumulatorTakeGradient"):
            takes[op.inputs[0].op.name] = _elements_of(op)
        elif op.type in _READS:
            takes.setdefault(op.inputs[1].op.name, 1)
        elif op.type.startswith(("QueueEnqueue", "BarrierInsertMany")) or op.type.endswith("AccumulatorApplyGradient"):
            puts.add(op.inputs[0].op.name)
        elif op.type in _TAKES:
            takes[area_key(store_of(op))] = 1
        elif op.type in _PUTS and not is_misfit(op):
            puts.add(area_key(store_of(op)))
    return Touched(takes, frozenset(puts))


def reader_of(ops: Iterable[Any], key: str) -> Any | None:
    """Return the first reader with which one of `ops` reads the files that a queue names; None without one."""
    return next((op.inputs[0].op for op in ops if op.type in _READS and op.inputs[1].op.name == key), None)


def is_misfit(op: Any) -> bool:
    return re.search(rf"{MISFIT}(_\d+)?$", op.name) is not None


def keys_awaited(ops: Iterable[Any], key: str) -> list[Any]:
    """Return the tensors of the keys for which `ops` may wait in the area of that key."""
    return [op.inputs[0] for op in ops if op.type in _KEYED and area_key(store_of(op)) == key]


def _elements_of(op: Any) -> int:
    if "Many" not in op.type and "UpTo" not in op.type and "Gradient" not in op.type:
        return 1
    wanted = tf.get_static_value(op.inputs[1])
    return 1 if wanted is None else int(wanted)


def _probe_queue(op: Any) -> Probe:
    handle = op.outputs[0]
    close = tf.raw_ops.QueueCloseV2(handle=handle, cancel_pending_enqueues=True)
    return Probe(
        f"queue '{op.name}'",
        op.name,
        "queue",
        tf.raw_ops.QueueSizeV2(handle=handle),
        closed=tf.raw_ops.QueueIsClosedV2(handle=handle),
        capacity=max(0, int(op.get_attr("capacity"))),
        min_after_dequeue=int(op.get_attr("min_after_dequeue")) if op.type == "RandomShuffleQueueV2" else 0,
        wake_takers=(close,),
        wake_putters=close,
    )


def _probe_barrier(op: Any) -> Probe:
    handle = op.outputs[0]
    close = tf.raw_ops.BarrierClose(handle=handle, cancel_pending_enqueues=True)
    return Probe(
        f"barrier '{op.name}'",
        op.name,
        "barrier",
        tf.raw_ops.BarrierReadySize(handle=handle),
        capacity=max(0, int(op.get_attr("capacity"))),
        wake_takers=(close,),
        wake_putters=close,
        incomplete=tf.raw_ops.BarrierIncompleteSize(handle=handle),
    )


def _probe_accumulator(op: Any) -> Probe:
    is_resource = op.type.startswith("Resource")
    count = tf.raw_ops.ResourceAccumulatorNumAccumulated if is_resource else tf.raw_ops.AccumulatorNumAccumulated
    return Probe(f"accumulator '{op.name}'", op.name, "accumulator", count(handle=op.outputs[0]))


def _probe_area(area: BaseStagingArea) -> Probe:
    wake_key = None
    if isinstance(area, StagingArea):
        wake_takers = (area.misfit_op(),)
    else:
        assert isinstance(area, MapStagingArea)
        wake_takers, wake_key = area.misfit_ops()
    return Probe(
        str(area),
        area_key(area.name),
        "area",
        area.size_op(),
        capacity=area.capacity,
        wake_takers=wake_takers,
        wake_putters=area.clear_op(),
        wake_key=wake_key,
    )
