"""`Feeding`: what runs in one session, from the first start of a pipeline until the session is gone."""

from __future__ import annotations

import atexit
import threading
import time
import weakref
from collections.abc import Iterable, Sequence
from functools import cached_property, partial
from typing import Any, NamedTuple

from staging_tf1._tf import deterministic_ops, is_closed, run_unwrapped, tf
from staging_tf1.background import Background
from staging_tf1.errors import BuildError, ClusterError, ResumeError, UninitializedError
from staging_tf1.feed.accounts import Accounts, read_counts
from staging_tf1.feed.chain import Chain, Run
from staging_tf1.feed.checkpoint import warn_unsaved
from staging_tf1.feed.compiled_runs import compile_runs
from staging_tf1.feed.in_cluster import starts_in_cluster, supplied
from staging_tf1.feed.pipeline import Pipeline, Producer, pipelines_of
from staging_tf1.feed.pipeline_run import PipelineRun, first_error, stop_all
from staging_tf1.feed.renewal import Renewals
from staging_tf1.feed.resume import Start, fast_forward, resume_points, say_where_it_begins
from staging_tf1.feed.sink_run import Canceller
from staging_tf1.feed.source_errors import keep_cause, naming_unfed
from staging_tf1.feed.threads import WAITING_FOR_SOURCE
from staging_tf1.fork import has_lost_tensorflow, refuse_if_forked
from staging_tf1.garbage import join_thread
from staging_tf1.graph.state import attach, feeding_in, state_of
from staging_tf1.graph.uninitialized import uninitialized_names
from staging_tf1.sources import Source
from staging_tf1.sources.spans import end_of, next_kept

# How long the puts of an earlier session may take to end.
_END_SECS = 10.0
# How long the program may wait at its end for sessions that nobody has closed; and for sources, which may never return.
_EXIT_SECS = 20.0
_EXIT_SOURCE_SECS = 2.0


class Prepared(NamedTuple):
    """What a pipeline needs to start."""

    # Each producer, with the number of its first batch.
    starts: list[tuple[Producer, int]]
    # Shared by all pipelines that were prepared together.
    canceller: Canceller


class Feeding:
    """The runs of one session's pipelines, what the session's own runs go through, and what its steps have taken.

    The first start of a pipeline makes it: `start()`, a hook, or a queue runner without either.

    Attributes:
      runs: the pipelines that run, each with its run.
      started: the pipelines that have been started before.
      renewed: those of them whose position a run has set since: they begin there as at a first start.
      accounts: counts the batches of the steps.
      continues_run: on the chief of a cluster, whether the session continues a run; None if its creator does not know.
      is_watched: whether its steps are seen (`lifecycle/steps.py`).
      runtime: the `SessionRuntime`, which watches and ends the session; None where only queue runners have started the
        threads.
    """

    def __init__(self, session: Any) -> None:
        self.session, self.graph = session, session.graph
        self.runs: dict[Pipeline, PipelineRun] = {}
        self.started: set[Pipeline] = set()
        self.renewed: set[Pipeline] = set()
        self.accounts = Accounts(session)
        self.continues_run: bool | None = None
        self.is_watched = False
        self.runtime: Any = None
        # The pipelines that are prepared but not started.
        self._prepared: dict[Pipeline, Prepared] = {}
        # Held while pipelines are prepared and started.
        self._lock = threading.RLock()

    @cached_property
    def chain(self) -> Chain:
        chain = Chain(self.session)
        compile_runs(self.session)
        return chain

    @cached_property
    def renewals(self) -> Renewals:
        return Renewals(self)

    @property
    def going_on(self) -> set[Pipeline]:
        """The pipelines that, if they start now, continue their own positions."""
        return self.started - self.renewed

    def runs_of(self, pipelines: Iterable[Pipeline]) -> list[PipelineRun]:
        return [run for pipeline in pipelines if (run := self.runs.get(pipeline)) is not None]

    # Starting.

    def prepare(self, pipelines: Sequence[Pipeline]) -> None:
        """Prepare those of `pipelines` that are neither running nor prepared. All must be started next.

        TensorFlow processes the whole graph for each new set of ops that a session runs. If each pipeline ran its own
        ops at the start, a graph with twice as many pipelines would take four times as long.
        """
        with self._lock:
            new = [each for each in pipelines if each not in self.runs and each not in self._prepared]
            if not new:
                return
            _check_clock(new)
            warn_unsaved(new, self.graph)
            self._end_earlier_sessions(new)
            for pipeline in new:
                if pipeline.plan.resume != "restart":
                    say_where_it_begins(pipeline, self.session)
            starts = self._starts(new)
            self._initialize(starts)
            self._make_room(new)
            self.started |= {*new}
            self.renewed -= {*new}
            canceller = Canceller(self.session, [sink for each in new if not each.lockstep for sink in each.sinks])
            self._prepared |= {pipeline: Prepared(begins, canceller) for pipeline, begins in starts.items()}

    def _starts(self, pipelines: Sequence[Pipeline]) -> dict[Pipeline, list[Start]]:
        """Return where each pipeline begins: in a cluster, as the chief says."""
        alone = [pipeline for pipeline in pipelines if pipeline.cluster is None]
        found = dict(zip(alone, resume_points(alone, self.session, self.going_on), strict=True))
        shared = [pipeline for pipeline in pipelines if pipeline.cluster is not None]
        if shared:
            found |= dict(zip(shared, starts_in_cluster(self, shared), strict=True))
        starts = {pipeline: supplied(pipeline, found[pipeline], self.session) for pipeline in pipelines}
        for pipeline in self.going_on.intersection(starts):
            _check_not_at_end(pipeline, starts[pipeline])
        return starts

    def _initialize(self, starts: dict[Pipeline, list[Start]]) -> None:
        """Initialize the iterators of datasets, and drop what earlier runs consumed where nothing else finds it."""
        inits = [pipeline.init for pipeline in starts if pipeline.init is not None]
        with naming_unfed(list(starts)):
            if inits:
                run_unwrapped(self.session, inits)
            for pipeline, begins in starts.items():
                fast_forward(pipeline, begins, self.session)

    def _make_room(self, pipelines: Sequence[Pipeline]) -> None:
        again = [sink for pipeline in pipelines if pipeline in self.started for sink in pipeline.sinks]
        if again:
            # Their counts go on, but their readers begin anew.
            counts = read_counts(again, self.session)
            self.accounts.taken_before |= {sink: count.taken for sink, count in counts.items()}
            run_unwrapped(self.session, [sink.renew for sink in again])
        sinks = [sink for pipeline in pipelines for sink in pipeline.sinks]
        run_unwrapped(self.session, [sink.fill if sink in again else sink.reset for sink in sinks])

    def take_prepared(self, pipeline: Pipeline) -> Prepared:
        """Return what `pipeline` needs for one start.

        Raises:
          UninitializedError: variables are uninitialized; the message lists them.
        """
        if pipeline not in self._prepared:
            check_initialized(self.session, pipeline)
            together = state_of(self.graph).start_together
            self.prepare(pipelines_of(self.graph) if together else [pipeline])
        return self._prepared.pop(pipeline)

    def forget_prepared(self, pipelines: Iterable[Pipeline]) -> None:
        """Let `pipelines` be prepared again before they start: their positions have been set since."""
        for pipeline in pipelines:
            self._prepared.pop(pipeline, None)

    def start(
        self, pipeline: Pipeline, coord: Any | None, *, daemon: bool = True, starts_threads: bool = True
    ) -> list[threading.Thread]:
        """Start the threads of `pipeline`, unless they run. Where they were stopped, it continues at its position.

        Args:
          pipeline: the pipeline; not in lockstep.
          coord: a `tf.train.Coordinator` that stops the threads, or None.
          daemon: whether the process may exit while they run.
          starts_threads: whether to start them, or only make them.

        Returns:
          The threads; an empty list if they run.

        Raises:
          ResumeError: it was stopped, and cannot continue.
          UninitializedError: variables are uninitialized; the message lists them.
          ForkedError: the process was forked after TensorFlow sessions had run in it.
        """
        refuse_if_forked(pipeline)
        with self._lock:
            if coord is None or not coord.should_stop():
                self.end_stopped([pipeline])
            if pipeline in self.runs:
                return []
            starts, canceller = self.take_prepared(pipeline)
            self._see_runs(pipeline)
            keep_cause(coord)
            run = self.runs[pipeline] = PipelineRun(pipeline, starts, self.session, coord, canceller)
            self.accounts.read_by(pipeline, run.readers)
        try:
            for thread in run.threads:
                thread.daemon = daemon
                if coord is not None:
                    coord.register_thread(thread)
                if starts_threads:
                    thread.start()
        except BaseException:
            # After a Ctrl-C here, the caller has no threads to stop.
            if coord is not None:
                coord.request_stop()
            run.stop()
            raise
        return run.threads

    def _see_runs(self, pipeline: Pipeline) -> None:
        """See renewals, and raise the errors of sources, from the start of `pipeline` on. `Steps` sees the rest."""
        if not self.is_watched and not self.chain.knows(pipeline):
            others = [handler for handler in self.chain.handlers if handler is not self.renewals]
            self.chain.install([self.renewals, *others])
            if pipeline.cluster is None:
                self.chain.raise_cause = self._raise_cause

    def _raise_cause(self, run: Run, error: BaseException) -> None:
        if isinstance(error, tf.errors.OutOfRangeError):
            self.raise_source_error(run.plan.pipelines)

    def raise_source_error(self, taken: Iterable[Pipeline]) -> None:
        """Raise the error of a feed thread in place of the end of the data that a run has met.

        Returns if what the run takes has ended without one.

        Args:
          taken: the pipelines that the run takes from.
        """
        runs = self.runs_of(taken)
        if runs and not any(sink.cancelled for run in runs for sink in run.sinks):
            return
        # An error of one pipeline stops the others.
        error = first_error(runs) or first_error(self.runs.values())
        if error is not None:
            raise error from error.__cause__  # not from the step's error

    # Stopping.

    def stop(self) -> None:
        """Stop all runs. What is staged can still be taken. Joins no threads."""
        stop_all(list(self.runs.values()))

    def end_stopped(self, pipelines: Sequence[Pipeline]) -> None:
        """Let those of `pipelines` that were started and stopped start again, each at its position.

        Raises:
          ResumeError: one of them cannot continue.
          StagingError: a thread of one does not return.
        """
        stopped = [run for run in self.runs_of(pipelines) if run.delivery.stopping]
        for run in stopped:
            if not run.begins_anew and (run.pipeline.position is None or run.pipeline.cluster is not None):
                raise ResumeError(
                    f"{run.pipeline}: it was stopped in this session and cannot start again, because its input has no "
                    f"position: batches that were read ahead would be lost. Start it in a new session; or stage a "
                    f"source or a dataset itself, whose position is known; or run the initializer of its iterator "
                    f"first."
                )
        for run in stopped:
            self.end_run(run)

    def end_run(self, run: PipelineRun) -> None:
        """Stop and join a run, so that its pipeline can be started again.

        Raises:
          StagingError: a thread does not return.
        """
        run.stop()
        run.join_last_batch()
        self.runs.pop(run.pipeline, None)

    def _end_earlier_sessions(self, pipelines: Sequence[Pipeline]) -> None:
        """End the puts of `pipelines` in earlier sessions on the same server. Call it before areas are cleared.

        A server keeps areas between sessions. If the start of a session fails, MonitoredSession creates another one
        without closing it. Its feed threads still run, and a put that ends later would leave its batch in the new
        session's area.

        Raises:
          ClusterError: a put does not end.
        """
        server = self.session.sess_str
        if not server:
            # A local session has areas of its own.
            return
        others = [each for each in feedings_of(self.graph) if each is not self and each.session.sess_str == server]
        runs = [run for other in others if not is_closed(other.session) for run in other.runs_of(pipelines)]
        stop_all(runs)
        end = time.perf_counter() + _END_SECS
        for run in runs:
            while run.is_putting():
                if time.perf_counter() > end:
                    raise ClusterError(
                        f"{run.pipeline}: a put of an earlier session on {tf.compat.as_str(server)} is still running "
                        f"after {_END_SECS:.0f} s. Its batch would go into this session's area. Close the earlier "
                        f"session, or restart the process."
                    )
                time.sleep(0.01)


_feedings: weakref.WeakSet[Feeding] = weakref.WeakSet()


def feeding_of(session: Any) -> Feeding:
    """Return what runs in `session`; the first call makes it."""
    feeding = feeding_in(session) or attach(session, Feeding(session))
    _feedings.add(feeding)
    return feeding


def feedings_of(graph: Any) -> list[Feeding]:
    return [feeding for feeding in list(_feedings) if feeding.graph is graph]


def start_together(graph: Any, together: bool) -> None:
    """Set whether the pipelines of `graph` are prepared together, as where a hook starts all of them."""
    state_of(graph).start_together = together


def check_initialized(session: Any, caller: object) -> None:
    """Raise UninitializedError if a variable of the session's graph is uninitialized."""
    names = uninitialized_names(session.graph)
    if names is None:
        return
    # The start initializes the positions, not the user.
    own = {variable.op.name for pipeline in pipelines_of(session.graph) for variable in pipeline.position_variables}
    missing = [name.decode() for name in run_unwrapped(session, names) if name.decode() not in own]
    if missing:
        single = len(missing) == 1
        raise UninitializedError(
            f"{caller}: cannot start the feed threads: {len(missing)} variable{'' if single else 's'} "
            f"{'is' if single else 'are'} uninitialized: {', '.join(missing)}. Run tf.global_variables_initializer() "
            f"and tf.local_variables_initializer() first, or use StagingSession, which keeps this order."
        )


def _check_not_at_end(pipeline: Pipeline, starts: Sequence[Start]) -> None:
    """Raise ResumeError if a pipeline starts again in its session, and has no batch left."""
    sources = [(each.source, each.plan, first) for each, first in starts if isinstance(each.source, Source)]
    ends = [end_of(source, plan.limit) for source, plan, _ in sources]
    left = [next_kept(source, plan.skip, first, end) for (source, plan, first), end in zip(sources, ends, strict=True)]
    if left and all(number is None for number in left):
        raise ResumeError(
            f"{pipeline}: cannot start again, because its steps have consumed all its {ends[0]} batches. For "
            f"several passes in one session, give the source epochs=None, and run source.batches_per_epoch steps for "
            f"each pass."
        )


def _check_clock(pipelines: Sequence[Pipeline]) -> None:
    """Raise BuildError if steps would read the clock, but deterministic ops have been enabled since."""
    timed = [pipeline for pipeline in pipelines if any(sink.stats.reads_clock for sink in pipeline.sinks)]
    if timed and deterministic_ops():
        raise BuildError(
            f"{timed[0]} was built before deterministic ops were enabled: its steps read the clock, which TensorFlow "
            f"then refuses, and other ops of the graph are not the deterministic ones. Call "
            f"tf.config.experimental.enable_op_determinism() before you build the graph, or set TF_DETERMINISTIC_OPS=1 "
            f"before the program starts."
        )


@atexit.register
def _end_all() -> None:
    """End the runs that nobody has stopped. A thread that is in TensorFlow while Python ends aborts the process."""
    if has_lost_tensorflow():
        return
    every = [run for feeding in list(_feedings) for run in feeding.runs.values()]
    runs = [run for run in every if not run.delivery.stopping]
    if not runs:
        return
    began = time.perf_counter()
    # In a thread, because the server of a session may not answer.
    stopper = Background("staging:exit", partial(stop_all, runs))
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
