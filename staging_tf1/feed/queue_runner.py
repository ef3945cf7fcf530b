"""`PipelineRunner`: a pipeline as a `tf.train.QueueRunner`, which starts wherever queue runners start."""

from __future__ import annotations

import threading
import warnings
from typing import Any

from staging_tf1._tf import hide_from_numeric_checks, run_unwrapped, tf
from staging_tf1.errors import NotebookWarning, UninitializedError
from staging_tf1.feed.checkpoint import guard_restores
from staging_tf1.feed.pipeline import Pipeline, add_pipeline, ops_ahead, pipelines_of
from staging_tf1.feed.pipeline_run import PipelineRun, all_runs, end_stopped, run_in
from staging_tf1.feed.prepare import Prepared, prepare
from staging_tf1.feed.renewal import see_renewals
from staging_tf1.feed.source_errors import keep_cause
from staging_tf1.fork import refuse_if_forked
from staging_tf1.graph.state import session_state_of, state_of
from staging_tf1.graph.uninitialized import uninitialized_names


class PipelineRunner(tf.train.QueueRunner):  # type: ignore[misc]
    """Starts the feed threads of one pipeline as a queue runner.

    So they start in a MonitoredSession, a Supervisor or a plain session, with or without our own helpers. The base
    class's constructor is not called, because it requires enqueue ops that need no feed.
    """

    def __init__(self, pipeline: Pipeline) -> None:
        self.pipeline = pipeline
        self._starting = threading.Lock()
        # For an exported graph. No enqueue ops, because after an import there is no source, and the put would fail.
        sink = pipeline.sinks[0]
        self._queue = sink.queue
        self._enqueue_ops: list[Any] = []
        self._close_op, self._cancel_op = sink.close, sink.cancel
        self._queue_closed_exception_types = (tf.errors.OutOfRangeError,)

    @property
    def name(self) -> str:
        """The pipeline's name."""
        return self.pipeline.name

    @property
    def exceptions_raised(self) -> list[BaseException]:
        """The first exception of each session's threads, as in `tf.train.QueueRunner`."""
        runs = all_runs(self.queue.queue_ref.graph, self.pipeline)
        return [run.error for run in runs if run.error is not None]

    def create_threads(
        self, sess: Any, coord: Any | None = None, daemon: bool = False, start: bool = False
    ) -> list[threading.Thread]:
        """Create the feed threads for `sess`, like `tf.train.QueueRunner.create_threads`.

        A pipeline that was stopped in the session continues at its position.

        Returns:
          The threads; an empty list if the session already has them.

        Raises:
          ResumeError: it was stopped, and cannot continue.
          UninitializedError: variables are uninitialized; the message lists them.
          ForkedError: the process was forked after TensorFlow sessions had run in it.
        """
        refuse_if_forked(self.pipeline)
        with self._starting:
            if coord is None or not coord.should_stop():
                end_stopped([self.pipeline], sess)
            if run_in(sess, self.pipeline) is not None:
                return []
            prepared = prepare_to_start(sess, self.pipeline)
            see_renewals(sess, self.pipeline)
            keep_cause(coord)
            run = PipelineRun(self.pipeline, prepared.starts, sess, coord, prepared.canceller)
        try:
            for thread in run.threads:
                thread.daemon = daemon
                if coord is not None:
                    coord.register_thread(thread)
                if start:
                    thread.start()
        except BaseException:
            # After a Ctrl-C here, the caller has no threads to stop.
            if coord is not None:
                coord.request_stop()
            run.stop()
            raise
        return run.threads


def register(pipeline: Pipeline) -> None:
    """Register `pipeline` with our session helpers and, unless it is in lockstep, as a queue runner."""
    graph = tf.get_default_graph()
    _warn_if_built_before(graph, pipeline)
    if not pipelines_of(graph):
        hide_from_numeric_checks(graph, lambda: set().union(*map(ops_ahead, pipelines_of(graph))))
    add_pipeline(graph, pipeline)
    guard_restores()
    runner = state_of(graph).pipelines.runners[pipeline] = PipelineRunner(pipeline)
    if not pipeline.lockstep:
        graph.add_to_collection(tf.GraphKeys.QUEUE_RUNNERS, runner)


def _warn_if_built_before(graph: Any, pipeline: Pipeline) -> None:
    """Warn if the cell of a notebook that builds `pipeline` has built another one in an earlier run."""
    run = pipeline.plan.made_at.run
    runs = [(built, built.plan.made_at.run) for built in pipelines_of(graph)]
    if run is None or any(earlier == run for _, earlier in runs):  # one warning for each run
        return
    before = [runner for runner, earlier in runs if earlier is not None and earlier.cell == run.cell]
    if before:
        names = ", ".join(map(str, before))
        warnings.warn_explicit(
            f"{pipeline}: its cell has built {names} in this graph before. Sessions still start what was built first: "
            "it reads its source, and nothing takes from it. Call tf.reset_default_graph() at the start of the cell, "
            "or build within `with tf.Graph().as_default():`.",
            NotebookWarning,
            pipeline.plan.made_at.filename,
            pipeline.plan.made_at.lineno,
        )


def runner_of(graph: Any, pipeline: Pipeline) -> PipelineRunner:
    """Return the runner that starts the threads of a pipeline of `graph`."""
    return state_of(graph).pipelines.runners[pipeline]


def start_together(graph: Any, together: bool) -> None:
    """Set whether all pipelines of `graph` start together, as in a MonitoredSession."""
    state_of(graph).pipelines.start_together = together


def are_started_together(graph: Any) -> bool:
    """Whether a `StagingHook` starts the pipelines of `graph`."""
    return state_of(graph).pipelines.start_together


def prepare_to_start(session: Any, pipeline: Pipeline) -> Prepared:
    """Prepare `pipeline` for one start in `session`.

    Raises:
      UninitializedError: variables are uninitialized; the message lists them.
    """
    prepared = session_state_of(session).prepared
    if pipeline not in prepared:
        check_initialized(session, pipeline)
        prepare(pipelines_of(session.graph) if are_started_together(session.graph) else [pipeline], session)
    return prepared.pop(pipeline)


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
