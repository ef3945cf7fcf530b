"""`Watchdog`: reports why a step does not return, and ends the wait if asked to."""

from __future__ import annotations

import functools
import time
import weakref
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from absl import logging

from staging_tf1.background import Background, Stop
from staging_tf1.feed.threads import WAITING_FOR_SOURCE, ThreadState
from staging_tf1.graph.probes import Probe
from staging_tf1.watch.diagnosis import Diagnosis, diagnose
from staging_tf1.watch.snapshot import Observer, first_line_of, read
from staging_tf1.watch.views import FeederView, Pending, Snapshot, StoreView, TaskView


@dataclass(frozen=True)
class StallRule:
    """When a step counts as stalled, and what happens then."""

    # Seconds; 0 is never.
    secs: float
    # Whether the step also raises `staging.errors.StallError`.
    raises: bool


class Watchdog:
    """One thread per session that sleeps until a run has taken too long, and reports each such run once.

    Args:
      observer: made while the graph was open.
      pending: the runs in progress, by thread.
      readers: in lockstep, the states of the sources that steps read before their run.
      rule: how long is too long, and whether to end the wait.
      end_the_wait: called with the report before a step is woken.
      say: called with each report, in the thread.
    """

    def __init__(
        self,
        session: Any,
        observer: Observer,
        pending: Mapping[int, Pending],
        readers: Sequence[ThreadState],
        rule: StallRule,
        end_the_wait: Callable[[str], None],
        say: Callable[[str], None] = lambda report: logging.warning("%s", report),
    ) -> None:
        self._session, self._observer, self._runs = session, observer, pending
        self._readers = {state.name: state for state in readers}
        self._rule, self._on_end, self._say = rule, end_the_wait, say
        stopping = Stop()
        self._reported: set[tuple[int, float]] = set()
        # Weak, because a plain session that nobody closes is freed when the last reference to it is gone.
        itself = weakref.ref(self, lambda _: stopping.set())
        self._thread = Background("staging:stall", functools.partial(_watch, itself), stopping)

    def start(self) -> None:
        """Start watching. Not in the constructor, because after a Ctrl-C here there must be a watchdog to stop."""
        if self._rule.secs:
            self._thread.start()

    def stop(self) -> None:
        """Stop watching and join the thread. May be called twice."""
        self._thread.stop()

    def look(self) -> float:
        """Report the runs that have taken too long. Return the seconds until the next look."""
        try:
            late = self._late()
            if late:
                self._report(late)
        except Exception as error:
            # A bug here must neither end the thread nor hide that a step stands still.
            self._say(
                f"A step has not returned for {self._rule.secs:g} s. The watchdog could not find out why: "
                f"{first_line_of(error)}"
            )
        return self._until_next()

    def _pending(self) -> list[Pending]:
        """Return the runs in progress, and the reading of sources between runs."""
        reading = [
            Pending(state.thread.ident or 0, state.since, [], None, reads=name)
            for name, state in self._readers.items()
            if state.doing == WAITING_FOR_SOURCE and state.thread is not None
        ]
        # One bytecode copies it, because other threads write to it.
        return list(self._runs.values()) + reading

    def _unreported(self) -> list[Pending]:
        pending = self._pending()
        self._reported &= {(run.ident, run.began) for run in pending}
        return [run for run in pending if (run.ident, run.began) not in self._reported]

    def _until_next(self) -> float:
        oldest = min((run.began for run in self._unreported()), default=time.perf_counter())
        return max(0.0, oldest + self._rule.secs - time.perf_counter())

    def _late(self) -> list[Pending]:
        """Return the runs that have taken too long, those that take from a store first."""
        limit = time.perf_counter() - self._rule.secs
        late = [run for run in self._unreported() if run.began <= limit]
        self._reported |= {(run.ident, run.began) for run in late}
        return sorted(late, key=lambda run: (not self._takes(run), run.began))

    def _takes(self, run: Pending) -> bool:
        return bool(run.reads or self._observer.touches(run).takes)

    def what_hangs(self, step: Pending) -> tuple[str, Diagnosis]:
        """Return where a run was made, as the end of a sentence, and what it waits for."""
        others = [run for run in self._pending() if run.ident != step.ident]
        snapshot = self._observer.snapshot(self._session, step, others, self._readers)
        return snapshot.step.location, diagnose(snapshot)

    def _report(self, late: list[Pending]) -> None:
        step = late[0]
        pending = self._pending()
        limit = time.perf_counter() - self._rule.secs
        if not self._takes(step) and self._is_back_pressure(step, any(run.began > limit for run in pending)):
            return
        others = [run for run in pending if run.ident != step.ident]
        snapshot = self._observer.snapshot(self._session, step, others, self._readers)
        diagnosis = diagnose(snapshot)
        if not self._is_worth_telling(step, snapshot, diagnosis):
            return
        if self._thread.stopping.is_set or step not in self._pending():
            # It has returned in the meantime.
            return
        text = report_text(snapshot, diagnosis)
        self._say(text)
        if self._rule.raises and diagnosis.waits:
            self._end_the_wait(step, text)

    def _is_back_pressure(self, step: Pending, steps_continue: bool) -> bool:
        """Whether one of the user's threads waits for room while steps continue: that is no stall."""
        return steps_continue

    def _is_worth_telling(self, step: Pending, snapshot: Snapshot, diagnosis: Diagnosis) -> bool:
        return True

    def _end_the_wait(self, step: Pending, report: str) -> None:
        self._on_end(report)
        for pipeline in self._observer.pipelines:
            for sink in pipeline.sinks:
                self._do(sink.cancel)
        self.wake(step)

    def wake(self, step: Pending, *, own: bool = False) -> None:
        """Make what a run waits for fail or end. Where several ops of it wait for one area, one of them goes on.

        With `own`, leaves the queues of a server alone: other processes may use them.
        """
        touched = self._observer.touches(step)
        for key, probe in self._observer.probes.items():
            if own and self._session.sess_str and probe.kind != "area":
                continue
            if key in touched.takes:
                self._wake_takers(step, probe)
            elif key in touched.puts:
                self._do(probe.wake_putters)

    def _wake_takers(self, step: Pending, probe: Probe) -> None:
        if probe.kind == "area":
            size = read(self._session, probe.size)
            if size is None or 0 < probe.capacity <= size:
                # The op that wakes would itself wait for room.
                return
        feeds = [None] if probe.wake_key is None else self._observer.keys_awaited(self._session, step, probe)
        for feed in feeds:
            for op in probe.wake_takers:
                read(self._session, op, feed)

    def _do(self, op: Any) -> None:
        if op is not None:
            read(self._session, op)


def _watch(watchdog: weakref.ref[Watchdog]) -> Iterator[float]:
    """The work of the watchdog's thread, until the watchdog is stopped or freed."""
    while (alive := watchdog()) is not None:
        until_next = alive.look()
        # Not held while the thread sleeps.
        del alive
        yield until_next


def report_text(snapshot: Snapshot, diagnosis: Diagnosis) -> str:
    """Format a snapshot and its diagnosis.

    >>> from staging_tf1.watch.views import StepView
    >>> area = StoreView("area 'train'", "area", size=0, capacity=2, closed=None, wanted=1)
    >>> snapshot = Snapshot(StepView(30.0, ", at train.py:41 in main()", takes=True), (area,))
    >>> print(report_text(snapshot, Diagnosis("nothing puts into it", "Run its put")))
    A step has not returned for 30.0 s, at train.py:41 in main().
    Most likely: nothing puts into it. Run its put.
      area 'train': 0 of 2 elements; the step takes 1
    """
    return "\n".join(_lines(snapshot, diagnosis))


def _lines(snapshot: Snapshot, diagnosis: Diagnosis) -> Iterator[str]:
    yield f"A step has not returned for {snapshot.step.secs:.1f} s{snapshot.step.location}."
    yield f"Most likely: {diagnosis.cause}. {diagnosis.cure}."
    for store in snapshot.stores:
        yield f"  {_store(store)}"
        for feeder in store.feeders:
            yield f"    {_feeder(feeder)}"
        if store.error:
            yield f"    last exception: {store.error}"
    for task in snapshot.tasks:
        yield f"  {_task(task)}"
    for subject in snapshot.unseen:
        yield f"  could not look at {subject}"
    if snapshot.uninitialized:
        yield f"  uninitialized variables: {', '.join(snapshot.uninitialized)}"


def _task(task: TaskView) -> str:
    state = "finished" if task.finished else task.unreachable or f"last sign of life {task.silent_secs:.0f} s ago"
    return f"{task.name} at {task.address}: {state}"


def _store(store: StoreView) -> str:
    size = "?" if store.size is None else str(store.size)
    parts = [f"{size} of {store.capacity} elements" if store.capacity else f"{size} elements, unbounded"]
    if store.closed is not None:
        parts.append("closed" if store.closed else "open")
    if store.min_after_dequeue:
        parts.append(f"min_after_dequeue={store.min_after_dequeue}")
    if store.wanted:
        parts.append(f"the step takes {store.wanted}")
    if store.step_puts:
        parts.append("the step puts into it")
    if store.withheld:
        parts.append(f"{store.withheld} staged for an incomplete round")
    return f"{store.name}: {'; '.join(parts)}"


def _feeder(feeder: FeederView) -> str:
    batch = "" if feeder.batch < 0 else f", batch {feeder.batch}"
    doing = f"waiting for the start of {feeder.starting}" if feeder.starting else feeder.doing
    return f"{feeder.name}: {doing} for {feeder.secs:.1f} s{batch}, {feeder.batches} delivered{feeder.location}"
