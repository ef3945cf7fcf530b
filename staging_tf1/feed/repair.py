"""Restores the free slots of an area after a step failed in the middle of a get.

TensorFlow cancels a step as soon as one of its ops fails. A get that has its element by then cannot give its slot back,
because an enqueue refuses a cancelled step. The feeders would lose one slot each time, until they waited forever.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from staging_tf1._tf import run_unwrapped, tf
from staging_tf1.graph.sink import Sink
from staging_tf1.graph.token_area import Repair

# A put that holds a slot stages its element within microseconds; one that looks the same after so long holds none.
_PATIENCE_SECS = 0.005


def repair(sinks: Sequence[tuple[Sink, Callable[[], tuple[int, int]]]], session: Any) -> list[int]:
    """Gives lost slots back, between two steps. Returns how many there were, for each sink.

    If a put under way is so slow that its slot looks lost, the area holds one element more than its capacity until the
    next repair takes the slot away again.

    Args:
      sinks: each with a function that tells how many puts have begun and how many have ended. Queues lose nothing.
      session: the session that the step failed in.
    """
    asked = [sink.repair for sink, _ in sinks if sink.repair is not None]
    # One run for all: most have lost nothing.
    found = iter(run_unwrapped(session, [(ops.free, ops.held) for ops in asked]) if asked else ())
    lost = []
    for sink, puts in sinks:
        missing = 0 if sink.repair is None else sink.capacity - sum(int(n) for n in next(found))
        lost.append(_repair_sink(sink, sink.repair, session, puts) if missing and sink.repair is not None else 0)
    return lost


def _repair_sink(sink: Sink, ops: Repair, session: Any, puts: Callable[[], tuple[int, int]]) -> int:
    lost = _lost_slots(sink, ops, session, puts)
    for _ in range(lost):
        run_unwrapped(session, ops.give_back)
    for _ in range(-lost):
        take_away(ops, session)
    return lost


def release_stranded(sinks: Sequence[tuple[Sink, Mapping[Any, Any]]], session: Any) -> list[int]:
    """Releases elements whose put staged them in a step that failed before the release; returns how many.

    Only for lockstep, where no put is under way between two steps.

    Args:
      sinks: each with what that step's put was fed.
      session: the session that the step failed in.
    """
    asked = [(sink, sink.repair, fed) for sink, fed in sinks if sink.repair is not None]
    found = run_unwrapped(session, [(ops.held, sink.size) for sink, ops, _ in asked]) if asked else []
    stranded = [int(held) - int(ready) for held, ready in found]
    for (sink, ops, fed), number in zip(asked, stranded, strict=True):
        counts = {sink.count: fed[sink.count]} if sink.count in fed else {}
        for _ in range(number):
            run_unwrapped(session, ops.release, counts)
    return stranded


def take_away(ops: Repair, session: Any) -> None:
    """Takes one free slot away, if there is one."""
    try:
        run_unwrapped(session, ops.take_away, options=tf.RunOptions(timeout_in_ms=int(1000 * _PATIENCE_SECS)))
    except tf.errors.DeadlineExceededError:
        # A feeder was quicker. There is still one slot too many, which the next repair finds.
        return


def _lost_slots(sink: Sink, ops: Repair, session: Any, puts: Callable[[], tuple[int, int]]) -> int:
    until = time.perf_counter() + _PATIENCE_SECS
    while True:
        before = puts()
        free, held = (int(n) for n in run_unwrapped(session, [ops.free, ops.held]))
        begun, ended = after = puts()
        lost = sink.capacity - free - held
        if lost == 0:
            return 0
        if before == after and begun == ended:
            # No put is under way, so nobody else can hold a slot. One too many can be taken away only if it is free.
            return max(lost, -free)
        if lost < 0 or time.perf_counter() > until:
            return max(lost, 0)
