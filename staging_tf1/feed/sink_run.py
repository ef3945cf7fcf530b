"""`SinkRun`: a sink in one session, with its callables; and `Canceller`, which cancels several sinks at once."""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Any

import numpy as np

from staging_tf1._tf import fast_callable, run_unwrapped, tf
from staging_tf1.cluster.gate import Gate
from staging_tf1.feed.threads import Stopped
from staging_tf1.fork import refuse_if_forked
from staging_tf1.graph.sink import Sink

# How often a put that waits looks whether it was cancelled.
_LOOK_SECS = 0.1
# How long a stop lets puts end. One that still computes its values then fails.
_PATIENCE_SECS = 0.02


class Canceller:
    """Cancels the sinks of all pipelines that were started together, with one callable that is made at the start.

    TensorFlow processes the whole graph for each new callable, and a stop must be quick.
    """

    def __init__(self, session: Any, sinks: Sequence[Sink]) -> None:
        self._session = session
        self._all = len(sinks)
        # Held while these pipelines are being stopped.
        self.stopping = threading.RLock()
        self._wake_all, self._cancel_all = self._callables(sinks)
        # The runs of the pipelines.
        self.runs: list[Any] = []

    def cancel(self, sinks: Sequence[SinkRun]) -> None:
        """End the puts and wake waiting threads. What has been put can still be taken.

        A put that waits for a slot adds its batch. TensorFlow would log it if it failed.
        """
        if not sinks:
            return
        waiting = max(sink.refuse_puts() for sink in sinks)
        everything = len(sinks) == self._all
        # Not the others, too: a pipeline that was cancelled before may have begun anew.
        wake, cancel = (
            (self._wake_all, self._cancel_all) if everything else self._callables([sink.sink for sink in sinks])
        )
        # Each call wakes one put of each area.
        for _ in range(waiting):
            wake()
        until = time.perf_counter() + _PATIENCE_SECS
        for sink in sinks:
            sink.await_puts(until)
        # Cancelling twice is harmless.
        cancel()

    def _callables(self, sinks: Sequence[Sink]) -> tuple[Callable[..., Any], Callable[..., Any]]:
        wake = _quick(self._session, [sink.wake for sink in sinks if sink.wake is not None])
        return wake, _quick(self._session, [sink.cancel for sink in sinks])


class FailedBlock(Exception):
    """An op failed while several batches were put, after the first `put` of them."""

    def __init__(self, put: int, error: tf.errors.OpError) -> None:
        super().__init__(put, error)
        self.put, self.error = put, error


class SinkRun:
    """Runs the ops of a sink in `session`. The feed threads make the callables when they first need them.

    Args:
      producers: how many producers fill it.
      gate: while it is closed, no put into an area begins; None outside a cluster. Puts into a queue go on, because a
        queue does not show whether a step waits for it, and that step must end.
    """

    def __init__(self, sink: Sink, session: Any, producers: int, gate: Gate | None = None) -> None:
        self.sink, self._gate = sink, gate if sink.repair is not None else None
        self._session = session
        self._open_producers = producers
        self._closed = self._cancelled = self._ended_before = False
        self._lock = threading.Lock()
        # Notified of each put that ends after a cancel.
        self._put_ended = threading.Condition(self._lock)
        # Held while a callable is made.
        self._making = threading.Lock()
        # Puts begun and ended. They differ while a put is running.
        self.begun = self.ended = 0
        self._stamp = () if sink.put.stamp is None else (sink.put.stamp,)
        self._stamps_with_put = bool(self._stamp) and sink.put.release is None
        # The stamps of the batches that are put but not released, in order; None if the release is fed none.
        self._stamps: deque[int] | None = deque() if self._stamp and not self._stamps_with_put else None
        self._put: Callable[..., Any] | None = None
        self._block: Callable[..., Any] | None = None
        self._release: Callable[..., Any] | None = None

    def put(self, *arrays: Any, stamp: int = 1) -> None:
        """Put one batch with its stamp. Wait for room.

        Raises:
          Stopped: the sink was cancelled.
          ForkedError: the source forked, and this is the child.
        """
        stamps = [np.array(stamp, np.int64)] if self._stamps_with_put else []
        self._run(self._put or self._make_put(), [*arrays, *stamps])
        if self._stamps is not None:
            self._stamps.append(stamp)

    def put_block(self, *arrays: Any, batches: int) -> int:
        """Put several batches. Wait for room for each. An area gets arrays with one more dimension, their number.

        Returns how many were put: not all if the sink was cancelled.

        Raises:
          FailedBlock: an op of the block failed.
          Stopped: the sink was cancelled before.
          ForkedError: the source forked, and this is the child.
        """
        block = self.sink.put.block
        if block is None:
            self.put(*arrays)
            return batches
        fed = [*arrays, np.array([batches], np.int32)]
        try:
            ((added,),) = self._run(self._block or self._make_block(), fed)
        except tf.errors.CancelledError:
            raise
        except tf.errors.OpError as error:
            if block.before_error is None:
                raise
            (put,) = run_unwrapped(self._session, block.before_error)
            raise FailedBlock(int(put), error) from error
        return int(added)

    def _run(self, put: Callable[..., Any], feeds: Sequence[Any]) -> Any:
        refuse_if_forked("A feed thread")
        while not self._begin():
            assert self._gate is not None
            self._gate.await_open(_LOOK_SECS)
        try:
            return put(*feeds)
        except tf.errors.CancelledError:
            if self._cancelled:
                raise Stopped from None
            raise
        finally:
            with self._lock:
                self.ended += 1
                if self._cancelled:
                    self._put_ended.notify_all()

    def _begin(self) -> bool:
        """Begin a put, unless the cluster stands still. Return whether it has."""
        with self._lock:
            if self._cancelled:
                raise Stopped
            if self._gate is not None and self._gate.is_closed:
                return False
            self.begun += 1
            return True

    def _make_put(self) -> Callable[..., Any]:
        sink = self.sink
        with self._making:
            if self._put is None:
                # Without placeholders the graph computes the values, which the threads of the pool should do.
                self._put = fast_callable(
                    self._session,
                    feeds=[*sink.put.placeholders, *(self._stamp if self._stamps_with_put else ())],
                    targets=[sink.put.op],
                    in_caller_thread=bool(sink.put.placeholders),
                )
            return self._put

    def _make_block(self) -> Callable[..., Any]:
        block = self.sink.put.block
        assert block is not None
        with self._making:
            if self._block is None:
                # In the pool: in the thread of a caller, an op that waits continues in the thread that ends the wait.
                self._block = fast_callable(
                    self._session, feeds=block.placeholders, targets=(), fetches=[block.added], in_caller_thread=False
                )
            return self._block

    def puts(self) -> tuple[int, int]:
        with self._lock:
            return self.begun, self.ended

    def release(self, batches: int) -> None:
        with self._making:
            if self._release is None:
                self._release = _quick(self._session, [self.sink.put.release], self._stamp)
        for _ in range(batches):
            self._release(*([np.array(self._stamps.popleft(), np.int64)] if self._stamps is not None else ()))

    def producer_ended(self) -> bool:
        """Count a producer that has delivered its last batch. Return True for the last producer."""
        with self._lock:
            self._open_producers -= 1
            return self._open_producers == 0

    def close(self) -> None:
        """End the data: takers drain what is left. Do nothing the second time, when TensorFlow would raise."""
        with self._lock:
            if self._closed:
                return
            self._closed, self._ended_before = True, not self._cancelled
            if self._cancelled:
                # The cancel closes the queue. A second close would fail, and TensorFlow would log it.
                return
        # A partial run that meets the end cancels its session, and with it the run that has closed the queue.
        with suppress(tf.errors.CancelledError):
            run_unwrapped(self._session, self.sink.close)

    @property
    def over(self) -> bool:
        """Whether nothing more will be put."""
        return self._closed or self._cancelled

    @property
    def cancelled(self) -> bool:
        """Whether an error or a stop ended it, rather than the end of the source."""
        return self._cancelled and not self._ended_before

    def refuse_puts(self) -> int:
        """Prevent further puts. Return how many are running and may need a slot to end."""
        with self._lock:
            self._cancelled = True
            return 0 if self.sink.wake is None else self.begun - self.ended

    def await_puts(self, until: float) -> None:
        """Wait until no put is running, or until that time (perf_counter). Puts into a queue end with its `cancel`."""
        if self.sink.wake is not None:
            with self._lock:
                self._put_ended.wait_for(lambda: self.begun == self.ended, max(0.0, until - time.perf_counter()))


def _quick(session: Any, ops: Sequence[Any], feeds: Sequence[Any] = ()) -> Callable[..., Any]:
    if not ops:
        return lambda: None
    return fast_callable(session, feeds=feeds, targets=ops, in_caller_thread=True)
