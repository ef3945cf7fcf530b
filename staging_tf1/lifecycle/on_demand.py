"""`OnDemand`: the pipelines of one session that start with the first step that takes a batch, and can start again."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from typing import Any

from staging_tf1._tf import tf
from staging_tf1.errors import AutoStageError
from staging_tf1.feed.pipeline import Pipeline
from staging_tf1.feed.pipeline_run import PipelineRun, end_run, run_in, runs_in, stop_all
from staging_tf1.feed.queue_runner import runner_of

# How long a put that has been woken may take to end.
_WAKE_SECS = 0.5


class OnDemand:
    """Starts the feed threads when a run first takes a batch, and ends them before a run that changes their input.

    An Estimator and many loops initialize iterators after the queue runners have started, and initialize them again in
    each epoch.
    """

    def __init__(self, session: Any, pipelines: Sequence[Pipeline]) -> None:
        self._session = session
        self._pipelines = [pipeline for pipeline in pipelines if pipeline.on_demand]
        self._lock = threading.RLock()
        self._stopped = False
        # Called before each run that takes a batch.
        self.before_step: Callable[[], None] = lambda: None

    def before(self, starts: Sequence[Pipeline], renews: Sequence[Pipeline]) -> None:
        """Called before a run that takes from `starts` and changes the input of `renews`."""
        if not (starts or renews):
            return
        with self._lock:
            for pipeline in renews:
                if pipeline in starts:
                    raise AutoStageError(
                        f"{pipeline}: one run initializes its iterator and takes a batch of it. Run the initializer "
                        f"first, and then the step."
                    )
                self._end(pipeline)
            for pipeline in starts:
                self._start(pipeline)
        if starts:
            self.before_step()

    def _start(self, pipeline: Pipeline) -> None:
        run = run_in(self._session, pipeline)
        if run is not None or self._stopped:
            return
        if self._session.sess_str:
            raise AutoStageError(
                f"{pipeline}: the session runs on server {tf.compat.as_str(self._session.sess_str)}, where an area "
                f"outlives it. auto_stage() needs a session of this process."
            )
        runner_of(self._session.graph, pipeline).create_threads(self._session, None, daemon=True, start=True)

    def _end(self, pipeline: Pipeline) -> None:
        run = run_in(self._session, pipeline)
        if run is not None:
            end_run(run)

    def raise_cause(self, taken: Sequence[Pipeline], error: BaseException) -> None:
        """Raise what has ended a feed thread in place of `error`, a step's. The next step begins again after it."""
        if not isinstance(error, tf.errors.OutOfRangeError):
            return
        for pipeline in taken:
            with self._lock:
                run = run_in(self._session, pipeline)
                cause = None if run is None else run.error
                if cause is None:
                    continue
                self._end(pipeline)
            raise cause from cause.__cause__

    @property
    def _runs(self) -> list[PipelineRun]:
        return runs_in(self._session, self._pipelines)

    def stop(self) -> None:
        """End the threads before the session is closed. One that computes a batch meanwhile is joined after it."""
        self._stopped = True
        stop_all(self._runs)
        # TensorFlow would log a put that the close cancels.
        self.join(_WAKE_SECS)

    def join(self, secs: float) -> None:
        """Wait for the threads of a closed session."""
        for run in self._runs:
            run.join(secs)
