"""`SessionRuntime`: what the package starts and ends with one session, and in which order."""

from __future__ import annotations

import sys
import threading
import time
import weakref
from collections.abc import Callable, Sequence
from typing import Any

from absl import logging

from staging_tf1._tf import tf
from staging_tf1.background import Background
from staging_tf1.cluster.layout import Layout
from staging_tf1.cluster.reach import is_listening, unreachable
from staging_tf1.errors import StuckThreadWarning, warn
from staging_tf1.feed.checkpoint import LastSave
from staging_tf1.feed.feeding import Feeding, start_together
from staging_tf1.feed.pipeline import cluster_of, pipelines_of, placed_in
from staging_tf1.feed.pipeline_run import PipelineRun
from staging_tf1.feed.threads import ThreadState
from staging_tf1.fork import disarm_in_child, has_lost_tensorflow
from staging_tf1.garbage import join_thread
from staging_tf1.graph.placement import warn_misplaced
from staging_tf1.lifecycle.steps import Steps
from staging_tf1.signals import InterruptWatcher, ending_at_once, in_main_thread
from staging_tf1.watch.ending import RunEnder
from staging_tf1.watch.snapshot import Observer
from staging_tf1.watch.stall import StallRule, Watchdog
from staging_tf1.watch.stats import PipelineStats, stats_of
from staging_tf1.watch.thread_location import stuck_text
from staging_tf1.watch.views import Pending

# What makes a MonitoredSession begin again in a new session.
_PREEMPTIONS = (tf.errors.AbortedError, tf.errors.UnavailableError)
# How long a run may take to notice that its session was closed.
_CANCEL_SECS = 5.0


class SessionRuntime:
    """Lets the runs of one session go through its chain, and wraps its `close`, until it is closed.

    A MonitoredSession tells its hooks neither that a step failed nor that an error ends the session, and hooks do not
    see the runs of a plain session. The package's own runs are not steps and bypass the chain (`_tf.run_unwrapped`).

    Each run goes through the handlers of `Steps`, and the end goes through the same list.

    The end, in `end`::

        watchdog            stopped, and the watcher if no signal saves
        figures             taken, including the batches of the last failed step
        feed threads        told to stop
        leftovers           warned of
        handlers            closed
        threads             joined, within a deadline; a warning names those still running

    The session's `close`, which comes without an `end` after an error or in a plain session::

        watchdog, watcher, handlers, as above
        a checkpoint        written, if a signal has ended the loop between two steps, or a hook that was saving
        the session         closed
        other workers       told that this one has finished, if an `end` came before

    Args:
      feeding: what runs in a session, started.
      observer: made while the graph was open.
      rule: when a step counts as stalled, and what happens then.
      waits_for_workers: whether, on the chief of a cluster, the step that finds the end of the data waits for the other
        workers. A StagingSession waits later.
      last_save: saves when a signal ends the loop; None if nothing does.
      plain: whether `start()` has begun it. Then nothing but a run ends the feeding after a Ctrl-C, because the program
        may go on after it.

    Attributes:
      steps: the steps of the session.
      ended_well: whether the loop ended without an error.
      final_stats: the figures at the end; None before it.
      ends_with_session: threads that are joined after the session has been closed, and not by the coordinator: in
        synchronous training, the chief's thread that applies the gradients waits for more of them until then.
    """

    def __init__(
        self,
        feeding: Feeding,
        observer: Observer,
        rule: StallRule,
        *,
        waits_for_workers: bool = False,
        last_save: LastSave | None = None,
        plain: bool = False,
    ) -> None:
        session = feeding.session
        self.session, self.feeding, self._pipelines = session, feeding, pipelines_of(feeding.graph)
        self._cluster = cluster_of(self._pipelines)
        self.ended_well = False
        self.ends_with_session: list[threading.Thread] = []
        self.final_stats: list[PipelineStats] | None = None
        self._close_before: Callable[[], None] = session.close
        self._last_save = last_save
        self._plain = plain
        self._watcher = self._make_watcher()
        self.steps = Steps(feeding, self._pipelines, self._watcher, waits_for_workers=waits_for_workers)
        # Where the start of a session fails, MonitoredSession creates the next one before this one is closed.
        self._shared_inputs = [] if self._cluster is None else self._cluster.member.shared_inputs
        self._watchdog = self._make_watchdog(observer, rule)
        self._ender = RunEnder(session, self.steps.timed.pending, lambda: self._watchdog, feeding.stop)
        session.close = self._close
        disarm_in_child(session)

    def start(self) -> None:
        self._watchdog.start()
        self.steps.warm_up()

    def _make_watchdog(self, observer: Observer, rule: StallRule) -> Watchdog:
        timed, reading = self.steps.timed, self.steps.reading_states
        return Watchdog(self.session, observer, timed.pending, reading, rule, self._end_the_wait)

    def watch_anew(self, observer: Observer, rule: StallRule) -> None:
        self._watchdog.stop()
        self.steps.timed.stall_report = None
        self._watchdog = self._make_watchdog(observer, rule)
        self._watchdog.start()

    def watch_signals(self) -> None:
        """Let Ctrl-C end a step that waits, and in a MonitoredSession the feeding."""
        self._watcher.start()
        if self._last_save is not None and not in_main_thread():
            logging.warning(
                "Ctrl-C and SIGTERM save no checkpoint (save_on_stop=True): this session was created in thread '%s', "
                "and Python handles signals in the main thread only. Create the session in the main thread.",
                threading.current_thread().name,
            )

    def _make_watcher(self) -> InterruptWatcher:
        # Weak, because a plain session that nobody closes is freed when the last reference to it is gone.
        watcher = InterruptWatcher(
            _weakly(self.interrupted),
            catches_sigterm=self._last_save is not None,
            interrupted_run=_weakly(self.interrupted_run) if self._plain else None,
        )
        weakref.finalize(self, watcher.stop).atexit = False
        return watcher

    def interrupted(self) -> None:
        if not self._plain:
            self.feeding.stop()
        self._ender.arrived(self._watcher.number)

    def interrupted_run(self) -> Pending | None:
        """Return the run of this session that the main thread is in."""
        return self._ender.run_of_main_thread()

    def stats(self) -> list[PipelineStats]:
        """Return the figures of every pipeline so far; after the end, the final ones, or none if a server had them."""
        if self.final_stats is not None:
            return self.final_stats
        return stats_of(
            self._pipelines,
            self.session,
            self.steps.timed.loop_secs,
            self.steps.states_of,
            self.steps.timed.waiting.shares,
        )

    def _end_the_wait(self, report: str) -> None:
        """Called by the watchdog before it wakes the step."""
        self.steps.timed.stall_report = report
        # It may stand still again.
        self.steps.drain_lockstep()
        self.feeding.stop()

    def stop_watching(self) -> None:
        """Stop reacting to stalls and to runs that a signal has met. May be called twice."""
        self._watchdog.stop()
        self._ender.stop()

    def _last_stats(self) -> list[PipelineStats]:
        try:
            self.feeding.accounts.settle()
            return self.stats()
        except (tf.errors.OpError, RuntimeError):
            # The session is gone.
            return []

    def end(self, join_secs: float) -> list[threading.Thread]:
        """Take the final figures, stop the feed threads and join them. Return the threads that are left behind."""
        self.stop_watching()
        if self._last_save is None:
            # Otherwise a signal may still interrupt a hook that saves at the end, after ours.
            self._watcher.stop()
        self.final_stats = self._last_stats()
        self.feeding.stop()
        runs = list(self.feeding.runs.values())
        for run in runs:
            run.delivery.warn_of_leftovers()
        self.steps.chain.close_handlers()
        return join_all(runs, join_secs)

    def _close(self) -> None:
        if has_lost_tensorflow():
            # The session, and the files that closing it writes, belong to the parent.
            return
        self.session.close = self._close_before
        if not (self._plain or isinstance(sys.exc_info()[1], _PREEMPTIONS)):
            # After an error, MonitoredSession calls no end() of a hook. After one of these, it creates a new session.
            start_together(self.feeding.graph, False)
        self.stop_watching()
        self._watcher.stop()
        if self.final_stats is None:
            # After an error, MonitoredSession closes the session and tells no hook. A server may not answer any more,
            # nor a session in which another thread's run is stuck.
            self.final_stats = [] if self.session.sess_str or self.steps.timed.pending else self._last_stats()
        self.steps.chain.close()
        try:
            self._save_if_interrupted()
        finally:
            self._end_session()

    def _save_if_interrupted(self) -> None:
        if self._last_save is None or not self._watcher.has_interrupted:
            return
        if self.feeding.accounts.last_is_torn:
            logging.warning("Nothing was saved at the stop: the last step has failed after it had taken a batch.")
            return
        try:
            with ending_at_once():
                self._last_save.save(self.session)
        except Exception as error:
            # What has ended the loop is raised.
            logging.error("The checkpoint at the stop could not be saved: %s: %s", type(error).__name__, error)

    def _end_session(self) -> None:
        if self.session.sess_str:
            layout = None if self._cluster is None else self._cluster.layout
            _close_within(_CANCEL_SECS, self._close_before, layout)
        else:
            self._close_before()
        for thread in self.ends_with_session:
            join_thread(thread, _CANCEL_SECS)
        # After the last step, which consumes what it has been given.
        for shared_input in self._shared_inputs:
            shared_input.give_back()
        if self.ended_well and self._cluster is not None:
            # After the hooks of the session: the parameter servers return when all workers have finished.
            self._cluster.finish()


def begin(feeding: Feeding, observer: Observer, rule: StallRule, **options: Any) -> None:
    """Watch what has been started in a session, and warm up its pipelines in lockstep.

    Args:
      feeding: what runs in the session.
      observer: made while the graph was open.
      rule: when a step counts as stalled. That of a later start in the session replaces it.
      **options: as of `SessionRuntime`.
    """
    warn_misplaced(placed_in(feeding.graph), [device.name for device in feeding.session.list_devices()])
    if feeding.runtime is not None:
        feeding.runtime.watch_anew(observer, rule)
        return
    feeding.runtime = SessionRuntime(feeding, observer, rule, **options)
    feeding.runtime.start()
    feeding.runtime.watch_signals()


def _weakly(method: Callable[[], Any]) -> Callable[[], Any]:
    """Return a function that calls a method as long as its object is there, and does not hold that."""
    found = weakref.WeakMethod(method)
    return lambda: None if (bound := found()) is None else bound()


# After this time, it is said what the end waits for.
_SILENT_SECS = 1.0


def join_all(runs: Sequence[PipelineRun], join_secs: float) -> list[threading.Thread]:
    """Join the feed threads, and warn of those that do not return in time.

    Returns:
      The threads that are left behind.
    """
    began = time.perf_counter()

    def left_after(secs: float) -> list[ThreadState]:
        return [state for run in runs for state in run.join(max(0.0, began + secs - time.perf_counter()))]

    if join_secs > _SILENT_SECS:
        for state in left_after(_SILENT_SECS):
            logging.warning("Waiting for a source, for at most %g s: %s", join_secs, stuck_text(state, _SILENT_SECS))
    left = left_after(join_secs)
    for state in left:
        warn(
            f"{stuck_text(state, join_secs)} It keeps running as a daemon. Make the source return, or add a timeout "
            "to it.",
            StuckThreadWarning,
        )
    return [state.thread for state in left if state.thread is not None]


# The same if the process of a parameter server is gone.
_GONE_SECS = 0.5


def _close_within(secs: float, close: Callable[[], None], layout: Layout | None) -> None:
    """Call `close`, and return after `secs` at the latest: a warning then names what does not answer.

    TensorFlow closes a session when each step has been cleaned up on all its servers, and has no limit for that. With a
    parameter server that is gone, the thread that closes is left behind until that server is back.

    Args:
      close: closes the session.
      layout: its cluster, for the message; None if unknown.

    Raises:
      Exception: what `close` has raised.
    """
    errors: list[BaseException] = []
    thread = Background("staging:close", close, failed=errors.append)
    thread.start()
    thread.join(min(secs, _GONE_SECS))
    if layout is not None and not all(is_listening(layout, server) for server in layout.servers):
        secs = min(secs, _GONE_SECS)
    else:
        thread.join(max(0.0, secs - _GONE_SECS))
    if errors:
        raise errors[0]
    if thread.is_alive():
        gone = "" if layout is None else "; ".join(unreachable(layout, layout.servers))
        logging.warning(
            "The session is still closing after %g s, and is left behind: %s.",
            secs,
            gone or "its server does not answer",
        )
