"""`TimedRuns`: times the runs of one session for the watchdog and the figures, and says why one failed."""

from __future__ import annotations

import itertools
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from staging_tf1._tf import free_run_lock, is_profiled, profiled, tf
from staging_tf1.cluster.cluster import Cluster, check_not_left_behind
from staging_tf1.cluster.connection import recovered_from
from staging_tf1.cluster.fence import after_refusal, refused
from staging_tf1.errors import StallError
from staging_tf1.feed.chain import Handler, Look, Run, Stage
from staging_tf1.signals import InterruptWatcher, forget_replaced, interruption
from staging_tf1.watch.views import Pending
from staging_tf1.watch.waiting import WaitMeter


class TimedRuns(Handler):
    """Times runs, also those that take nothing. Knows what has ended one in place of TensorFlow's error.

    Args:
      waiting: measures before each run.
      watcher: knows an interrupt that Python dropped.
      cluster: the cluster of the session, if there is one.

    Attributes:
      pending: the runs in progress, by thread.
      stall_report: set by the watchdog when it ends a wait. From then on every run raises it as a StallError.
    """

    def __init__(self, graph: Any, waiting: WaitMeter, watcher: InterruptWatcher, cluster: Cluster | None) -> None:
        self._graph, self.waiting, self._watcher, self._cluster = graph, waiting, watcher, cluster
        self.pending: dict[int, Pending] = {}
        self._steps = itertools.count()
        self.stall_report: str | None = None
        self._first_began = self._last_ended = 0.0

    @property
    def loop_secs(self) -> float:
        return self._last_ended - self._first_began

    def stage(self, look: Look) -> Stage:
        return Stage(self._before, self._after, self._ended)

    def _before(self, run: Run) -> None:
        if self.stall_report is not None:
            # In lockstep, the read that it tells of has returned.
            raise StallError(self.stall_report)
        began = self._begin([run.fetches, run.puts] if run.puts else run.fetches, run.feeds)
        if began >= self.waiting.due:
            self.waiting.before_step(began)
        number = next(self._steps)
        if is_profiled():
            run.profile = profiled(run.plan.event, step=number)
            run.profile.__enter__()

    def _begin(self, fetches: Any, fed: Any) -> float:
        ident, began = threading.get_ident(), time.perf_counter()
        self._first_began = self._first_began or began
        self.pending[ident] = Pending(ident, began, fetches, fed)
        return began

    def _after(self, run: Run) -> None:
        self._ended(run)
        if self.stall_report is not None:
            # The run succeeded only because the watchdog made room for it.
            raise StallError(self.stall_report)

    def _ended(self, run: Run, error: BaseException | None = None) -> None:
        self.pending.pop(threading.get_ident(), None)
        if run.profile is not None:
            run.profile.__exit__(None, None, None)
        self._last_ended = time.perf_counter()

    @contextmanager
    def waits(self, fetches: Any) -> Iterator[None]:
        """Return a context for a wait outside the run, which the watchdog sees as a run of `fetches`."""
        self._begin(fetches, None)
        try:
            yield
        finally:
            self.pending.pop(threading.get_ident(), None)

    def raise_cause(self, error: BaseException) -> None:
        """Raise what has made a run of this thread fail; return if that is `error` itself."""
        # Also after a Ctrl-C at the beginning of a run.
        run = self.pending.pop(threading.get_ident(), None)
        if not isinstance(error, Exception):
            self._watcher.take_lost_interrupt(run)
            forget_replaced(error)
            free_run_lock(self._graph)
            return
        interrupted = interruption(error) or self._watcher.take_lost_interrupt(run)
        if interrupted is not None:
            raise interrupted from None
        if self._cluster is not None and refused(error):
            raise after_refusal(self._cluster) from error
        if self.stall_report is not None and not isinstance(error, StallError):
            raise StallError(self.stall_report) from error
        if self._cluster is not None and isinstance(error, tf.errors.OpError):
            self._cluster.member.check_layout()
            recovered = recovered_from(error)
            if recovered is not None:
                check_not_left_behind(self._cluster)
                if recovered is not error:
                    raise recovered from error
