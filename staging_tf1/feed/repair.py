"""Puts an area's free places right after a step that failed in the middle of a get.

TensorFlow cancels a step as soon as one of its ops fails. A get that has its element by then can no longer give its
place back, because an enqueue refuses a cancelled step, and every such place is one less for the feeders, until they
wait for ever.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from staging_tf1._tf import tf
from staging_tf1.graph.sink import Repair, Sink

# A put that holds a place stages its element within microseconds; one that looks the same after so long holds none.
_PATIENCE_SECS = 0.005


def repair(sinks: Sequence[tuple[Sink, Callable[[], tuple[int, int]]]], session: Any) -> list[int]:
    """Gives lost places back; call it between two steps. Returns how many there were, for each sink.

    If a put under way was slow enough to be mistaken, the area holds one element more than its capacity until the
    next repair takes the place away again.

    Args:
      sinks: the areas' sinks; queues take no harm. With each, what tells how many puts have begun and how many have
        ended.
      session: the session that the step failed in.
    """
    asked = [sink.repair for sink, _ in sinks if sink.repair is not None]
    # One run for all: most have lost nothing.
    found = iter(session.run([(ops.free, ops.held) for ops in asked]) if asked else ())
    lost = []
    for sink, puts in sinks:
        missing = 0 if sink.repair is None else sink.capacity - sum(int(n) for n in next(found))
        lost.append(_repair_one(sink, sink.repair, session, puts) if missing and sink.repair is not None else 0)
    return lost


def _repair_one(sink: Sink, ops: Repair, session: Any, puts: Callable[[], tuple[int, int]]) -> int:
    lost = _lost_places(sink, ops, session, puts)
    for _ in range(lost):
        session.run(ops.give_back)
    for _ in range(-lost):
        take_away(ops, session)
    return lost


def release_stranded(sinks: Sequence[tuple[Sink, Mapping[Any, Any]]], session: Any) -> list[int]:
    """Lets elements be taken that puts staged in a step which failed before they could say so; returns how many.

    Only for lockstep, where no put is under way between two steps.

    Args:
      sinks: the areas' sinks, each with what that step's put was fed.
      session: the session that the step failed in.
    """
    asked = [(sink, sink.repair, fed) for sink, fed in sinks if sink.repair is not None]
    found = session.run([(ops.held, sink.size) for sink, ops, _ in asked]) if asked else []
    stranded = [int(held) - int(ready) for held, ready in found]
    for (sink, ops, fed), number in zip(asked, stranded, strict=True):
        counts = {sink.count: fed[sink.count]} if sink.count in fed else {}
        for _ in range(number):
            session.run(ops.release, counts)
    return stranded


def take_away(ops: Repair, session: Any) -> None:
    """Takes one free place away, if there is one."""
    try:
        session.run(ops.take_away, options=tf.RunOptions(timeout_in_ms=int(1000 * _PATIENCE_SECS)))
    except tf.errors.DeadlineExceededError:
        # A feeder was quicker. The place is one too many still, and the next repair finds it.
        return


def _lost_places(sink: Sink, ops: Repair, session: Any, puts: Callable[[], tuple[int, int]]) -> int:
    until = time.perf_counter() + _PATIENCE_SECS
    while True:
        before = puts()
        free, held = (int(n) for n in session.run([ops.free, ops.held]))
        begun, ended = after = puts()
        lost = sink.capacity - free - held
        if lost == 0:
            return 0
        if before == after and begun == ended:
            # No put is under way, so nobody else can hold a place. One too many can be taken back only if it is free.
            return max(lost, -free)
        if lost < 0 or time.perf_counter() > until:
            return max(lost, 0)
