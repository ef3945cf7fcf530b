"""A pipeline as a `tf.train.QueueRunner`: it starts wherever the classic runners start."""

from __future__ import annotations

import threading
import weakref
from typing import Any

from staging_tf1._tf import run_unwrapped, tf
from staging_tf1.errors import UninitializedError
from staging_tf1.feed.pipeline import Pipeline, add_pipeline, pipelines_of
from staging_tf1.feed.pipeline_run import PipelineRun, run_in
from staging_tf1.feed.prepare import Prepared, is_prepared, prepare, take_prepared
from staging_tf1.fork import refuse_if_forked
from staging_tf1.graph.dependencies import ancestors
from staging_tf1.graph.probes import uninitialized_names
from staging_tf1.graph.sink import queue_key

# Attributes of the graph.
_RUNNERS = "_staging_tf1_runners"
_TOGETHER = "_staging_tf1_together"


class PipelineRunner(tf.train.QueueRunner):  # type: ignore[misc]
    """Starts the feed threads of one pipeline, as `tf.train.start_queue_runners` starts those of a queue.

    It starts in a MonitoredSession, a Supervisor or a plain session, with or without our own helpers. The base class's
    constructor is not called: it requires enqueue ops that need no feed.
    """

    def __init__(self, pipeline: Pipeline) -> None:
        self.pipeline = pipeline
        # Weak: a run belongs to its session, and must go with it.
        self._all_runs: weakref.WeakSet[PipelineRun] = weakref.WeakSet()
        self._starting = threading.Lock()
        # What an exported graph says of us. No enqueue ops: after an import the source is gone, and a runner that ran
        # the put without it would only fail.
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
        """The first exception of each session's threads, as `tf.train.QueueRunner` has it."""
        return [run.error for run in self._all_runs if run.error is not None]

    def create_threads(
        self, sess: Any, coord: Any | None = None, daemon: bool = False, start: bool = False
    ) -> list[threading.Thread]:
        """Makes the feed threads for `sess`, as `tf.train.QueueRunner.create_threads` does.

        Returns an empty list for a session that has its threads already.

        Raises:
          UninitializedError: variables are uninitialized; the message lists them.
          ForkedError: the process was forked after TensorFlow sessions had run in it.
        """
        refuse_if_forked(self.pipeline)
        with self._starting:
            if run_in(sess, self.pipeline) is not None:
                return []
            prepared = prepare_to_start(sess, self.pipeline)
            run = PipelineRun(self.pipeline, prepared.starts, sess, coord, prepared.canceller)
            self._all_runs.add(run)
        try:
            for thread in run.threads:
                thread.daemon = daemon
                if coord is not None:
                    coord.register_thread(thread)
                if start:
                    thread.start()
        except BaseException:
            # A Ctrl-C: the caller does not know yet that there are threads to stop.
            if coord is not None:
                coord.request_stop()
            run.stop()
            raise
        return run.threads


def register(pipeline: Pipeline) -> None:
    """Makes `pipeline` known to the session helpers of its graph and, unless it is in lockstep, to TensorFlow's."""
    graph = tf.get_default_graph()
    add_pipeline(graph, pipeline)
    if not hasattr(graph, _RUNNERS):
        setattr(graph, _RUNNERS, {})
    runner = getattr(graph, _RUNNERS)[pipeline] = PipelineRunner(pipeline)
    if not pipeline.lockstep:
        graph.add_to_collection(tf.GraphKeys.QUEUE_RUNNERS, runner)


def runner_of(graph: Any, pipeline: Pipeline) -> PipelineRunner:
    """What starts the threads of a pipeline of `graph`."""
    runner: PipelineRunner = getattr(graph, _RUNNERS)[pipeline]
    return runner


def is_chained(put: Any) -> bool:
    """Whether the values of `put` come from another pipeline of this graph."""
    queues = {queue_key(sink.queue) for each in pipelines_of(tf.get_default_graph()) for sink in each.sinks}
    return bool(queues) and any(op.name in queues for op in ancestors([put]))


def start_together(graph: Any, together: bool) -> None:
    """Says whether all pipelines of `graph` start as soon as one does, as within a MonitoredSession."""
    setattr(graph, _TOGETHER, together)


def prepare_to_start(session: Any, pipeline: Pipeline) -> Prepared:
    """Makes the input and the sinks of `pipeline` ready in `session`, for one start.

    Raises:
      UninitializedError: variables are uninitialized; the message lists them.
    """
    if not is_prepared(pipeline, session):
        check_initialized(session, pipeline)
        together = getattr(session.graph, _TOGETHER, False)
        prepare(pipelines_of(session.graph) if together else [pipeline], session)
    return take_prepared(pipeline, session)


def check_initialized(session: Any, what: object) -> None:
    """Raises UninitializedError if a variable of the session's graph is uninitialized."""
    names = uninitialized_names(session.graph)
    if names is None:
        return
    # A position gets its value when the feeding begins, and is not the user's to initialize.
    own = {variable.op.name for each in pipelines_of(session.graph) for variable in each.position_variables}
    missing = [name.decode() for name in run_unwrapped(session, names) if name.decode() not in own]
    if missing:
        one = len(missing) == 1
        raise UninitializedError(
            f"{what}: cannot start the feed threads: {len(missing)} variable{'' if one else 's'} "
            f"{'is' if one else 'are'} uninitialized: {', '.join(missing)}. Run tf.global_variables_initializer() and "
            f"tf.local_variables_initializer() first, or use StagingSession, which keeps this order."
        )
