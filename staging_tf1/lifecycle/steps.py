"""What has to be done before and after each step of one session."""

from __future__ import annotations

import threading
from contextlib import AbstractContextManager, nullcontext
from typing import Any, NamedTuple

from staging_tf1._tf import tf
from staging_tf1.feed.feed import Feed
from staging_tf1.feed.run import FeedRun, repair_all
from staging_tf1.feed.thread_state import ThreadState
from staging_tf1.lifecycle.account import Account, Gate
from staging_tf1.lifecycle.classic import ClassicLoops, Plan
from staging_tf1.lifecycle.clock import StepClock
from staging_tf1.lifecycle.lockstep import Lockstep
from staging_tf1.lifecycle.lockstep import repair_all as repair_in_lockstep
from staging_tf1.lifecycle.needs import Needs


class Demand(NamedTuple):
    """What one run takes and puts."""

    towers: frozenset[Gate]
    plan: Plan


class Steps:
    """Adds the lockstep puts to a step, lets towers go on alone, and cleans up after a step that failed.

    Args:
      session: where the steps run.
      feeds: those of its graph.
      clock: knows the session's runs.
      interruptible: whether a step that waits for a lockstep source must be able to give up.
    """

    def __init__(self, session: Any, feeds: list[Feed], clock: StepClock, *, interruptible: bool = False) -> None:
        self._session = session
        self._loops = ClassicLoops(session, feeds, clock)
        pipelines = [feed.pipeline for feed in feeds if feed.pipeline is not None]
        gates = {(p.name, index): tower.sink for p in pipelines for index, tower in enumerate(p.towers)}
        self._needs = Needs(session.graph, pipelines)
        self.account = Account(session, gates)
        self._lockstep = {
            feed.name: Lockstep(feed, session, interruptible=interruptible)
            for feed in feeds
            if feed.pipeline is not None and feed.pipeline.lockstep
        }
        runs = [feed.run_in(session) for feed in feeds]
        self._runs: list[FeedRun] = [run for run in runs if run is not None]
        self._towers = [run for run in self._runs if run.rounds is not None]
        # What the step under way takes from; None between two steps.
        self._under_way: frozenset[Gate] | None = None
        self._one_at_a_time = threading.RLock()
        self._clock, self._stepper = clock, 0

    def warm_up(self) -> None:
        """Puts the first batch of every lockstep pipeline."""
        ready = [(lockstep, *lockstep.first_puts()) for lockstep in self._lockstep.values()]
        if any(puts for _, puts, _ in ready):
            # One run for all.
            feeds = {key: fed for _, _, of_lockstep in ready for key, fed in of_lockstep.items()}
            self._session.run([puts for _, puts, _ in ready], feeds)
        for lockstep, _, _ in ready:
            lockstep.have_put()

    def readers(self, feed: Feed) -> list[ThreadState]:
        """What the steps themselves have read for each tower of `feed`; empty if it is not in lockstep."""
        lockstep = self._lockstep.get(feed.name)
        return [] if lockstep is None else [state.feeder for state in lockstep.towers]

    def demand(self, fetches: Any, feed_dict: Any | None) -> Demand:
        """What a run of `fetches` takes and puts."""
        return Demand(self._needs.of(fetches, feed_dict), self._loops.plan(fetches, feed_dict))

    def alone(self, demand: Demand) -> AbstractContextManager[Any]:
        """To be held around a step of that `demand`: two steps in lockstep at once would put one batch twice."""
        return self._one_at_a_time if self._in_lockstep(demand.towers) else nullcontext()

    def before(self, demand: Demand) -> tuple[list[Any], dict[Any, Any]]:
        """The puts to add to a step of that `demand`, and what to feed in addition.

        Raises:
          tf.errors.OutOfRangeError: a lockstep pipeline, or the queue behind a put of the step's, has no batch left.
        """
        if self._under_way is not None:
            # A hook is not told that a step has failed; it sees the next one begin.
            self.failed()
        puts, feeds = self._puts(demand.towers) if self._towers or self._lockstep else ([], {})
        # Last: what it takes from a queue is for this step alone.
        feeds |= self._loops.before(demand.plan)
        self._under_way = demand.towers
        return puts, feeds

    def _puts(self, needed: frozenset[Gate]) -> tuple[list[Any], dict[Any, Any]]:
        for run in self._towers:
            run.ask({tower for name, tower in needed if name == run.name})
        puts: list[Any] = []
        feeds: dict[Any, Any] = {}
        for name, towers in self._in_lockstep(needed).items():
            self._check_alone(name)
            more_puts, more_feeds = self._lockstep[name].before(towers)
            puts += more_puts
            feeds.update(more_feeds)
        return puts, feeds

    def _check_alone(self, name: str) -> None:
        """Raises where another thread takes a step in lockstep at this moment."""
        here = threading.get_ident()
        if self._stepper not in (0, here) and self._stepper in self._clock.pending:
            raise RuntimeError(
                f"'{name}' is in lockstep, and two threads take steps of it at once. Take them in one thread, or with "
                f"StagingSession.run, which lets one wait for the other; or say staged(lockstep=False)."
            )
        self._stepper = here

    def after(self) -> None:
        """Notes that the step has succeeded."""
        needed, self._under_way = self._under_way, None
        if not needed:
            return
        self.account.succeeded(needed)
        for name, towers in self._in_lockstep(needed).items():
            self._lockstep[name].after(towers)

    def failed(self) -> None:
        """Accounts for the batches that a failed step took, and gives back the places that it kept."""
        self._under_way = None
        try:
            self.account.settle()
            repair_all(self._runs)
            repair_in_lockstep(self._lockstep.values(), self._session)
        except (tf.errors.OpError, RuntimeError):
            # The session itself is gone; there is nothing left to clean up.
            return

    def settle(self) -> None:
        """Settles the account of a step that failed and was the last one."""
        if self._under_way is not None:
            self.failed()

    def stop(self) -> None:
        """Lets the threads that read for lockstep pipelines end. May be called twice."""
        for lockstep in self._lockstep.values():
            lockstep.stop()

    def join(self, deadline_secs: float) -> list[ThreadState]:
        """Joins those threads; returns the ones that are still in a source after `deadline_secs`."""
        return [state for lockstep in self._lockstep.values() for state in lockstep.join(deadline_secs)]

    def warn_of_leftovers(self) -> None:
        """Says which plain areas still hold elements after the end of the data."""
        self._loops.warn_of_leftovers()

    def drain(self) -> None:
        """Stops reading from the sources."""
        for run in self._runs:
            run.drain()
        for lockstep in self._lockstep.values():
            lockstep.drain()

    def _in_lockstep(self, needed: frozenset[Gate]) -> dict[str, list[int]]:
        if not self._lockstep:
            return {}
        towers: dict[str, list[int]] = {}
        for name, tower in sorted(needed):
            if name in self._lockstep:
                towers.setdefault(name, []).append(tower)
        return towers
