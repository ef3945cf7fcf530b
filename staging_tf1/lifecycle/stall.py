"""The watchdog: says why a step has not returned, and ends the wait where it is asked to."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Sequence
from typing import Any

from absl import logging

from staging_tf1.arguments import MOST_SECS, in_range, seconds, shown
from staging_tf1.doctor.diagnosis import diagnose
from staging_tf1.doctor.report import report_text
from staging_tf1.doctor.snapshot import Observer, Pending, read
from staging_tf1.errors import StallError
from staging_tf1.feed.feed import Feed
from staging_tf1.feed.thread_state import WAITING_FOR_SOURCE, ThreadState
from staging_tf1.lifecycle.clock import StepClock

ENVIRONMENT = "STAGING_TF1_STALL_SECS"
# Longer than steps take, compilation of the first one included; short enough to be read before one gives up.
_DEFAULT_SECS = 30.0


def stall_secs_or_default(what: str, stall_secs: float | None) -> float:
    """The seconds after which a step counts as stalled: the argument, the environment's, or 30; 0 is never.

    Raises:
      TypeError, ValueError: no number of seconds, or negative.
    """
    if stall_secs is not None:
        return seconds(what, "stall_secs", stall_secs)
    value = os.environ.get(ENVIRONMENT)
    if not value:
        return _DEFAULT_SECS
    try:
        secs = float(value)
    except ValueError:
        secs = -1.0
    if not 0 <= secs <= MOST_SECS:
        raise ValueError(
            f"{ENVIRONMENT} is {shown(value)}, wanted a number of seconds {in_range(0, MOST_SECS)}; 0 turns the stall "
            f"report off."
        )
    return secs


class Watchdog:
    """One thread a session, asleep until a run has lasted `stall_secs`; each such run is reported once.

    Args:
      session: whose runs to watch; until it is closed.
      clock: times them.
      observer: made while the graph was open.
      feeds: the feeds of the graph, to be stopped when a wait is to end.
      stall_secs: seconds; 0 watches nothing.
      stall_raises: whether a wait for input is ended: the run raises `staging.errors.StallError`.
      readers: where steps read a source themselves, in lockstep: between two runs, so that no run is under way.
    """

    def __init__(
        self,
        session: Any,
        clock: StepClock,
        observer: Observer,
        feeds: Sequence[Feed],
        stall_secs: float,
        stall_raises: bool,
        readers: Sequence[ThreadState] = (),
    ) -> None:
        self.clock = clock
        self.clock.on_close.append(self.stop)
        self._session, self._observer, self._feeds = session, observer, tuple(feeds)
        self._stall_secs, self._raises = stall_secs, stall_raises
        self._readers = {state.name: state for state in readers}
        self._ended = threading.Event()
        self._reported: set[tuple[int, float]] = set()
        self._thread = threading.Thread(target=self._watch, name="staging:stall", daemon=True)

    def start(self) -> None:
        """Begins to watch. On its own, so that a Ctrl-C that falls here finds whom to stop."""
        if self._stall_secs:
            self._thread.start()

    def stop(self) -> None:
        """Ends the watch and joins its thread. May be called twice."""
        self._ended.set()
        # One whose start a Ctrl-C has cut short cannot be joined yet; it ends as soon as it begins.
        if self._thread.is_alive():
            self._thread.join()

    def _watch(self) -> None:
        while not self._ended.wait(self._until_next()):
            late = self._late()
            if late:
                self._report(late)

    def _pending(self) -> list[Pending]:
        """The runs under way, and the reading of sources between runs."""
        reading = [
            Pending(state.thread.ident or 0, state.since, [], None, reads=name)
            for name, state in self._readers.items()
            if state.doing == WAITING_FOR_SOURCE and state.thread is not None
        ]
        # Copied in one step of the interpreter: other threads write to it.
        return list(self.clock.pending.values()) + reading

    def _unreported(self) -> list[Pending]:
        pending = self._pending()
        self._reported &= {(run.ident, run.began) for run in pending}
        return [run for run in pending if (run.ident, run.began) not in self._reported]

    def _until_next(self) -> float:
        oldest = min((run.began for run in self._unreported()), default=time.perf_counter())
        return max(0.0, oldest + self._stall_secs - time.perf_counter())

    def _late(self) -> list[Pending]:
        """The runs that have lasted too long, those that take from a store first."""
        limit = time.perf_counter() - self._stall_secs
        late = [run for run in self._unreported() if run.began <= limit]
        self._reported |= {(run.ident, run.began) for run in late}
        return sorted(late, key=lambda run: (not self._takes(run), run.began))

    def _takes(self, run: Pending) -> bool:
        return bool(run.reads or self._observer.touches(run).takes)

    def _report(self, late: list[Pending]) -> None:
        step = late[0]
        pending = self._pending()
        limit = time.perf_counter() - self._stall_secs
        if not self._takes(step) and any(run.began > limit for run in pending):
            # A thread of the user's that waits for room, while steps go on: that is what it is for.
            return
        others = [run for run in pending if run.ident != step.ident]
        snapshot = self._observer.snapshot(self._session, step, others, self._readers)
        diagnosis = diagnose(snapshot)
        if self._ended.is_set() or step not in self._pending():
            # It has returned in the meantime.
            return
        text = report_text(snapshot, diagnosis)
        logging.warning("%s", text)
        if self._raises and diagnosis.waits:
            self._end_the_wait(step, text)

    def _end_the_wait(self, step: Pending, report: str) -> None:
        self.clock.stall_report = report
        for feed in self._feeds:
            run = feed.run_in(self._session)
            if run is not None:
                run.stop()
            for lane in feed.lanes:
                self._do(lane.sink.cancel)
        give_up = self._readers[step.reads].give_up if step.reads else None
        if give_up is not None:
            give_up(StallError(report))
        touched = self._observer.touches(step)
        for key, probe in self._observer.probes.items():
            if key in touched.takes:
                self._do(probe.wake_takers)
            elif key in touched.puts:
                self._do(probe.wake_putters)

    def _do(self, op: Any) -> None:
        if op is not None:
            read(self._session, op)
