"""`StagingHook`: the lifecycle inside a MonitoredSession."""

from __future__ import annotations

import os
import warnings
from typing import Any

from staging_tf1._tf import tf
from staging_tf1.arguments import flag, output_file, seconds
from staging_tf1.doctor.snapshot import Observer
from staging_tf1.errors import StuckThreadWarning
from staging_tf1.feed.feed import Feed, feeds_of, start_together
from staging_tf1.feed.run import FeedRun, stop_all
from staging_tf1.fork import has_lost_tensorflow, refuse_if_forked
from staging_tf1.graph.areas import areas_of
from staging_tf1.graph.placement import warn_misplaced
from staging_tf1.lifecycle.checkpoint import guard_savers
from staging_tf1.lifecycle.clock import StepClock
from staging_tf1.lifecycle.interrupt import InterruptWatcher
from staging_tf1.lifecycle.stall import Watchdog, stall_secs_or_default
from staging_tf1.lifecycle.start import own_areas
from staging_tf1.lifecycle.stats import PipelineStats, stats_of
from staging_tf1.lifecycle.steps import Steps
from staging_tf1.lifecycle.stuck import stuck_text
from staging_tf1.lifecycle.trace import Trace


class StagingHook(tf.train.SessionRunHook):  # type: ignore[misc]
    """Runs staged pipelines inside `tf.train.MonitoredTrainingSession` or any other MonitoredSession.

    The feed threads start with the session's queue runners, hook or no hook. The hook adds: areas are cleared before
    they start; lockstep pipelines are warmed up and stepped; towers may go on alone once another one has ended;
    Ctrl-C wakes a step that waits for input; at the end the threads are joined by name, within a deadline.

    Order, as `tf.train.MonitoredSession` documents it (tensorflow/python/training/monitored_session.py)::

        hook.begin()                    graph still open: adds the clearing of areas to the local init
        session created                 graph finalized, variables initialised or restored, local init, areas cleared
        queue runners started           feed threads among them
        hook.after_create_session()     lockstep warm-up (again after a recovery)
        while not should_stop():        before_run, step, after_run
        hook.end()                      threads told to stop and joined; not called after an error: then the
                                        coordinator stops the threads, and MonitoredSession joins them

    Args:
      join_secs: seconds that the feed threads are given to return, at the end.
      stall_secs: seconds after which a step that waits for input is reported in the log, with the most likely cause;
        0 reports none. 30 if None, or what the environment variable STAGING_TF1_STALL_SECS says.
      stall_raises: whether such a step raises `staging.errors.StallError`, which carries the report, as well. The
        source of a lockstep pipeline is then read in a thread, for which the step waits.
      trace_file: where a timeline of sources, puts, gets and steps is written when the session closes, for
        chrome://tracing or https://ui.perfetto.dev. It costs each run a second, small run.

    Raises:
      TypeError, ValueError: an argument of the wrong kind.
      OSError: `trace_file` cannot be written.

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
        join_secs: float = 10.0,
        stall_secs: float | None = None,
        stall_raises: bool = False,
        trace_file: str | os.PathLike[str] | None = None,
    ) -> None:
        self._join_secs = seconds("StagingHook", "join_secs", join_secs)
        self._stall_secs = stall_secs_or_default("StagingHook", stall_secs)
        self._stall_raises = flag("StagingHook", "stall_raises", stall_raises)
        # Last, because it makes the file.
        self._trace = None if trace_file is None else Trace(output_file("StagingHook", "trace_file", trace_file))
        self._observer: Observer | None = None
        self._watchdog: Watchdog | None = None
        self._graph: Any = None
        self._feeds: list[Feed] = []
        self._session: Any = None
        self._coord: Any = None
        self._steps: Steps | None = None
        self._final_stats: list[PipelineStats] | None = None
        self._watcher = InterruptWatcher(self._interrupted)

    @property
    def session(self) -> Any:
        """The `tf.Session` under the MonitoredSession; None before it is created and after the end."""
        return self._session

    @property
    def runs(self) -> list[FeedRun]:
        """The feeds' runs in the present session."""
        runs = [feed.run_in(self._session) for feed in self._feeds] if self._session is not None else []
        return [run for run in runs if run is not None]

    def error(self) -> BaseException | None:
        """The first exception of a feed thread, or None."""
        return next((run.error for run in self.runs if run.error is not None), None)

    def stats(self) -> list[PipelineStats]:
        """Figures of every pipeline so far; after the end, those of the end.

        Raises:
          ForkedError: the session is that of the parent of this process.
        """
        if self._final_stats is not None:
            return self._final_stats
        if self._session is None or self._steps is None:
            return []
        refuse_if_forked("StagingHook")
        steps = self._steps
        # The warm-up may have failed before there was a clock.
        loop_secs = self._watchdog.clock.loop_secs if self._watchdog is not None else 0.0
        return stats_of(self._feeds, self._session, steps.account, loop_secs, steps.readers)

    def drain(self) -> None:
        """Stops reading from the sources; steps take what has been read, then get `tf.errors.OutOfRangeError`.

        Raises:
          ForkedError: the session is that of the parent of this process.
        """
        refuse_if_forked("StagingHook")
        self.steps.drain()

    # The hook's own methods, in the order in which MonitoredSession calls them.

    def begin(self) -> None:
        """See base class."""
        refuse_if_forked("StagingHook")
        self._graph = tf.get_default_graph()
        self._feeds = feeds_of(self._graph)
        guard_savers(self._graph)
        # By the session's queue runners, as soon as it is created.
        start_together(self._graph, True)
        cleared = self._graph.get_collection_ref(tf.GraphKeys.TABLE_INITIALIZERS)
        if not self._graph.finalized:
            # Part of the local init: it runs after the variables have values and before the threads start.
            ops = [area.clear_op() for area in own_areas(self._graph, self._feeds)]
            cleared.extend(op for op in ops if op not in cleared)
        self._observer = Observer(self._graph, self._feeds)

    def after_create_session(self, session: Any, coord: Any) -> None:
        """See base class; called again after a recovery."""
        self._session, self._coord, self._final_stats = session, coord, None
        try:
            self._start(session, coord)
        except BaseException:
            # MonitoredSession does not clean up after a hook that fails here.
            coord.request_stop()
            self.stop()
            raise

    def _start(self, session: Any, coord: Any) -> None:
        for feed in self._feeds:
            if feed.pipeline is None or not feed.pipeline.lockstep:
                # Those that stand in QUEUE_RUNNERS run already; a second start starts nothing.
                feed.create_threads(session, coord, daemon=True, start=True)
        warn_misplaced(areas_of(self._graph), [device.name for device in session.list_devices()])
        clock = StepClock(session)
        interruptible = self._stall_raises and self._stall_secs > 0
        self._steps = Steps(session, self._feeds, clock, interruptible=interruptible)
        readers = [state for feed in self._feeds for state in self._steps.readers(feed)]
        assert self._observer is not None
        self._watchdog = Watchdog(
            session, clock, self._observer, self._feeds, self._stall_secs, self._stall_raises, readers
        )
        # After an error there is no end(), but the session is closed.
        self.clock.on_close.append(self._steps.stop)
        self._watchdog.start()
        self._steps.warm_up()
        self.clock.on_close.append(self._watcher.stop)
        self.clock.interrupted = self._watcher.owes
        if self._trace is not None:
            sinks = {lane.sink.name: lane.sink for feed in self._feeds for lane in feed.lanes}
            states = [state for run in self.runs for state in run.states]
            self._trace.record(session, self.clock, sinks.values(), states + readers)
        self._watcher.start()

    def before_run(self, run_context: Any) -> Any:
        """See base class."""
        refuse_if_forked("StagingHook")
        args = run_context.original_args
        puts, feeds = self.steps.before(self.steps.demand(args.fetches, args.feed_dict))
        return tf.train.SessionRunArgs(puts, feed_dict=feeds) if puts or feeds else None

    def after_run(self, run_context: Any, run_values: Any) -> None:
        """See base class."""
        self.steps.after()

    def end(self, session: Any) -> None:
        """See base class."""
        self.stop()

    # For the session helper.

    @property
    def steps(self) -> Steps:
        """What is done around the steps of the present session."""
        assert self._steps is not None
        return self._steps

    @property
    def clock(self) -> StepClock:
        """What times the runs of the present session."""
        assert self._watchdog is not None
        return self._watchdog.clock

    def stop(self) -> None:
        """Takes the last figures, stops the threads, joins them and names those that do not return."""
        if has_lost_tensorflow():
            # They are the parent's, and another thread of it may have held any of their locks.
            return
        self._watcher.stop()
        if self._watchdog is not None:
            self._watchdog.stop()
        if self._session is None:
            return
        runs = self.runs
        try:
            if self._steps is not None:
                self._steps.settle()
            self._final_stats = self.stats()
        except (tf.errors.OpError, RuntimeError):
            self._final_stats = []
        stop_all(runs)
        if self._steps is not None:
            self._steps.stop()
        start_together(self._graph, False)
        stopping: list[FeedRun | Steps] = [*runs, *([] if self._steps is None else [self._steps])]
        for run in runs:
            run.warn_of_leftovers()
        if self._steps is not None:
            self._steps.warn_of_leftovers()
        for each in stopping:
            for state in each.join(self._join_secs):
                warnings.warn(stuck_text(state, self._join_secs), StuckThreadWarning, stacklevel=2)
        self._session = None

    def _interrupted(self) -> None:
        stop_all(self.runs)
