"""`Trace`: collects what sources, feed threads and steps do, for a timeline that `trace_json` formats."""

from __future__ import annotations

import itertools
import os
import threading
import time
from collections import deque
from collections.abc import Collection, Mapping, Sequence
from functools import partial
from typing import Any

from staging_tf1._tf import tf
from staging_tf1.feed.threads import (
    BETWEEN_STEPS,
    MAKING,
    PUTTING,
    WAITING_FOR_SHARE,
    WAITING_FOR_SOURCE,
    WAITING_IN_ORDER,
    ThreadState,
)
from staging_tf1.graph.get_stats import GetFigures
from staging_tf1.graph.sink import Sink
from staging_tf1.watch.trace_json import THREADS, Event, Feed, dump

# Only the most recent events are kept: about 100 MB with the file's text, an hour at 10 steps per second.
_MOST_EVENTS = 200_000
# A wait for the batches before is recorded from this length on: with one thread it is the time between two clocks.
_SHORTEST_WAIT_SECS = 20e-6
# What a feed thread does after it has read a batch.
_HAS_READ = (WAITING_IN_ORDER, BETWEEN_STEPS)


class Trace:
    """Collects the events of successive sessions, and writes all of them whenever a session closes.

    Args:
      path: the file. It is created at once, so that an unwritable path is refused before the training.
    """

    def __init__(self, path: str) -> None:
        # Absolute, because the working directory may change before the session closes.
        self._path = os.path.abspath(path)
        self._events: deque[Event] = deque(maxlen=_MOST_EVENTS)
        self._began = time.perf_counter()
        self._dropped = 0
        self._feeds: dict[Sink, Feed] = {}
        self._verdicts: dict[str, str] = {}
        self._gets: _Gets | None = None
        self._steps = itertools.count()
        # The last step of each thread that runs steps.
        self._last_step: dict[int, Event] = {}
        self._lock = threading.Lock()
        with open(self._path, "w", encoding="utf-8"):
            pass

    def follow(self, producers: Sequence[tuple[Sink, Sequence[ThreadState]]]) -> None:
        """Record what feed threads do from now on.

        Args:
          producers: those of one pipeline that starts in a session: their sinks and their threads.
        """
        feeds = {sink: _feed_of(sink) for sink, _ in producers}
        self._feeds |= feeds
        for number, (sink, states) in enumerate(producers):
            for state in states:
                reads = _Reads(feeds[sink], number)
                state.on_number = partial(self._number, feeds[sink])
                state.on_left = partial(self._left, reads)
                state.on_put_in_step = partial(self._put_in_step, reads)

    def record(self, session: Any, sinks: Sequence[Sink]) -> None:
        """Record the gets from `sinks` from now on."""
        for sink in sinks:
            self._feeds.setdefault(sink, _feed_of(sink))
        self._gets = _Gets(session, sinks)

    def step_ended(self, began: float, ended: float, sinks: Collection[Sink], error: BaseException | None) -> None:
        """Record a step and its gets.

        Args:
          began: when it began (perf_counter).
          ended: when it ended.
          sinks: those that it takes from.
          error: what it raised, if anything.
        """
        row = threading.current_thread().name
        step = Event("step", row, began, ended, number=next(self._steps), error=type(error).__name__ if error else "")
        taken = {} if error is not None and not isinstance(error, Exception) else self._taken(sinks, error)
        gets = [
            Event(
                "get",
                row,
                began,
                began if secs is None else min(ended, began + secs),
                self._feeds[sink],
                element=element,
                number=step.number,
                is_timed=secs is not None,
            )
            for sink, (element, secs) in taken.items()
        ]
        self._last_step[threading.get_ident()] = step
        self._add(step, *gets)

    def write(self, verdicts: Mapping[str, str]) -> None:
        """Write all events so far, and what `stats()` says of each pipeline."""
        self._verdicts |= verdicts
        with open(self._path, "w", encoding="utf-8") as file:
            dump(list(self._events), self._began, self._dropped, self._verdicts, file)

    def _taken(self, sinks: Collection[Sink], error: BaseException | None) -> Mapping[Sink, tuple[int, float | None]]:
        # One at a time, so that each step finds its own gets.
        with self._lock:
            if self._gets is None:
                return {}
            try:
                return self._gets.taken(sinks)
            except (tf.errors.OpError, RuntimeError):
                if error is None:
                    raise
                # The session is gone.
                return {}

    def _left(self, reads: _Reads, state: ThreadState, began: float, ended: float, doing: str) -> None:
        """Called by the thread when it leaves `state.doing` for `doing`."""
        left, batch = state.doing, state.batch
        if left == WAITING_FOR_SOURCE and doing in _HAS_READ and batch != reads.last:
            reads.last = batch
            if doing == BETWEEN_STEPS:
                reads.ahead.append((batch, state.nbytes))
            kind = "source"
        elif left == PUTTING and doing == WAITING_FOR_SOURCE:
            self._put(reads, batch, state.nbytes, began, ended)
            return
        elif left == WAITING_IN_ORDER and ended - began > _SHORTEST_WAIT_SECS:
            kind = "wait for order"
        elif left == MAKING:
            # The worker process has a row of its own. The thread that tells of it is one of those that wait for it.
            self._add(Event("make", state.name, began, ended, reads.feed, reads.producer, batch))
            return
        elif left == WAITING_FOR_SHARE:
            self._add(Event("wait for share", threading.current_thread().name, began, ended, reads.feed))
            return
        else:
            # The end of the data or of the session, which came instead of a batch.
            return
        row = threading.current_thread().name
        self._add(Event(kind, row, began, ended, reads.feed, reads.producer, batch, state.nbytes))

    def _number(self, feed: Feed, number: int) -> None:
        """Called when AUTOTUNE has decided the number of feed threads that work."""
        now = time.perf_counter()
        self._add(Event(THREADS, "", now, now, feed, number=number))

    def _put_in_step(self, reads: _Reads, state: ThreadState, in_step: bool) -> None:
        """Called in lockstep, when a batch was put: by the last step of this thread, or between two steps."""
        batch, nbytes = reads.ahead.popleft() if reads.ahead else (-1, 0)
        step = self._last_step.get(threading.get_ident()) if in_step else None
        now = time.perf_counter()
        began, ended = (now, now) if step is None else (step.began, step.ended)
        self._put(reads, batch, nbytes, began, ended)

    def _put(self, reads: _Reads, batch: int, nbytes: int, began: float, ended: float) -> None:
        # In the order of the puts, in which the elements are taken.
        element = next(reads.feed.puts)
        row = threading.current_thread().name
        # A batch that the graph computes has no other number.
        number = element if reads.last < 0 else batch
        self._add(Event("put", row, began, ended, reads.feed, reads.producer, number, nbytes, element))

    def _add(self, *events: Event) -> None:
        self._dropped += max(0, len(self._events) + len(events) - _MOST_EVENTS)
        self._events.extend(events)


class _Reads:
    """What one thread has read last."""

    def __init__(self, feed: Feed, producer: int) -> None:
        self.feed, self.producer = feed, producer
        self.last = -1
        # In lockstep, the number and the size of each batch that is read and not put.
        self.ahead: deque[tuple[int, int]] = deque()


class _Gets:
    """Finds out what a step took, from the counts in the graph."""

    def __init__(self, session: Any, sinks: Sequence[Sink]) -> None:
        self._sinks = list(sinks)
        # TensorFlow refuses an empty list of fetches.
        self._values = session.make_callable([sink.stats.value for sink in sinks]) if sinks else list
        self._last = dict(zip(self._sinks, self._read(), strict=True))

    def taken(self, sinks: Collection[Sink]) -> dict[Sink, tuple[int, float | None]]:
        """Return the element that the step took from each of `sinks`, and how long that took, if that is known.

        Other steps under way may have taken elements, too: theirs are left for them.
        """
        taken: dict[Sink, tuple[int, float | None]] = {}
        for sink, now in zip(self._sinks, self._read(), strict=True):
            then = self._last[sink]
            more = now.batches - then.batches
            # Which runs take from a queue is not known before.
            if more > 0 and (sink in sinks or sink.take is None):
                secs = waited = None
                if now.wait_secs is not None and then.wait_secs is not None:
                    secs = (now.wait_secs - then.wait_secs) / more
                    waited = then.wait_secs + secs
                taken[sink] = (then.batches, secs)
                self._last[sink] = GetFigures(then.batches + 1, waited, 0.0)
        return taken

    def _read(self) -> list[GetFigures]:
        return [sink.stats.figures(sums) for sink, sums in zip(self._sinks, self._values(), strict=True)]


def _feed_of(sink: Sink) -> Feed:
    """The record of a sink in one session."""
    holds_batches = sink.area is not None or sink.put.type == "QueueEnqueueV2"
    return Feed(sink.name, holds_batches, itertools.count())
