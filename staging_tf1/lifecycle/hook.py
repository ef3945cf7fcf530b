"""`StagingHook`: runs staged pipelines inside a MonitoredSession."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from typing import Any

from staging_tf1._tf import forget_threads, is_closed, leave_to_close, tf
from staging_tf1.arguments import flag, seconds, stall_secs_or_default
from staging_tf1.cluster.cluster import Cluster
from staging_tf1.cluster.snapshot import copy_before_saving
from staging_tf1.feed.checkpoint import LastSave, guard_savers
from staging_tf1.feed.feeding import Feeding, feeding_of, feedings_of, start_together
from staging_tf1.feed.pipeline import Pipeline, cluster_of, pipelines_of
from staging_tf1.feed.pipeline_run import PipelineRun, first_error
from staging_tf1.fork import has_lost_tensorflow, refuse_if_forked
from staging_tf1.graph.sync_tokens import sync_tokens_of
from staging_tf1.lifecycle.runtime import SessionRuntime, begin, join_all
from staging_tf1.lifecycle.start import own_areas
from staging_tf1.watch.snapshot import Observer
from staging_tf1.watch.stall import StallRule
from staging_tf1.watch.stats import PipelineStats

_GRACE_SECS = 10.0


class StagingHook(tf.train.SessionRunHook):  # type: ignore[misc]
    """Runs staged pipelines inside a `tf.train.MonitoredTrainingSession` or any other MonitoredSession.

    Feed threads start with the session's queue runners, with or without the hook. The hook adds the rest: it clears
    areas before the threads start, warms up and steps lockstep pipelines, lets the other towers finish when one has
    ended, lets Ctrl-C wake a step that waits for input, and joins the threads within a deadline.

    Order, as `tf.train.MonitoredSession` documents it (tensorflow/python/training/monitored_session.py)::

        hook.begin()                 graph still open: adds the clearing of areas to the local init
        session created              graph finalized, variables initialized or restored, local init,
                                     areas cleared
        queue runners started        feed threads among them
        hook.after_create_session()  lockstep warm-up (again after a recovery)
        while not should_stop():     steps; each `run` of the session is wrapped
        hook.end()                   threads told to stop and joined; not called after an error: then
                                     the coordinator stops the threads, and the session joins them

    Args:
      stop_grace_period_secs: seconds to wait at the end for the feed threads to return.
      stall_secs: seconds after which a step that waits for input is logged, with the most likely cause; 0 disables the
        report. None uses the environment variable STAGING_TF1_STALL_SECS, or else 30.
      stall_raises: whether such a step also raises `staging.errors.StallError`, which carries the report. A step in
        lockstep that reads its source raises it after the read.
      save_on_stop: whether Ctrl-C and SIGTERM save a checkpoint before they end the program, if the session saves any.
        The step in progress ends first. A second signal ends the program at once. Nothing is saved if that step fails
        after it has taken a batch, and no `tf.train.CheckpointSaverListener` is called. SIGTERM then raises SystemExit
        with code 143, unless the program has a handler of its own.

    Raises:
      TypeError, ValueError: an argument is invalid.

    >>> import numpy as np
    >>> with tf.Graph().as_default():
    ...     x = staged(ArraySource(np.arange(4), batch_size=2, epochs=1), lockstep=True)
    ...     with tf.train.MonitoredTrainingSession(hooks=[StagingHook()]) as sess:
    ...         while not sess.should_stop():
    ...             print(sess.run(x))
    [0 1]
    [2 3]
    """

    def __init__(
        self,
        *,
        stop_grace_period_secs: float = _GRACE_SECS,
        stall_secs: float | None = None,
        stall_raises: bool = False,
        save_on_stop: bool = False,
    ) -> None:
        caller = "StagingHook"
        self._grace_secs = seconds(caller, "stop_grace_period_secs", stop_grace_period_secs)
        secs = stall_secs_or_default("StagingHook", stall_secs)
        self._rule = StallRule(secs, flag("StagingHook", "stall_raises", stall_raises))
        self._saves_on_stop = flag(caller, "save_on_stop", save_on_stop)
        self._last_save: LastSave | None = None
        self._graph: Any = None
        self._observer: Observer | None = None
        self._pipelines: list[Pipeline] = []
        self._session: Any = None
        self._coord: Any = None
        # What runs in it; kept after the end, for the figures.
        self._feeding: Feeding | None = None
        # In a session with a pipeline in lockstep: returns a context in which a run waits for its turn.
        self.in_turn: Callable[[Any, Any], AbstractContextManager[Any]] | None = None
        # Whether the session is a MonitoredSession made by hand. Its chief restores without asking, and saves at the
        # end without waiting for the other workers.
        self._by_hand = True

    @property
    def session(self) -> Any:
        """The `tf.Session` inside the MonitoredSession; None before it is created and after the end."""
        return self._session

    def error(self) -> BaseException | None:
        """Return the first exception of a feed thread, or None."""
        return first_error(self.runs)

    def stats(self) -> list[PipelineStats]:
        """Return the figures of every pipeline so far; after the end, the final ones.

        Raises:
          ForkedError: the session belongs to the parent process.
        """
        if self._feeding is None or self._feeding.runtime is None:
            return []
        if self.runtime.final_stats is None:
            refuse_if_forked("StagingHook")
        return self.runtime.stats()

    def drain(self) -> None:
        """Stop reading from the sources. Steps take what has been read, then raise `tf.errors.OutOfRangeError`.

        Raises:
          ForkedError: the session belongs to the parent process.
        """
        refuse_if_forked("StagingHook")
        self.runtime.steps.drain()

    # Called by MonitoredSession, in this order.

    def begin(self) -> None:
        """See base class."""
        refuse_if_forked("StagingHook")
        self._graph = tf.get_default_graph()
        self._pipelines = pipelines_of(self._graph)
        guard_savers(self._graph)
        if self._saves_on_stop:
            self._last_save = LastSave.of(self._graph)
        # MonitoredSession starts all queue runners as soon as the session is created.
        start_together(self._graph, True)
        cleared = self._graph.get_collection_ref(tf.GraphKeys.TABLE_INITIALIZERS)
        if not self._graph.finalized:
            # The local init runs after the variables are initialized and before the threads start.
            ops = [area.clear_op() for area in own_areas(self._graph, self._pipelines)]
            cleared.extend(op for op in ops if op not in cleared)
        sync_tokens_of(self._graph)
        self._observer = Observer(self._graph, self._pipelines)
        cluster = cluster_of(self._pipelines)
        if cluster is not None:
            copy_before_saving(cluster, self._graph)
        if cluster is not None and self._by_hand:
            self._meet_other_workers(cluster)

    def _meet_other_workers(self, cluster: Cluster) -> None:
        """On the chief, makes the workers wait until it has initialized or restored the model. On a worker, waits.

        If a chief restarts, they would count batches of the model before, from the restored position on. And TensorFlow
        looks only every 30 seconds whether the variables are initialized: with dynamic shares, the others may train all
        batches in that time, and then wait for the worker that looks.
        """
        if cluster.is_chief:
            cluster.member.begin_run()
        else:
            cluster.member.await_run({}, cluster.start_timeout_secs)

    def after_create_session(self, session: Any, coord: Any) -> None:
        """See base class; called again after a recovery, and where a later hook was interrupted here."""
        self._close_session()
        self._session, self._coord, self._feeding = session, coord, feeding_of(session)
        try:
            self._start(self._feeding, coord)
        except BaseException:
            # MonitoredSession does not clean up after a hook that fails here.
            self._abandon()
            raise

    def _start(self, feeding: Feeding, coord: Any) -> None:
        start_together(self._graph, True)
        for pipeline in self._pipelines:
            if not pipeline.lockstep and pipeline not in feeding.runs:
                # It is not in the QUEUE_RUNNERS collection.
                feeding.start(pipeline, coord)
        assert self._observer is not None
        begin(feeding, self._observer, self._rule, waits_for_workers=self._by_hand, last_save=self._last_save)
        self.in_turn = self.runtime.steps.in_turn if self.runtime.steps.reading_states else None

    def end(self, session: Any) -> None:
        """See base class; not called after an error."""
        if self._feeding is not None and self._feeding.runtime is not None:
            self._feeding.runtime.ended_well = True
        coord = self._coord
        self.stop()
        cluster = cluster_of(self._pipelines)
        if cluster is None:
            return
        # Not when the session is closed, where MonitoredSession drops errors.
        cluster.stay()
        error = cluster.missing_error()
        if error is not None:
            # Raised when all hooks have ended, one of which may save the last checkpoint.
            coord.request_stop((type(error), error, None))

    def _close_session(self) -> None:
        """End the last session, unless it is closed. MonitoredSession closes none whose hooks failed at the start."""
        session = self._session
        if session is not None and not has_lost_tensorflow() and not is_closed(session):
            self._abandon()
            with contextlib.suppress(tf.errors.OpError):
                session.close()

    def _abandon(self) -> None:
        self._coord.request_stop()
        self._end_session()

    @property
    def runs(self) -> list[PipelineRun]:
        """The runs of the pipelines in the current session."""
        return [] if self._session is None or self._feeding is None else list(self._feeding.runs.values())

    @property
    def runtime(self) -> SessionRuntime:
        """The wrapper of the current session."""
        assert self._feeding is not None
        runtime: SessionRuntime = self._feeding.runtime
        return runtime

    def stop(self) -> None:
        """Stop the feed threads: take the final figures, join the threads, and warn of those that do not return."""
        if has_lost_tensorflow() or self._session is None:
            # After a fork, the threads belong to the parent, and their locks may be held forever.
            return
        self._end_session()
        self._let_go_of_graph()

    def _end_session(self) -> None:
        feeding = self._feeding
        assert feeding is not None
        if feeding.runtime is None:
            # The start failed.
            feeding.stop()
            # A thread that is in TensorFlow while the interpreter ends aborts the process.
            left = join_all(self.runs, self._grace_secs)
        else:
            left = feeding.runtime.end(self._grace_secs)
            sync_tokens = sync_tokens_of(self._graph)
            if sync_tokens is not None:
                feeding.runtime.ends_with_session += leave_to_close(self._coord, sync_tokens.name)
        # Otherwise MonitoredSession would wait for them as long again.
        forget_threads(self._coord, left)
        self._session = None

    def _let_go_of_graph(self) -> None:
        """Undo what `begin` has set. Not after a failed start, because MonitoredSession may try again."""
        if self._graph is not None:
            start_together(self._graph, False)


class SessionHook(StagingHook):
    """The hook of a `StagingSession`.

    Args:
      by_hand: whether the session does not meet the other workers of a cluster itself.
      **options: the arguments of `StagingHook`.
    """

    def __init__(self, *, by_hand: bool, **options: Any) -> None:
        super().__init__(**options)
        self._by_hand = by_hand

    @contextlib.contextmanager
    def creating(self) -> Iterator[None]:
        """End what has started if the session cannot be created, as when a later hook fails.

        MonitoredSession would leave the threads running.
        """
        graph = tf.get_default_graph()
        before = feedings_of(graph)
        try:
            yield
        except BaseException:
            if self._session is None:
                # A hook before this one has failed, such as the saver of checkpoints.
                for feeding in feedings_of(graph):
                    if feeding not in before and feeding.runs:
                        self._session, self._feeding = feeding.session, feeding
                        self._coord = next(iter(feeding.runs.values())).coord
            self._close_session()
            self._let_go_of_graph()
            raise
