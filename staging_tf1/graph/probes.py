"""Ops that inspect areas and queues without waiting, and ops that wake what waits for them.

They are made before the graph is finalized: when a stall is found, no op can be added.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from dataclasses import dataclass
from typing import Any

from staging_tf1._tf import tf
from staging_tf1.graph.area_base import BaseStagingArea, areas_of, store_of
from staging_tf1.graph.areas import MISFIT, StagingArea
from staging_tf1.graph.state import state_of

_QUEUE_OPS = ("FIFOQueueV2", "RandomShuffleQueueV2", "PaddingFIFOQueueV2", "PriorityQueueV2")
_TAKES = frozenset(
    f"{kind}{op}" for kind in ("", "Map", "OrderedMap") for op in ("Unstage", "UnstageNoKey", "Peek", "StagePeek")
)
_PUTS = frozenset(("Stage", "MapStage", "OrderedMapStage"))
# What a reader takes is in its second input.
_READS = ("ReaderRead", "ReaderReadV2", "ReaderReadUpTo", "ReaderReadUpToV2")


@dataclass(frozen=True)
class Probe:
    """The ops that inspect one area, queue or barrier. All of them return at once."""

    # For messages: "queue 'shuffle_batch'", "barrier 'b'", "area 'train' (made at train.py:41)".
    name: str
    # Unique: the name of a queue's op, or "area:" and the name of an area's store.
    key: str
    # False for an area.
    is_queue: bool
    # A scalar int32.
    size: Any
    # A scalar bool. None for an area, which cannot be closed, and for a barrier.
    closed: Any | None
    # In elements; 0 is unbounded.
    capacity: int
    # Elements that a dequeue leaves in a shuffle queue; 0 for everything else.
    min_after_dequeue: int
    # Fails a waiting get. None if no op can.
    wake_takers: Any | None
    # Lets a waiting put through, or fails it. None if no op can.
    wake_putters: Any | None
    # The number of elements of a barrier that lack a component.
    incomplete: Any | None = None


def probes_of(graph: Any, hidden: Collection[str] = ()) -> dict[str, Probe]:
    """Return the probes of all areas and queues of `graph` by key. Make missing ones while the graph is open.

    Args:
      graph: the graph.
      hidden: keys of queues and areas to leave out, because they are parts of something else.
    """
    probes = state_of(graph).ops.probes
    if not graph.finalized:
        queues = [op for op in graph.get_operations() if op.type in _QUEUE_OPS or op.type == "Barrier"]
        with graph.as_default(), tf.control_dependencies(None), tf.name_scope("staging_doctor/"):
            for op in queues:
                if op.name not in probes and op.name not in hidden:
                    probes[op.name] = _probe_barrier(op) if op.type == "Barrier" else _probe_queue(op)
            for area in areas_of(graph):
                if area_key(area.name) not in probes and area_key(area.name) not in hidden:
                    probes[area_key(area.name)] = _probe_area(area)
    return {key: probe for key, probe in probes.items() if key not in hidden}


def area_key(shared_name: str) -> str:
    """Return the key of the area whose store has that name."""
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
        elif op.type == "BarrierTakeMany":
            takes[op.inputs[0].op.name] = _elements_of(op)
        elif op.type in _READS:
            takes.setdefault(op.inputs[1].op.name, 1)
        elif op.type.startswith(("QueueEnqueue", "BarrierInsertMany")):
            puts.add(op.inputs[0].op.name)
        elif op.type in _TAKES:
            takes[area_key(store_of(op))] = 1
        elif op.type in _PUTS and not is_misfit(op):
            puts.add(area_key(store_of(op)))
    return Touched(takes, frozenset(puts))


def is_misfit(op: Any) -> bool:
    """Whether `op` is a `StagingArea.misfit_op`, which is not a put of an element."""
    return bool(op.name.endswith(MISFIT))


def _elements_of(op: Any) -> int:
    if "Many" not in op.type and "UpTo" not in op.type:
        return 1
    wanted = tf.get_static_value(op.inputs[1])
    return 1 if wanted is None else int(wanted)


def _probe_queue(op: Any) -> Probe:
    handle = op.outputs[0]
    close = tf.raw_ops.QueueCloseV2(handle=handle, cancel_pending_enqueues=True)
    return Probe(
        name=f"queue '{op.name}'",
        key=op.name,
        is_queue=True,
        size=tf.raw_ops.QueueSizeV2(handle=handle),
        closed=tf.raw_ops.QueueIsClosedV2(handle=handle),
        capacity=max(0, int(op.get_attr("capacity"))),
        min_after_dequeue=int(op.get_attr("min_after_dequeue")) if op.type == "RandomShuffleQueueV2" else 0,
        wake_takers=close,
        wake_putters=close,
    )


def _probe_barrier(op: Any) -> Probe:
    handle = op.outputs[0]
    close = tf.raw_ops.BarrierClose(handle=handle, cancel_pending_enqueues=True)
    return Probe(
        name=f"barrier '{op.name}'",
        key=op.name,
        is_queue=False,
        size=tf.raw_ops.BarrierReadySize(handle=handle),
        closed=None,
        capacity=max(0, int(op.get_attr("capacity"))),
        min_after_dequeue=0,
        wake_takers=close,
        wake_putters=close,
        incomplete=tf.raw_ops.BarrierIncompleteSize(handle=handle),
    )


def _probe_area(area: BaseStagingArea) -> Probe:
    return Probe(
        name=str(area),
        key=area_key(area.name),
        is_queue=False,
        size=area.size_op(),
        closed=None,
        capacity=area.capacity,
        min_after_dequeue=0,
        # A get by key waits for its own key, which is unknown here.
        wake_takers=area.misfit_op() if isinstance(area, StagingArea) else None,
        wake_putters=area.clear_op(),
    )
