"""A sink in one session: its callables, and how many lanes still fill it."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from staging_tf1._tf import fast_callable, tf
from staging_tf1.feed.turnstile import Stopped
from staging_tf1.fork import refuse_if_forked
from staging_tf1.graph.sink import Sink


class Canceller:
    """Cancels the sinks of all feeds that were started together, by one callable that is made at the start.

    To make a callable costs TensorFlow a search of the whole graph, and a stop must be quick.
    """

    def __init__(self, session: Any, sinks: Sequence[Sink]) -> None:
        self._session = session
        self._open = {id(sink) for sink in sinks}
        # Held while runs of these feeds are stopped.
        self.stopping = threading.RLock()
        self._cancel_all = self._callable(sinks)
        # The runs of the feeds, which a coordinator stops together.
        self.runs: list[Any] = []

    def cancel(self, sinks: Sequence[SinkRun]) -> None:
        """Lets nothing more in, and wakes everybody who waits here; what has been put can be taken."""
        if not sinks:
            return
        waiting = max(sink.refuse_puts() for sink in sinks)
        self._open -= {id(sink.sink) for sink in sinks}
        cancel = self._cancel_all if not self._open else self._callable([sink.sink for sink in sinks])
        # Each time gives a place to one put of each sink, which wakes it. To cancel twice, and a place too many in a
        # sink that takes nothing any more, do no harm.
        for _ in range(max(1, waiting)):
            cancel()

    def _callable(self, sinks: Sequence[Sink]) -> Callable[..., Any]:
        # Not by the session's `run`: while a stall is being ended that raises in every thread.
        give_back = [sink.repair.give_back for sink in sinks if sink.repair is not None]
        return _quick(self._session, [*(sink.cancel for sink in sinks), *give_back])


class SinkRun:
    """Runs a sink's ops in `session`. The callables are made when they are first needed, by the feed threads."""

    def __init__(self, sink: Sink, session: Any, lanes: int) -> None:
        self.sink = sink
        self._session = session
        self._open_lanes = lanes
        self._closed = self._cancelled = False
        self._lock = threading.Lock()
        # Held while a callable is made.
        self._making = threading.Lock()
        # Puts begun and ended; they differ while one is under way.
        self.begun = self.ended = 0
        self._count = () if sink.count is None else (sink.count,)
        self._counts_with_put = bool(self._count) and sink.release is None
        # Of the batches that have been put and not released, in order; None where the put says it, or nobody.
        self._counts: deque[int] | None = deque() if self._count and not self._counts_with_put else None
        self._put: Callable[..., Any] | None = None
        self._release: Callable[..., Any] | None = None

    def put(self, *arrays: Any, count: int = 1) -> None:
        """Puts one batch, which stands for `count` batches of the source; waits for room.

        Raises:
          Stopped: it was cancelled.
          ForkedError: a source has forked, and this is the child.
        """
        refuse_if_forked("A feed thread")
        put = self._put or self._make_put()
        with self._lock:
            if self._cancelled:
                raise Stopped
            self.begun += 1
        try:
            put(*arrays, *([np.array(count, np.int64)] if self._counts_with_put else ()))
        except tf.errors.CancelledError:
            if self._cancelled:
                raise Stopped from None
            raise
        finally:
            with self._lock:
                self.ended += 1
        if self._counts is not None:
            self._counts.append(count)

    def _make_put(self) -> Callable[..., Any]:
        sink = self.sink
        with self._making:
            if self._put is None:
                # Without placeholders the graph computes the values, which the pool's threads should share.
                self._put = fast_callable(
                    self._session,
                    feeds=[*sink.placeholders, *(self._count if self._counts_with_put else ())],
                    targets=[sink.put],
                    in_caller_thread=bool(sink.placeholders),
                )
            return self._put

    def puts(self) -> tuple[int, int]:
        """How many puts have begun, and how many have ended."""
        with self._lock:
            return self.begun, self.ended

    def release(self, batches: int) -> None:
        """Lets `batches` staged elements be taken."""
        with self._making:
            if self._release is None:
                self._release = _quick(self._session, [self.sink.release], self._count)
        for _ in range(batches):
            self._release(*([np.array(self._counts.popleft(), np.int64)] if self._counts is not None else ()))

    def lane_ended(self) -> bool:
        """Counts a lane that has delivered its last batch; True for the last one."""
        with self._lock:
            self._open_lanes -= 1
            return self._open_lanes == 0

    def close(self) -> None:
        """Lets the takers drain what is left. Closing twice is fine here; TensorFlow makes an error of it."""
        with self._lock:
            if self._closed:
                return
            self._closed = True
        self._session.run(self.sink.close)

    @property
    def over(self) -> bool:
        """Whether nothing will be put any more."""
        return self._closed or self._cancelled

    @property
    def cancelled(self) -> bool:
        """Whether that is so because of an error or a stop, and not at the end of the source."""
        return self._cancelled

    def refuse_puts(self) -> int:
        """Lets no put begin any more; returns how many are under way, which have to be given a place to end."""
        with self._lock:
            self._cancelled = True
            return 0 if self.sink.repair is None else self.begun - self.ended


def _quick(session: Any, ops: Sequence[Any], feeds: Sequence[Any] = ()) -> Callable[..., Any]:
    if not ops:
        return lambda: None
    return fast_callable(session, feeds=feeds, targets=ops, in_caller_thread=True)
