"""`PipelineRun`: the feed threads of one pipeline in one session."""

from __future__ import annotations

import atexit
import functools
import threading
import time
import weakref
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

from absl import logging

from staging_tf1._tf import is_closed, tf
from staging_tf1.background import Background, Stop
from staging_tf1.errors import ClusterError, ResumeError, SourceError, StagingError
from staging_tf1.feed.autotune import autotuner
from staging_tf1.feed.batch_reader import BatchReaders, note_readers
from staging_tf1.feed.delivery import Delivery
from staging_tf1.feed.pipeline import Pipeline, Producer
from staging_tf1.feed.producer_run import ProducerRun
from staging_tf1.feed.remote import with_workers
from staging_tf1.feed.sequencer import Stopped
from staging_tf1.feed.sink_run import Canceller, SinkRun
from staging_tf1.feed.source_errors import text_of
from staging_tf1.feed.threads import ENDED, WAITING_FOR_SOURCE, ThreadState
from staging_tf1.fork import has_lost_tensorflow
from staging_tf1.garbage import join_thread
from staging_tf1.graph.state import session_state_of, state_of
from staging_tf1.workers.pool import WorkerPool

# How often the thread that waits for the coordinator looks whether the run was stopped.
_LOOK_SECS = 1.0
# How long the puts of an earlier session may take to end.
_END_SECS = 10.0
# How long the last batch of a run may take that ends because its pipeline starts again.
LAST_BATCH_SECS = 600.0
# After this time, it is said what such a start waits for.
SILENT_SECS = 1.0
# How long the program may wait at its end for sessions that nobody has closed; and for sources, which may never return.
_EXIT_SECS = 20.0
_EXIT_SOURCE_SECS = 2.0


class PipelineRun:
    """The threads that carry batches from a pipeline's producers to its sinks.

    Args:
      pipeline: the pipeline to run.
      starts: each of its producers, with the number of its first batch.
      session: the session to run it in.
      coord: a `tf.train.Coordinator` that stops the threads and is told about errors, or None.
      canceller: shared by the pipelines that start together.

    Attributes:
      error: the first exception of a feed thread, or None.
      coord: the argument.
      begins_anew: whether the program has initialized its iterators again since it was stopped.
      states: one record per feed thread.
      threads: all threads, not started.
    """

    def __init__(
        self,
        pipeline: Pipeline,
        starts: Sequence[tuple[Producer, int]],
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
        readers = BatchReaders(with_workers(starts), pipeline.map_ops, session)
        readers_of_threads = readers.for_threads()
        self.producers = tuple(
            ProducerRun(producer, readers.rotation, self.delivery) for producer in readers_of_threads
        )
        note_readers(session, pipeline, readers_of_threads)
        self.states = [state for producer in self.producers for state in producer.states]
        tuned = [producer for producer in self.producers if producer.producer.autotune]
        self._stopping = Stop()
        self._autotuner = autotuner(pipeline.name, session, tuned, self._stopping) if tuned else None
        self.threads = self._make_threads()
        canceller.runs.append(self)
        session_state_of(session).runs[pipeline] = self
        state_of(session.graph).pipelines.runs.add(self)
        _runs.add(self)

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
        """The sinks in this session, one per tower."""
        return self.delivery.sinks

    def states_of(self, tower: int) -> list[ThreadState]:
        """Return the states of the threads that fill one tower's sink."""
        return [state for run in self.producers if run.producer.tower == tower for state in run.states]

    def threads_of(self, tower: int) -> int:
        """Return how many threads fill one tower's sink at present."""
        return sum(run.crew.number for run in self.producers if run.producer.tower == tower)

    def pools_of(self, tower: int) -> list[WorkerPool]:
        """Return the worker processes that make one tower's batches."""
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

    def is_putting(self) -> bool:
        """Whether a put is running."""
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
        """Request a stop because of `error`."""
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


def run_in(session: Any, pipeline: Pipeline) -> PipelineRun | None:
    """Return the run of `pipeline` in `session`; None if it was not started there."""
    return session_state_of(session).runs.get(pipeline)


def runs_in(session: Any, pipelines: Iterable[Pipeline]) -> list[PipelineRun]:
    """Return the runs of those of `pipelines` that were started in `session`."""
    return [run for pipeline in pipelines if (run := run_in(session, pipeline)) is not None]


def first_error(runs: Iterable[PipelineRun]) -> BaseException | None:
    """Return the first exception of a feed thread of `runs`, or None."""
    return next((run.error for run in runs if run.error is not None), None)


def raise_source_error(session: Any, taken: Iterable[Pipeline], pipelines: Iterable[Pipeline]) -> None:
    """Raise the error of a feed thread in place of the end of the data that a run has met.

    Returns if what the run takes has ended without one.

    Args:
      session: the session.
      taken: the pipelines that the run takes from.
      pipelines: all of the graph; an error of one stops the others.
    """
    runs = runs_in(session, taken)
    if runs and not any(sink.cancelled for run in runs for sink in run.sinks):
        return
    error = first_error(runs) or first_error(runs_in(session, pipelines))
    if error is not None:
        raise error from error.__cause__  # not from the step's error


def end_run(run: PipelineRun) -> None:
    """Stop and join a run, so that its pipeline can be started again in its session.

    Raises:
      StagingError: a thread does not return.
    """
    stop_all([run])
    left = join_last_batch(run)
    if left:
        raise StagingError(
            f"{run.pipeline}: cannot start again, because {left[0].name} still computes a batch after "
            f"{LAST_BATCH_SECS:.0f} s."
        )
    session_state_of(run.session).runs.pop(run.pipeline, None)


def join_last_batch(run: PipelineRun) -> list[ThreadState]:
    """Join the feed threads of a stopped run. Return the states of those whose last batch takes too long."""
    for state in run.join(SILENT_SECS):
        logging.warning(
            "%s: it starts again when feed thread '%s' has returned, which is %s: waiting for at most %.0f s. "
            "If the source waits for what thread '%s' does next, let it return before.",
            run.pipeline,
            state.name,
            state.doing,
            LAST_BATCH_SECS,
            threading.current_thread().name,
        )
    return run.join(LAST_BATCH_SECS - SILENT_SECS)


def all_runs(graph: Any, pipeline: Pipeline) -> list[PipelineRun]:
    """Return the runs of `pipeline` in all sessions of its graph that have not been freed."""
    return [run for run in list(state_of(graph).pipelines.runs) if run.pipeline is pipeline]


def end_stopped(pipelines: Sequence[Pipeline], session: Any) -> None:
    """Let those of `pipelines` that were started and stopped in `session` start again, each at its position.

    Raises:
      ResumeError: one of them cannot continue.
      StagingError: a thread of one does not return.
    """
    stopped = [run for run in runs_in(session, pipelines) if run.delivery.stopping]
    for run in stopped:
        if not run.begins_anew and (run.pipeline.position is None or run.pipeline.cluster is not None):
            raise ResumeError(
                f"{run.pipeline}: it was stopped in this session and cannot start again, because its input has no "
                f"position: batches that were read ahead would be lost. Start it in a new session; or stage a source "
                f"or a dataset itself, whose position is known; or run the initializer of its iterator first."
            )
    for run in stopped:
        end_run(run)


def end_earlier(pipelines: Sequence[Pipeline], session: Any) -> None:
    """End the puts of `pipelines` in earlier sessions on the server of `session`. Call it before areas are cleared.

    A server keeps areas between sessions. If the start of a session fails, MonitoredSession creates another one without
    closing it. Its feed threads still run, and a put that ends later would leave its batch in the new session's area.

    Raises:
      ClusterError: a put does not end.
    """
    if not session.sess_str:
        # A local session has areas of its own.
        return
    runs = [run for pipeline in pipelines for run in all_runs(session.graph, pipeline) if run.session is not session]
    runs = [run for run in runs if run.session.sess_str == session.sess_str and not is_closed(run.session)]
    stop_all(runs)
    end = time.perf_counter() + _END_SECS
    for run in runs:
        while run.is_putting():
            if time.perf_counter() > end:
                raise ClusterError(
                    f"{run.pipeline}: a put of an earlier session on {tf.compat.as_str(session.sess_str)} is still "
                    f"running after {_END_SECS:.0f} s. Its batch would go into this session's area. Close the earlier "
                    f"session, or restart the process."
                )
            time.sleep(0.01)


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


_runs: weakref.WeakSet[PipelineRun] = weakref.WeakSet()


@atexit.register
def _end_all() -> None:
    """End the runs that nobody has stopped. A thread that is in TensorFlow while Python ends aborts the process."""
    runs = [] if has_lost_tensorflow() else [run for run in list(_runs) if not run.delivery.stopping]
    if not runs:
        return
    began = time.perf_counter()
    # In a thread, because the server of a session may not answer.
    stopper = Background("staging:exit", functools.partial(stop_all, runs))
    try:
        stopper.start()
        stopper.join(_EXIT_SECS)
    except RuntimeError:
        # Python 3.12.1 starts no thread at the end. A local session has no server that may not answer.
        stop_all([run for run in runs if not run.session.sess_str])
    left = [state for run in runs for state in run.join(max(0.0, began + _EXIT_SOURCE_SECS - time.perf_counter()))]
    for state in left:
        if state.doing != WAITING_FOR_SOURCE:
            join_thread(state.thread, max(0.0, began + _EXIT_SECS - time.perf_counter()))
