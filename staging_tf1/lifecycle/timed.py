"""`TimedRuns`: times the runs of one session for the watchdog and the figures, and says why one failed."""

from __future__ import annotations

import itertools
import threading
import time
from collections.abc import Callable
from typing import Any

from staging_tf1._tf import free_run_lock, profiled, tf
from staging_tf1.cluster.cluster import Cluster, check_not_left_behind
from staging_tf1.cluster.connection import recovered_from
from staging_tf1.cluster.fence import after_refusal, refused
from staging_tf1.errors import StallError
from staging_tf1.lifecycle.interrupt import InterruptWatcher, interruption
from staging_tf1.watch.views import Pending
from staging_tf1.watch.waiting import WaitMeter


class TimedRuns:
    """Times runs, and raises what has ended one in place of TensorFlow's error.

    Args:
      graph: the graph of the session.
      waiting: measures before each run.
      watcher: knows what a signal owes to the main thread.
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
        """Seconds from the start of the first run to the end of the last."""
        return self._last_ended - self._first_began

    def step(self, event: str, fetches: Any, fed: Any, call: Callable[..., Any], *args: Any) -> Any:
        """Return `call(*args)`, which runs `fetches` for the user. TensorFlow's profile shows it as `event`."""
        with profiled(event, step=next(self._steps)):
            return self.run(fetches, fed, call, *args)

    def run(self, fetches: Any, fed: Any, call: Callable[..., Any], *args: Any) -> Any:
        """Return `call(*args)`, which runs `fetches` and need not be a step."""
        ident, began = threading.get_ident(), time.perf_counter()
        self._first_began = self._first_began or began
        self.pending[ident] = Pending(ident, began, fetches, fed)
        try:
            self.waiting.before_step(began)
            result = call(*args)
        except (KeyboardInterrupt, SystemExit):
            self._watcher.owed()
            free_run_lock(self._graph)
            raise
        except Exception as error:
            self._raise_cause(error)
            raise
        finally:
            self.pending.pop(ident, None)
            self._last_ended = time.perf_counter()
        if self.stall_report is not None:
            # The run succeeded only because the watchdog made room for it.
            raise StallError(self.stall_report)
        return result

    def _raise_cause(self, error: Exception) -> None:
        """Raise what has made a run fail; return if that is `error` itself."""
        interrupted = interruption(error) or self._watcher.owed()
        if interrupted is not None:
            raise interrupted from None
        if self._cluster is not None and refused(error):
            raise after_refusal(self._cluster) from error
        if self.stall_report is not None:
            raise StallError(self.stall_report) from error
        if self._cluster is not None and isinstance(error, tf.errors.OpError):
            self._cluster.member.check_layout()
            recovered = recovered_from(error)
            if recovered is not None:
                check_not_left_behind(self._cluster)
                if recovered is not error:
                    raise recovered from error
