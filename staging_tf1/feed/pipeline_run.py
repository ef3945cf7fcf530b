"""`PipelineRun`: the feed threads of one pipeline in one session."""

from __future__ import annotations

import functools
import threading
import time
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from typing import Any

from absl import logging

from staging_tf1._tf import is_closed, tf
from staging_tf1.background import Background, Stop
from staging_tf1.errors import SourceError, StagingError
from staging_tf1.feed.autotune import autotuner
from staging_tf1.feed.batch_reader import BatchReaders
from staging_tf1.feed.delivery import Delivery
from staging_tf1.feed.pipeline import Pipeline
from staging_tf1.feed.producer_run import ProducerRun
from staging_tf1.feed.resume import Start
from staging_tf1.feed.sink_run import Canceller, SinkRun
from staging_tf1.feed.source_errors import text_of
from staging_tf1.feed.threads import ENDED, Stopped, ThreadState
from staging_tf1.fork import has_lost_tensorflow
from staging_tf1.garbage import join_thread
from staging_tf1.sources import Source
from staging_tf1.workers.pool import PoolOptions, WorkerPool
from staging_tf1.workers.shipping import Shipment

# How often the thread that waits for the coordinator looks whether the run was stopped.
_LOOK_SECS = 1.0
# How long the last batch of a run may take that ends because its pipeline starts again.
LAST_BATCH_SECS = 600.0
# After this time, it is said what such a start waits for.
SILENT_SECS = 1.0


class PipelineRun:
    """The threads that carry batches from a pipeline's producers to its sinks.

    Args:
      pipeline: the pipeline to run.
      starts: each of its producers, with the number of its first batch.
      session: the session to run it in.
      coord: a `tf.train.Coordinator` that stops the threads and is told about errors, or None.
      canceller: shared by the pipelines that start together.

    Attributes:
      readers: what reads the batches of each producer.
      error: the first exception of a feed thread, or None.
      coord: the argument.
      begins_anew: whether the program has initialized its iterators again since it was stopped.
      states: one record per feed thread.
      threads: all threads, not started.
    """

    def __init__(
        self,
        pipeline: Pipeline,
        starts: Sequence[Start],
        session: Any,
        coord: Any | None,
        canceller: Canceller,
    ) -> None:
        self.pipeline, self.session = pipeline, session
        self.error: BaseException | None = None
        self.coord, self._canceller = coord, canceller
        self.begins_anew = False
        self._lock = threading.Lock()
        self.delivery = Delivery(pipeline, session)
        readers = BatchReaders(_with_workers(starts), pipeline.map_ops, session)
        self.readers = readers.for_threads()
        self.producers = tuple(ProducerRun(reader, readers.rotation, self.delivery) for reader in self.readers)
        self.states = [state for producer in self.producers for state in producer.states]
        tuned = [producer for producer in self.producers if producer.producer.autotune]
        self._stopping = Stop()
        self._autotuner = autotuner(pipeline.name, session, tuned, self._stopping) if tuned else None
        self.threads = self._make_threads()
        canceller.runs.append(self)

    def _make_threads(self) -> list[threading.Thread]:
        threads: list[threading.Thread] = []
        for producer in self.producers:
            for state in producer.states:
                state.thread = Background(state.name, functools.partial(self._guarded, producer, state))
                threads.append(state.thread)
        if self._autotuner is not None:
            threads.append(self._autotuner)
        if self.coord is not None:
            name = f"feed:{self.pipeline.name}:stop"
            threads.append(Background(name, self._stop_with_coordinator, self._stopping))
        return threads

    @property
    def sinks(self) -> tuple[SinkRun, ...]:
        return self.delivery.sinks

    def states_of(self, tower: int) -> list[ThreadState]:
        return [state for run in self.producers if run.producer.tower == tower for state in run.states]

    def threads_of(self, tower: int) -> int:
        """Return how many threads fill one tower's sink at present."""
        return sum(run.crew.number for run in self.producers if run.producer.tower == tower)

    def pools_of(self, tower: int) -> list[WorkerPool]:
        return [run.pool for run in self.producers if run.producer.tower == tower and run.pool is not None]

    def stop(self) -> None:
        """Wake all waiting threads and end their puts. What is staged can still be taken. Does not join threads."""
        stop_all([self])

    def begin_to_stop(self) -> bool:
        """Prevent further puts and release. Return False if they were already prevented."""
        if not self.delivery.begin_to_stop():
            return False
        self._stopping.set()
        for producer in self.producers:
            producer.stop()
        return True

    def join(self, deadline_secs: float) -> list[ThreadState]:
        """Join the feed threads. Return the states of those still running after `deadline_secs`."""
        end = time.perf_counter() + deadline_secs
        # The thread that waits for the coordinator ends with it, and MonitoredSession joins none after a failed start.
        told = self.coord is not None and self.coord.should_stop()
        for thread in self.threads if told else [state.thread for state in self.states]:
            join_thread(thread, max(0.0, end - time.perf_counter()))
        return [state for state in self.states if state.thread is not None and state.thread.is_alive()]

    def join_last_batch(self) -> None:
        """Join the feed threads of a stopped run, so that its pipeline can start again.

        Raises:
          StagingError: a thread does not return.
        """
        for state in self.join(SILENT_SECS):
            logging.warning(
                "%s: it starts again when feed thread '%s' has returned, which is %s: waiting for at most %.0f s. "
                "If the source waits for what thread '%s' does next, let it return before.",
                self.pipeline,
                state.name,
                state.doing,
                LAST_BATCH_SECS,
                threading.current_thread().name,
            )
        for state in self.join(LAST_BATCH_SECS - SILENT_SECS):
            raise StagingError(
                f"{self.pipeline}: cannot start again, because {state.name} still computes a batch after "
                f"{LAST_BATCH_SECS:.0f} s."
            )

    def is_putting(self) -> bool:
        return any(begun != ended for begun, ended in (sink.puts() for sink in self.sinks))

    def drain(self) -> None:
        """Stop reading from the sources. What has been read can still be taken, tower by tower."""
        for producer in self.producers:
            producer.finish()
        self.delivery.drain()

    def _guarded(self, producer: ProducerRun, state: ThreadState) -> None:
        try:
            producer.feed(state)
        except Stopped:
            pass
        except BaseException as error:
            if has_lost_tensorflow():
                # This is a fork, and the pipelines belong to the parent.
                raise
            if not (self.delivery.stopping or self._session_is_gone(error)):
                self._failed(error, state)
        finally:
            state.now(ENDED)

    def _failed(self, error: BaseException, state: ThreadState) -> None:
        with self._lock:
            if self.error is None:
                self.error = error
        logging.error("feed thread '%s' failed: %s: %s", state.name, type(error).__name__, text_of(error))
        if self.coord is not None:
            self._report(self.coord, error)
        self._stop_with_others()

    def _report(self, coord: Any, error: BaseException) -> None:
        try:
            # As a tuple, because the coordinator cannot find the traceback outside an `except` block.
            coord.request_stop((type(error), error, error.__traceback__))
        except Exception:
            # The coordinator converts the exception to a string, which may raise.
            named = SourceError(f"'{self.pipeline.name}': the source raised {type(error).__name__} {text_of(error)}")
            named.__cause__ = error
            coord.request_stop((SourceError, named, error.__traceback__))

    def _stop_with_coordinator(self) -> Iterator[float]:
        assert self.coord is not None
        while not self.coord.wait_for_stop(_LOOK_SECS):
            # The coordinator of a session that MonitoredSession has abandoned may never be stopped.
            yield 0.0
        self._stop_with_others()

    def _stop_with_others(self) -> None:
        """Stop all pipelines of the coordinator; without one, only this pipeline."""
        stop_all([run for run in self._canceller.runs if run is self or run.coord is self.coord is not None])

    def _session_is_gone(self, error: BaseException) -> bool:
        """Whether `error` only means that the user has closed the session."""
        return isinstance(error, (tf.errors.CancelledError, RuntimeError)) and is_closed(self.session)


def first_error(runs: Iterable[PipelineRun]) -> BaseException | None:
    return next((run.error for run in runs if run.error is not None), None)


def stop_all(runs: Sequence[PipelineRun]) -> None:
    """Stop several runs, with one `Session.run` for all that were started together."""
    for canceller in {id(run._canceller): run._canceller for run in runs}.values():
        # If two threads stop the same runs, one of them stops all.
        with canceller.stopping:
            begun = [run for run in runs if run._canceller is canceller and run.begin_to_stop()]
            try:
                canceller.cancel([sink for run in begun for sink in run.sinks])
            except (tf.errors.OpError, RuntimeError) as error:
                # The session is gone, and nothing in it waits.
                logging.vlog(1, "'%s': could not cancel: %s", begun[0].pipeline.name, error)


def _with_workers(starts: Sequence[Start]) -> list[Start]:
    """Return `starts`, with a pool for each producer that has worker processes. The first batch starts them.

    The sources of one pipeline are shipped together, so workers share the memory that sources share.
    """
    plan = starts[0][0].plan
    if not plan.num_processes:
        return list(starts)
    sources = [producer.source for producer, _ in starts if isinstance(producer.source, Source)]
    shipment = Shipment(sources, users=len(sources))
    pools = [
        WorkerPool(
            PoolOptions(
                name=producer.name,
                processes=plan.num_processes,
                shipment=shipment,
                source_index=index,
                nice=plan.nice,
                memory_limit=plan.memory_limit,
                batch_bytes=source.bytes_per_batch,
            )
        )
        for index, (source, (producer, _)) in enumerate(zip(sources, starts, strict=True))
    ]
    return [(replace(producer, pool=pool), first) for pool, (producer, first) in zip(pools, starts, strict=True)]
