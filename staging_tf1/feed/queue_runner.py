"""`PipelineRunner`: a pipeline as a `tf.train.QueueRunner`, which starts wherever queue runners start."""

from __future__ import annotations

import threading
import warnings
from typing import Any

from staging_tf1._tf import hide_from_numeric_checks, tf
from staging_tf1.errors import NotebookWarning
from staging_tf1.feed.checkpoint import guard_restores
from staging_tf1.feed.feeding import feeding_of, feedings_of
from staging_tf1.feed.pipeline import Pipeline, add_pipeline, ops_ahead, pipelines_of


class PipelineRunner(tf.train.QueueRunner):  # type: ignore[misc]
    """Starts the feed threads of one pipeline as a queue runner.

    So they start in a MonitoredSession, a Supervisor or a plain session, with or without our own helpers. The base
    class's constructor is not called, because it requires enqueue ops that need no feed.
    """

    def __init__(self, pipeline: Pipeline) -> None:
        self.pipeline = pipeline
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
        runs = [feeding.runs.get(self.pipeline) for feeding in feedings_of(self.queue.queue_ref.graph)]
        return [run.error for run in runs if run is not None and run.error is not None]

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
        return feeding_of(sess).start(self.pipeline, coord, daemon=daemon, starts_threads=start)


def register(pipeline: Pipeline) -> None:
    """Register `pipeline` with our session helpers and, unless it is in lockstep, as a queue runner."""
    graph = tf.get_default_graph()
    _warn_if_built_before(graph, pipeline)
    if not pipelines_of(graph):
        hide_from_numeric_checks(graph, lambda: set().union(*map(ops_ahead, pipelines_of(graph))))
    add_pipeline(graph, pipeline)
    guard_restores()
    if not pipeline.lockstep:
        graph.add_to_collection(tf.GraphKeys.QUEUE_RUNNERS, PipelineRunner(pipeline))


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
