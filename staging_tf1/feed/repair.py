"""`repair`: restores the slots of an area after a step failed in the middle of a get.

TensorFlow cancels a step as soon as one of its ops fails. A get that has its element by then cannot give its slot back,
because an enqueue refuses a cancelled step. Each such step loses one slot, until the feed threads wait forever.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from staging_tf1._tf import run_unwrapped, tf
from staging_tf1.graph.sink import Sink
from staging_tf1.graph.token_area import Repair

# A put that holds a slot stages its element within microseconds. One that has not staged after this time holds none.
_PATIENCE_SECS = 0.005


def repair(sinks: Sequence[tuple[Sink, Callable[[], tuple[int, int]]]], session: Any) -> list[int]:
    """Give lost slots back, between two steps. Return how many there were, for each sink.

    If a running put is so slow that its slot looks lost, the area holds one element more than its capacity until the
    next repair takes the slot away again.

    Args:
      sinks: each with a function that returns how many puts have begun and how many have ended. Queues lose nothing.
      session: the session in which the step failed.
    """
    repaired = [sink.repair for sink, _ in sinks if sink.repair is not None]
    # One run for all, because most have lost nothing.
    slots = iter(run_unwrapped(session, [(ops.free, ops.held) for ops in repaired]) if repaired else ())
    lost = []
    for sink, puts in sinks:
        missing = 0 if sink.repair is None else sink.capacity - sum(int(n) for n in next(slots))
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
    """Release elements that were staged in a step that failed before their release. Return how many, for each sink.

    Only for lockstep, where no put is running between two steps.

    Args:
      sinks: each with the feeds of that step's put.
      session: the session in which the step failed.
    """
    repaired = [(sink, sink.repair, fed) for sink, fed in sinks if sink.repair is not None]
    counts = run_unwrapped(session, [(ops.held, sink.size) for sink, ops, _ in repaired]) if repaired else []
    stranded = [int(held) - int(ready) for held, ready in counts]
    for (sink, ops, fed), number in zip(repaired, stranded, strict=True):
        stamp = {sink.stamp: fed[sink.stamp]} if sink.stamp in fed else {}
        for _ in range(number):
            run_unwrapped(session, ops.release, stamp)
    return stranded


def take_away(ops: Repair, session: Any) -> None:
    """Remove one free slot, if there is one."""
    try:
        run_unwrapped(session, ops.take_away, options=tf.RunOptions(timeout_in_ms=int(1000 * _PATIENCE_SECS)))
    except tf.errors.DeadlineExceededError:
        # A feed thread was quicker. There is still one slot too many, which the next repair finds.
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
            # No put is running, so nothing else can hold a slot. A slot too many can be removed only if it is free.
            return max(lost, -free)
        if lost < 0 or time.perf_counter() > until:
            return max(lost, 0)
