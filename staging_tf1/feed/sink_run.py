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


class SinkRun:
    """Runs a sink's ops in `session`."""

    def __init__(self, sink: Sink, session: Any, lanes: int) -> None:
        self.sink = sink
        self._session = session
        self._open_lanes = lanes
        self._closed = self._cancelled = False
        self._lock = threading.Lock()
        # Puts begun and ended; they differ while one is under way.
        self.begun = self.ended = 0
        count = () if sink.count is None else (sink.count,)
        with_put = count if sink.release is None else ()
        # Without placeholders the graph computes the values, which the pool's threads should share.
        self._put: Callable[..., Any] = fast_callable(
            session,
            feeds=[*sink.placeholders, *with_put],
            targets=[sink.put],
            in_caller_thread=bool(sink.placeholders),
        )

        # Not by the session's `run`: while a stall is being ended that raises in every thread.
        def quick(op: Any, feeds: Sequence[Any] = ()) -> Callable[..., Any]:
            return fast_callable(session, feeds=feeds, targets=[op], in_caller_thread=True)

        self._cancel = quick(sink.cancel)
        self._release = None if sink.release is None else quick(sink.release, count)
        self._give_back = None if sink.repair is None else quick(sink.repair.give_back)
        self._counts_with_put = bool(with_put)
        # Of the batches that have been put and not released, in order; None where the put says it, or nobody.
        self._counts: deque[int] | None = deque() if count and not with_put else None

    def put(self, *arrays: Any, count: int = 1) -> None:
        """Puts one batch, which stands for `count` batches of the source; waits for room.

        Raises:
          Stopped: it was cancelled.
          ForkedError: a source has forked, and this is the child.
        """
        refuse_if_forked("A feed thread")
        with self._lock:
            if self._cancelled:
                raise Stopped
            self.begun += 1
        try:
            self._put(*arrays, *([np.array(count, np.int64)] if self._counts_with_put else ()))
        except tf.errors.CancelledError:
            if self._cancelled:
                raise Stopped from None
            raise
        finally:
            with self._lock:
                self.ended += 1
        if self._counts is not None:
            self._counts.append(count)

    def puts(self) -> tuple[int, int]:
        """How many puts have begun, and how many have ended."""
        with self._lock:
            return self.begun, self.ended

    def reset(self) -> None:
        """Empties the area and fills the slots."""
        self._session.run(self.sink.reset)

    def release(self, batches: int) -> None:
        """Lets `batches` staged elements be taken."""
        assert self._release is not None
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

    def cancel(self) -> None:
        """Lets nothing more in, and wakes everybody who waits here; what has been put can be taken."""
        with self._lock:
            self._cancelled = True
            waiting = self.begun - self.ended
        self._cancel()
        if self._give_back is not None:
            for _ in range(waiting):
                self._give_back()
