"""Finds the puts and gets of the classic recipe: plain areas that are filled from feed queues."""

from __future__ import annotations

import sys
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

from staging_tf1._tf import tf
from staging_tf1.graph.area_base import store_of
from staging_tf1.graph.areas import StagingArea
from staging_tf1.graph.dependencies import ancestors, can_end, cut_before
from staging_tf1.graph.probes import is_misfit

# The types of ops that leave all elements in a queue.
_ONLY_ADDS_OR_LOOKS = ("QueueEnqueue", "QueueSize", "QueueIsClosed")


class Dequeue(NamedTuple):
    """A dequeue: the feed queue that ends it, and how many elements that queue must hold for it not to fail."""

    queue: str
    least: int
    # How many it may take.
    most: int


@dataclass(frozen=True)
class Filler:
    """A put whose values come from feed queues only."""

    # The name of the put op.
    put: str
    # The dequeues that it depends on, by name.
    dequeues: dict[str, Dequeue]
    # The tensors to compute first and then feed, so that the put cannot meet the end of the data.
    cut: tuple[Any, ...]


def needs_of(dequeues: Iterable[Dequeue]) -> Counter[str]:
    """Return how many elements each queue must hold for none of the dequeues to fail."""
    return _totals((dequeue.queue, dequeue.least) for dequeue in dequeues)


def takes_of(dequeues: Iterable[Dequeue]) -> Counter[str]:
    """Return how many elements of each queue the dequeues may take."""
    return _totals((dequeue.queue, dequeue.most) for dequeue in dequeues)


def _totals(counts: Iterable[tuple[str, int]]) -> Counter[str]:
    totals: Counter[str] = Counter()
    for queue, count in counts:
        totals[queue] += count
    return totals


def takers(graph: Any, queues: Iterable[str]) -> frozenset[str]:
    """Return the names of the ops that may take from these queues, or close them: also functions that get them."""
    tensors = [tensor for queue in queues for tensor in graph.get_operation_by_name(queue).outputs]
    users = [op for tensor in tensors for op in tensor.consumers()]
    return frozenset(op.name for op in users if not op.type.startswith(_ONLY_ADDS_OR_LOOKS))


@dataclass(frozen=True)
class ClassicArea:
    """A plain area, with the names of its put and get ops."""

    area: StagingArea
    gets: frozenset[str]
    puts: frozenset[str]
    fillers: tuple[Filler, ...]

    @property
    def ends_with_its_queues(self) -> bool:
        return bool(self.fillers) and len(self.fillers) == len(self.puts)


def classic_areas(graph: Any, areas: Iterable[StagingArea], queues: Mapping[str, str]) -> list[ClassicArea]:
    """Return those of `areas` that are filled from feed queues.

    A put that also depends on other data (a dataset, the user's own queue) is not a `Filler`.

    Args:
      queues: the name of each queue op, with the name of the feed queue that it ends with: its own or another.
    """
    puts, gets = defaultdict(list), defaultdict(set)
    for op in graph.get_operations():
        if op.type == "Stage" and not is_misfit(op):
            puts[store_of(op)].append(op)
        elif op.type == "Unstage":
            gets[store_of(op)].add(op.name)
    classic = []
    for area in {area.name: area for area in areas}.values():
        fillers = [filler for put in puts[area.name] if (filler := _filler(put, queues)) is not None]
        if fillers:
            names = frozenset(put.name for put in puts[area.name])
            classic.append(ClassicArea(area, frozenset(gets[area.name]), names, tuple(fillers)))
    return classic


def _filler(put: Any, queues: Mapping[str, str]) -> Filler | None:
    ending = [op for op in ancestors([put]) if can_end(op)]
    if not ending or not all(op.type.startswith("QueueDequeue") and op.inputs[0].op.name in queues for op in ending):
        return None
    dequeues = {op.name: Dequeue(queues[op.inputs[0].op.name], *_least_and_most(op, queues)) for op in ending}
    return Filler(put.name, dequeues, tuple(cut_before(put, list(put.inputs))))


def _least_and_most(dequeue: Any, queues: Mapping[str, str]) -> tuple[int, int]:
    queue = dequeue.inputs[0].op.name
    if queues[queue] != queue:
        return 0, sys.maxsize
    if len(dequeue.inputs) == 1:
        return 1, 1
    wanted = tf.get_static_value(dequeue.inputs[1])
    most = sys.maxsize if wanted is None else int(wanted)
    # QueueDequeueUpTo takes what is left.
    return (most if "Many" in dequeue.type else 1), most
