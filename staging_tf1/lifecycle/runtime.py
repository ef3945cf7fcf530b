"""`SessionRuntime`: what the package does around the runs of one session, and the order in which it ends."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

from absl import logging

from staging_tf1._tf import run_unwrapped, tf
from staging_tf1.auto.meaning import meaning_of
from staging_tf1.cluster.cluster import check_not_left_behind
from staging_tf1.cluster.fence import after_refusal, refused
from staging_tf1.cluster.member import recovered_from
from staging_tf1.errors import AutoStageError, StallError, StuckThreadWarning, warn
from staging_tf1.feed.gated import gated_runs
from staging_tf1.feed.lock_probe import LockProbe
from staging_tf1.feed.pipeline import Pipeline
from staging_tf1.feed.pipeline_run import PipelineRun, runs_in, stop_all
from staging_tf1.fork import disarm_in_child, has_lost_tensorflow, refuse_if_forked
from staging_tf1.lifecycle.auto_gain import GainWatch
from staging_tf1.lifecycle.close import close_within
from staging_tf1.lifecycle.in_step import InStep
from staging_tf1.lifecycle.interrupt import InterruptWatcher, interruption
from staging_tf1.lifecycle.last_save import LastSave
from staging_tf1.lifecycle.stepper import make_stepper
from staging_tf1.lifecycle.steps import Steps
from staging_tf1.watch.snapshot import Observer
from staging_tf1.watch.stall import StallRule, Watchdog
from staging_tf1.watch.stats import PipelineStats, stats_of
from staging_tf1.watch.thread_location import stuck_text
from staging_tf1.watch.trace import Trace
from staging_tf1.watch.views import Pending
from staging_tf1.watch.waiting import WaitMeter

# How long a run may take to notice that its session was closed.
_CANCEL_SECS = 5.0


class SessionRuntime:
    """Wraps `run` and `close` of one session, as attributes of that session, until it is closed.

    A MonitoredSession tells its hooks neither that a step failed nor that an error ends the session, and hooks do not
    see the runs of a plain session. The package's own runs are not steps and bypass the wrapper (`_tf.run_unwrapped`).

    Each run, in `Steps.around`::

        before              tower barriers are told, and the step's additional puts and feeds are found
        the run itself      timed, for the watchdog, the figures and the trace
        after               counts the step, or repairs what a failed step has lost

    The end, in `end`::

        watcher, watchdog   stopped
        figures             taken, including the batches of the last failed step
        feed threads        told to stop, and so are the threads that read for lockstep
        leftovers           warned of
        threads             joined, within a deadline; a warning names those still running

    The session's `close`, which comes without an `end` after an error or in a plain session::

        watcher, watchdog, lockstep threads, leftovers, as above
        trace               written, with the verdicts of the final figures
        a checkpoint        written, if a signal has ended the loop between two steps
        the session         closed
        other workers       told that this one has finished, if an `end` came before

    Args:
      session: a `tf.Session`.
      pipelines: the pipelines of its graph, started.
      observer: made while the graph was open.
      rule: when a step counts as stalled, and what happens then.
      by_hand: whether the session is no StagingSession. On a chief, the step that finds the end of the data then waits
        for the other workers.
      last_save: saves when a signal ends the loop; None if nothing does.

    Attributes:
      pending: the runs in progress, by thread.
    """

    def __init__(
        self,
        session: Any,
        pipelines: Sequence[Pipeline],
        observer: Observer,
        rule: StallRule,
        *,
        by_hand: bool = False,
        last_save: LastSave | None = None,
    ) -> None:
        self._by_hand = by_hand
        self.session, self._pipelines = session, pipelines
        self.pending: dict[int, Pending] = {}
        self._first_began = self._last_ended = 0.0
        # Set by the watchdog when it ends a wait. From then on every run raises it as a StallError.
        self._stall_report: str | None = None
        self._trace: Trace | None = None
        # The figures at the end; None before it.
        self._final_stats: list[PipelineStats] | None = None
        self._cluster = next((each.cluster for each in pipelines if each.cluster is not None), None)
        # Called while the session can still run.
        self.before_close: Callable[[], None] = lambda: None
        # Whether the loop ended without an error.
        self.ended_well = False
        # In synchronous training, the chief's thread that applies the gradients waits for more of them until the
        # session is closed. The coordinator would wait for it in vain, and print the error that ends it.
        self.ends_with_session: list[threading.Thread] = []
        self._in_step = self._new_in_step()
        self._run_before: Callable[..., Any] = session.run
        self._close_before: Callable[[], None] = session.close
        self.steps = Steps(
            session,
            pipelines,
            self.pending,
            self.watched,
            interruptible=rule.raises and rule.secs > 0,
            in_step=self._in_step,
            at_end=self._wait_for_workers,
        )
        # Where the start of a session fails, MonitoredSession creates the next one before this one is closed.
        self._shares = [] if self._cluster is None else self._cluster.member.shares
        self._watchdog = Watchdog(session, observer, self.pending, self.steps.reading_states, rule, self._end_the_wait)
        self._lock_probe = LockProbe()
        self._waiting = WaitMeter(session, pipelines, self.steps.states_of)
        self._last_save = last_save
        self._watcher = InterruptWatcher(lambda: stop_all(self.runs), catches_sigterm=last_save is not None)
        session.run, session.close = self._run, self._close
        self.meaning = meaning_of(session.graph)
        self.gain: GainWatch | None = None
        if self.meaning is not None:
            session.make_callable = self._make_callable
            session.partial_run_setup = self._refuse_partial_run
            self.gain = GainWatch(session, self.meaning, self.stats)
            self.steps.on_demand.before_step = self.gain.before_step
        disarm_in_child(session)

    def _new_in_step(self) -> InStep | None:
        """Returns what holds the steps of all workers together; None unless they train in step."""
        if self._cluster is None or not self._cluster.sync:
            return None
        return InStep(
            self._cluster,
            self.session,
            next((each.position for each in self._pipelines if each.cluster is not None), None),
            lambda: bool(self.pending),
            ends_with_first=any(each.has_unknown_length for each in self._pipelines),
        )

    def start(self) -> None:
        """Starts the watchdog and the lock probe, and puts the first batch of every lockstep pipeline."""
        self._watchdog.start()
        self._lock_probe.start(self.runs)
        self.steps.warm_up()

    def watch_signals(self) -> None:
        """Lets Ctrl-C stop the feed threads, which ends a step that waits for them."""
        self._watcher.start()

    def record(self, trace: Trace) -> None:
        """Records the steps from now on in `trace`, which is written when the session is closed. Call it first.

        The feed threads, which start earlier, make themselves known to it: see `follow_runs`.
        """
        self._trace = trace
        for pipeline in self._pipelines:
            states = self.steps.states_of(pipeline)
            trace.follow([(sink, [state]) for sink, state in zip(pipeline.sinks, states, strict=False)])
        trace.record(self.session, [sink for pipeline in self._pipelines for sink in pipeline.sinks])

    @property
    def runs(self) -> list[PipelineRun]:
        """The runs of the pipelines that have feed threads."""
        return runs_in(self.session, self._pipelines)

    def stats(self) -> list[PipelineStats]:
        """Returns the figures of every pipeline so far."""
        loop_secs = self._last_ended - self._first_began
        return stats_of(
            self._pipelines,
            self.session,
            self.steps.failed_batches,
            loop_secs,
            self.steps.states_of,
            self._lock_probe.held_share,
            self._waiting.shares,
        )

    def step_call(self, fetches: Any, call: Callable[..., Any]) -> Callable[..., Any]:
        """Wraps `call`, which runs `fetches` without the session's `run`, so that it is timed as a step."""
        gated = gated_runs(self.session)
        return partial(self._step, fetches, None, call if gated is None else gated.call(fetches, call))

    def watched(self, fetches: Any, call: Callable[..., Any]) -> Callable[..., Any]:
        """Wraps `call`, which runs `fetches` and is not a step, so that the watchdog sees it."""
        return partial(self._watched, fetches, None, call)

    def _wait_for_workers(self) -> None:
        # The saver of a MonitoredTrainingSession comes before our hook at the end, and must find everybody's position.
        if self._cluster is not None and self._by_hand:
            self._cluster.wait_for_workers()

    def _run(
        self, fetches: Any, feed_dict: Any | None = None, options: Any | None = None, run_metadata: Any | None = None
    ) -> Any:
        refuse_if_forked("A session")
        if self.meaning is not None:
            fetches, feed_dict = self.meaning.of_run(fetches, feed_dict, partial(run_unwrapped, self.session))
        demand = self.steps.demand(fetches, feed_dict)
        if demand is None:
            return self.run_step(fetches, feed_dict, options, run_metadata)

        def run(puts: list[Any], feeds: dict[Any, Any]) -> Any:
            fed = {**(feed_dict or {}), **feeds} if feeds else feed_dict
            if not puts:
                return self.run_step(fetches, fed, options, run_metadata)
            return self.run_step([fetches, puts], fed, options, run_metadata)[0]

        with self.steps.refusing_others(demand):
            return self.steps.around(demand, run)

    def _make_callable(self, fetches: Any, feed_list: Any = None, accept_options: bool = False) -> Any:
        if accept_options:
            raise AutoStageError(
                "make_callable(accept_options=True) has no meaning after auto_stage(). Use Session.run."
            )
        return make_stepper(self, fetches, feed_list)

    @staticmethod
    def _refuse_partial_run(fetches: Any, feeds: Any = None) -> None:
        raise AutoStageError("partial_run_setup() cannot be used after auto_stage(). Use Session.run.")

    def run_step(self, fetches: Any, feed_dict: Any, options: Any = None, run_metadata: Any = None) -> Any:
        """Runs the session's own `run`, timed."""
        return self._step(fetches, feed_dict, self._run_before, fetches, feed_dict, options, run_metadata)

    def _step(self, fetches: Any, fed: Any, call: Callable[..., Any], *args: Any) -> Any:
        if self._trace is None:
            return self._watched(fetches, fed, call, *args)
        demand = self.steps.demand(fetches, fed)
        sinks = frozenset() if demand is None else demand.sinks
        began = time.perf_counter()
        try:
            result = self._watched(fetches, fed, call, *args)
        except BaseException as error:
            self._trace.step_ended(began, time.perf_counter(), sinks, error)
            raise
        self._trace.step_ended(began, time.perf_counter(), sinks, None)
        return result

    def _watched(self, fetches: Any, fed: Any, call: Callable[..., Any], *args: Any) -> Any:
        ident, began = threading.get_ident(), time.perf_counter()
        self._first_began = self._first_began or began
        self.pending[ident] = Pending(ident, began, fetches, fed)
        try:
            self._waiting.before_step(began)
            result = call(*args)
        except (KeyboardInterrupt, SystemExit):
            self._watcher.owed()
            raise
        except Exception as error:
            interrupted = interruption(error) or self._watcher.owed()
            if interrupted is not None:
                raise interrupted from None
            if self._cluster is not None and refused(error):
                raise after_refusal(self._cluster) from error
            if self._stall_report is not None:
                raise StallError(self._stall_report) from error
            if self._cluster is not None and isinstance(error, tf.errors.OpError):
                self._cluster.member.check_layout()
                recovered = recovered_from(error)
                if recovered is not None:
                    check_not_left_behind(self._cluster)
                    if recovered is not error:
                        raise recovered from error
            raise
        finally:
            self.pending.pop(ident, None)
            self._last_ended = time.perf_counter()
        if self._stall_report is not None:
            # The run succeeded only because the watchdog made room for it.
            raise StallError(self._stall_report)
        return result

    def _end_the_wait(self, report: str) -> None:
        """Called by the watchdog before it wakes the step."""
        self._stall_report = report
        stop_all(self.runs)

    def stop_watching(self) -> None:
        """Stops reacting to signals, stalls and other workers. May be called twice."""
        if self._in_step is not None:
            self._in_step.stop()
        self._watcher.stop()
        self._watchdog.stop()
        self._lock_probe.stop()

    def end(self, join_secs: float) -> list[PipelineStats]:
        """Stops the feed threads and joins them. Returns the final figures."""
        self.stop_watching()
        runs = self.runs
        figures = self._take_final_stats()
        stop_all(runs)
        self.steps.stop()
        for run in runs:
            run.delivery.warn_of_leftovers()
        self.steps.warn_of_leftovers()
        for join in [*(run.join for run in runs), self.steps.join]:
            for state in join(join_secs):
                warn(stuck_text(state, join_secs), StuckThreadWarning)
        return figures

    def _take_final_stats(self) -> list[PipelineStats]:
        if self._final_stats is None:
            try:
                self.steps.settle()
                self._final_stats = self.stats()
            except (tf.errors.OpError, RuntimeError):
                # The session is gone.
                self._final_stats = []
        return self._final_stats

    def _close(self) -> None:
        if has_lost_tensorflow():
            # The session, and the files that closing it writes, belong to the parent.
            return
        self.session.run, self.session.close = self._run_before, self._close_before
        if self.meaning is not None:
            del self.session.make_callable, self.session.partial_run_setup
        self.before_close()
        self.stop_watching()
        self.steps.stop()
        self.steps.warn_of_leftovers()
        if self._trace is not None:
            # A server that is gone would not answer.
            figures = (self._final_stats or []) if self.session.sess_str else self._take_final_stats()
            self._trace.write({each.name: each.verdict for each in figures})
        self.steps.on_demand.stop()
        try:
            self._save_if_interrupted()
        finally:
            self._end_session()

    def _save_if_interrupted(self) -> None:
        if self._last_save is None or self.ended_well or not self._watcher.has_interrupted:
            return
        if self.steps.last_is_torn:
            logging.warning("Nothing was saved at the stop: the last step has failed after it had taken a batch.")
            return
        try:
            self._last_save.save(self.session)
        except Exception as error:
            # What has ended the loop is raised.
            logging.error("The checkpoint at the stop could not be saved: %s: %s", type(error).__name__, error)

    def _end_session(self) -> None:
        if self.session.sess_str:
            layout = None if self._cluster is None else self._cluster.layout
            close_within(_CANCEL_SECS, self._close_before, layout)
        else:
            self._close_before()
        self.steps.on_demand.join(_CANCEL_SECS)
        for thread in self.ends_with_session:
            thread.join(_CANCEL_SECS)
        # After the last step, which consumes what it has been given.
        for share in self._shares:
            share.give_back()
        if self.ended_well and self._cluster is not None:
            # After the hooks of the session: the parameter servers return when all workers have finished.
            self._cluster.finish()
