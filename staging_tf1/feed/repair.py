"""Puts an area's free places right after a step that failed in the middle of a get.

TensorFlow cancels a step as soon as one of its ops fails. A get that has its element by then can no longer give its
place back, because an enqueue refuses a cancelled step, and every such place is one less for the feeders, until they
wait for ever.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from typing import Any

from staging_tf1._tf import tf
from staging_tf1.graph.sink import Repair, Sink

# A put that holds a place stages its element within microseconds; one that looks the same after so long holds none.
_PATIENCE_SECS = 0.005


def repair(sink: Sink, session: Any, puts: Callable[[], tuple[int, int]]) -> int:
    """Gives lost places back; call it between two steps. Returns how many there were.

    If a put under way was slow enough to be mistaken, the area holds one element more than its capacity until the
    next repair takes the place away again.

    Args:
      sink: an area's; a queue takes no harm.
      session: the session that the step failed in.
      puts: tells how many puts have begun and how many have ended.
    """
    if sink.repair is None:
        return 0
    lost = _lost_places(sink, sink.repair, session, puts)
    for _ in range(lost):
        session.run(sink.repair.give_back)
    for _ in range(-lost):
        take_away(sink.repair, session)
    return lost


def release_stranded(sink: Sink, session: Any, put_feeds: Mapping[Any, Any]) -> int:
    """Lets elements be taken that a put staged in a step which failed before it could say so; returns how many.

    Only for lockstep, where no put is under way between two steps.

    Args:
      sink: the area's.
      session: the session that the step failed in.
      put_feeds: what that step's put was fed.
    """
    assert sink.repair is not None
    held, ready = (int(n) for n in session.run([sink.repair.held, sink.size]))
    counts = {sink.count: put_feeds[sink.count]} if sink.count in put_feeds else {}
    for _ in range(held - ready):
        session.run(sink.repair.release, counts)
    return held - ready


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
