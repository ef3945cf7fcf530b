"""`ProgramWatchdog`: explains a run that takes too long, in a program that knows nothing of this package."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Mapping
from typing import Any

from staging_tf1._tf import reopened
from staging_tf1.feed.pipeline import pipelines_of
from staging_tf1.graph.callsite import site_of_op
from staging_tf1.graph.probes import Probe
from staging_tf1.watch.diagnosis import Diagnosis
from staging_tf1.watch.snapshot import Observer
from staging_tf1.watch.stall import StallRule, Watchdog
from staging_tf1.watch.views import Failure, Pending, Snapshot

# Between two looks at a queue that may be filling.
_FILLS_SECS = 1.0


class _LateObserver(Observer):
    """Makes its ops when a run has stalled, so the graph of a program that does not stall stays as it is.

    More ops would give other seeds to the random ops that are made after them.
    """

    def __init__(self, graph: Any, failures: Mapping[int, Failure]) -> None:
        self._failures = failures
        # Not the constructor of the base class, which makes the ops.
        self._graph, self.pipelines = graph, tuple(pipelines_of(graph))
        self.probes = {}

    def snapshot(self, *args: Any) -> Snapshot:
        with reopened(self._graph):
            self._make_ops()
        return super().snapshot(*args)

    def _name(self, probe: Probe) -> str:
        site = site_of_op(self._graph.get_operation_by_name(probe.key)) if ":" not in probe.key else None
        return probe.name if site is None else f"{probe.name} (made at {site})"

    def _put_at(self, probe: Probe) -> str:
        sites = [site_of_op(op) for op in self._puts(probe)]
        return next((str(site) for site in sites if site is not None), "")

    def _error(self, probe: Probe, runner: Any, session: Any) -> str:
        for failure in list(self._failures.values()):
            if probe.key in self.touches(failure.run).puts and not failure.thread.is_alive():
                return f"{failure.error} (in thread '{failure.thread.name}')"
        return super()._error(probe, runner, session)


class ProgramWatchdog(Watchdog):
    """Reports only what a run waits for, and only when nothing has moved for a while.

    The user did not ask for reports.
    """

    def __init__(
        self,
        session: Any,
        pending: Mapping[int, Pending],
        failures: Mapping[int, Failure],
        secs: float,
        say: Callable[[str], None],
    ) -> None:
        observer = _LateObserver(session.graph, failures)
        super().__init__(session, observer, pending, (), StallRule(secs, False), lambda report: None, say)

    def _is_back_pressure(self, step: Pending, steps_continue: bool) -> bool:
        # A thread that feeds waits for room as long as the program does something else, such as an evaluation.
        return steps_continue or step.ident != threading.main_thread().ident

    def _is_worth_telling(self, step: Pending, snapshot: Snapshot, diagnosis: Diagnosis) -> bool:
        if not diagnosis.explains:
            # What could not be seen might.
            return bool(snapshot.unseen)
        time.sleep(min(_FILLS_SECS, self._rule.secs / 4))
        later = self._observer.snapshot(self._session, step, [], self._readers)
        if _sizes(later) == _sizes(snapshot):
            return True
        # Something fills the queues. The next look is due at once.
        self._reported.discard((step.ident, step.began))
        return False


def _sizes(snapshot: Snapshot) -> list[int | None]:
    # The names of files go round and round where no file has a record.
    return [store.size for store in snapshot.stores if not store.reader]
