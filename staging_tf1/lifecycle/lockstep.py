"""Lockstep: no thread; the run that takes a batch also puts the next one.

The end of the data must not fail the step that takes the last batch. So what can end is asked first, on its own: a
source is read, or the ops at which the data can end are run; only then does the step run, with the put fed or left
out.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Iterable
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import numpy as np

from staging_tf1._tf import tf
from staging_tf1.feed.feed import Feed
from staging_tf1.feed.inputs import Inputs
from staging_tf1.feed.lane import Lane
from staging_tf1.feed.repair import release_stranded, repair
from staging_tf1.feed.skipping import Skips
from staging_tf1.feed.source_errors import errors_only
from staging_tf1.feed.thread_state import BETWEEN_STEPS, WAITING_FOR_SOURCE, ThreadState
from staging_tf1.graph.meter import Meter
from staging_tf1.graph.pipeline import Tower
from staging_tf1.lifecycle.side_thread import SideThread


@dataclass
class _TowerState:
    tower: Tower
    lane: Lane
    # Elements in the area, as far as we know.
    staged: int = 0
    # The feeds of the next put; None if nothing has been read ahead.
    pending: dict[Any, Any] | None = None
    # What was read for this tower because another one that shares the input wanted the batch after it.
    dealt: deque[dict[Any, Any]] = field(default_factory=deque)
    ended: bool = False
    # The source's batches before this number have been read, or skipped.
    passed: int = 0
    # Gets that the meter had counted when the last run began.
    taken: int = 0
    in_flight: bool = False
    # What reading costs the step; the loop's own thread is the feed thread here.
    feeder: ThreadState = field(default_factory=lambda: ThreadState("lockstep"))
    reader: Any = field(default=None)
    read_ends: Any = field(default=None)
    skips: Any = field(default=None)


class Lockstep:
    """The lockstep pipeline of one feed in one session.

    Args:
      feed: the pipeline's feed.
      session: where it runs.
      interruptible: whether the loop must be able to stop waiting for the source, which is then read in a thread.
    """

    def __init__(self, feed: Feed, session: Any, *, interruptible: bool = False) -> None:
        assert feed.pipeline is not None
        self.name = feed.name
        self._side = SideThread(f"staging:read:{feed.name}") if interruptible else None
        self._session = session
        points = feed.ready_in(session).points
        inputs = Inputs(points)
        # Whose turn it is to read from an input that the towers share.
        self._turn = inputs.first_turn
        self.towers = [_TowerState(tower, lane) for tower, (lane, _) in zip(feed.pipeline.towers, points, strict=True)]
        for state, (_, start) in zip(self.towers, points, strict=True):
            state.skips = Skips(state.lane.name, state.lane.ignored)
            state.passed = start
            state.feeder.name = f"lockstep:{state.lane.name}"
            state.feeder.give_up = None if self._side is None else self._side.give_up
            state.reader = inputs.reader(state.lane, start, dealt=False)
            if state.tower.ends:
                state.read_ends = session.make_callable(list(state.tower.ends))

    def warm_up(self) -> None:
        """Puts one batch into every tower, so that every later step can get and put at once."""
        puts, feeds = self.first_puts()
        if puts:
            self._session.run(puts, feeds)
        self.have_put()

    def first_puts(self) -> tuple[list[Any], dict[Any, Any]]:
        """The puts of one batch into every tower that has one, and their feeds; `have_put` comes after their run."""
        puts, feeds = [], {}
        for state in self.towers:
            self._read_ahead(state)
            if state.pending is not None:
                puts.append(state.tower.sink.put)
                feeds.update(state.pending)
        return puts, feeds

    def have_put(self) -> None:
        """Notes that the puts of `first_puts` have been run."""
        for state in self.towers:
            if state.pending is not None:
                state.pending = None
                state.staged += 1

    def before(self, needed: Iterable[int]) -> tuple[list[Any], dict[Any, Any]]:
        """Prepares a run that takes from the towers `needed`: the ops to add to it, and their feeds.

        Raises:
          tf.errors.OutOfRangeError: one of them has no batch left; nothing has been taken from the others.
        """
        states = [self.towers[index] for index in sorted(needed)]
        _settle(states, self._session)
        for state in states:
            if not state.staged:
                self._stage(state)
        self._check_not_empty(states)
        puts, feeds = [], {}
        for state in states:
            self._read_ahead(state)
            state.in_flight = True
            if state.pending is not None:
                puts.append(state.tower.sink.put)
                feeds.update(state.pending)
        return puts, feeds

    def after(self, needed: Iterable[int]) -> None:
        """Notes that the run prepared last has succeeded."""
        for index in needed:
            state = self.towers[index]
            state.in_flight = False
            state.taken += 1
            if state.pending is None:
                state.staged -= 1
            state.pending = None

    def repair(self) -> None:
        """Puts right what a step that failed has left."""
        repair_all([self], self._session)

    def stop(self) -> None:
        """Lets the thread that reads end, if there is one."""
        if self._side is not None:
            self._side.stop()

    def join(self, deadline_secs: float) -> list[ThreadState]:
        """Joins that thread; returns who is still in a source after `deadline_secs`."""
        # One whose start a Ctrl-C has cut short cannot be joined yet; it ends as soon as it begins.
        if self._side is None or not self._side.thread.is_alive():
            return []
        self._side.thread.join(deadline_secs)
        states = [state.feeder for state in self.towers]
        return [state for state in states if state.doing == WAITING_FOR_SOURCE] if self._side.thread.is_alive() else []

    def drain(self) -> None:
        """Reads no more; what is staged or read ahead can still be taken."""
        for state in self.towers:
            # One that takes from another feed ends with that, after what its queue holds.
            state.ended = state.ended or not state.lane.chained

    def _stage(self, state: _TowerState) -> None:
        self._read_ahead(state)
        if state.pending is not None:
            self._session.run(state.tower.sink.put, state.pending)
            state.pending = None
            state.staged += 1

    def _read_ahead(self, state: _TowerState) -> None:
        if state.pending is not None:
            return
        while not (state.dealt or state.ended):
            if self._side is None:
                self._read(state)
            else:
                self._side.call(partial(self._read, state))
        if state.dealt:
            state.pending = state.dealt.popleft()

    def _read(self, state: _TowerState) -> None:
        """Reads one batch; those that share an input take in turn, whichever of them is needed first."""
        sharing = self.towers if state.lane.rotates else [state]
        reading = sharing[self._turn % len(sharing)]
        reading.feeder.thread = threading.current_thread()
        reading.feeder.now(WAITING_FOR_SOURCE)
        try:
            feeds = self._read_graph(reading) if reading.reader is None else self._read_source(reading)
            # A bad batch costs no turn, as in the feed threads.
            self._turn += state.lane.rotates
            if feeds is not None:
                reading.dealt.append(feeds)
            else:
                for each in sharing:
                    each.ended = True
        finally:
            reading.feeder.source_secs += reading.feeder.now(BETWEEN_STEPS)

    def _read_source(self, state: _TowerState) -> dict[Any, Any] | None:
        """The feeds of the next batch that is not skipped; None at the end."""
        with errors_only(f"'{state.lane.name}'"):
            while (numbered := state.reader.take()) is not None:
                try:
                    if numbered.error is not None:
                        raise numbered.error
                    arrays = state.lane.arrays(numbered.number, numbered.batch)
                except state.lane.ignored.types as error:
                    self._skip(state, error)
                    continue
                state.feeder.batch = numbered.number
                state.feeder.count(arrays)
                feeds = dict(zip(state.lane.sink.placeholders, arrays, strict=True))
                return feeds | self._count(state, numbered.number)
        return None

    def _read_graph(self, state: _TowerState) -> dict[Any, Any] | None:
        """As `_read_source`, of what the graph computes: the tensors at which the data can end."""
        if state.read_ends is None:
            return {}
        while True:
            try:
                values = state.read_ends()
            except tf.errors.OutOfRangeError:
                return None
            except state.lane.ignored.types as error:
                self._skip(state, error)
                continue
            # A session gives scalars as Python's own, and callables take arrays only.
            return {
                tensor: np.asarray(value, tensor.dtype.as_numpy_dtype)
                for tensor, value in zip(state.tower.ends, values, strict=True)
            }

    def _skip(self, state: _TowerState, error: BaseException) -> None:
        state.skips.skip(error)
        state.feeder.ignored += 1

    def _count(self, state: _TowerState, number: int) -> dict[Any, Any]:
        """The feed that says for how many batches the one of this number stands."""
        passed, state.passed = state.passed, number + 1
        count = state.tower.sink.count
        return {} if count is None else {count: state.passed - passed}

    def _check_not_empty(self, states: list[_TowerState]) -> None:
        empty = [state.lane.name for state in states if not state.staged]
        if not empty:
            return
        left = [state.lane.name for state in states if state.staged]
        more = f" Still staged, and not taken: {', '.join(left)}; run those towers alone." if left else ""
        raise tf.errors.OutOfRangeError(None, None, f"End of data in lockstep: {', '.join(empty)}.{more}")


def repair_all(locksteps: Iterable[Lockstep], session: Any) -> None:
    """Puts right what a step that failed has left in all `locksteps`, by as few runs as possible."""
    towers = [state for lockstep in locksteps for state in lockstep.towers]
    release_stranded([(state.tower.sink, state.pending or {}) for state in towers], session)
    repair([(state.tower.sink, lambda: (0, 0)) for state in towers], session)
    _settle(towers, session)


def _settle(towers: Iterable[_TowerState], session: Any) -> None:
    """Finds out how far a run got that failed after `before`: whether its put and its get were done."""
    in_flight = [state for state in towers if state.in_flight]
    if not in_flight:
        return
    found = session.run([(state.tower.sink.size, state.tower.sink.meter.value) for state in in_flight])
    for state, (size, sums) in zip(in_flight, found, strict=True):
        taken = Meter.reading(sums).batches
        was_put = int(size) - state.staged + (taken - state.taken) > 0
        if was_put:
            state.pending = None
        state.staged, state.taken, state.in_flight = int(size), taken, False
