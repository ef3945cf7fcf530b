"""`TowerBarrier`: releases the staged batches of several towers in whole rounds of one batch each."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum


class _Phase(Enum):
    # A batch is released when every tower has staged its part of the round.
    TOGETHER = "together"
    # Every batch is released at once, because a step takes only from some towers.
    SEPARATE = "separate"
    # Every batch is released at once, because the last common step would otherwise wait forever.
    RESCUE = "rescue"


@dataclass
class _Tower:
    """The counts of one tower's batches."""

    staged: int = 0
    released: int = 0
    ended: bool = False
    closed: bool = False


class TowerBarrier:
    """Decides when the staged batches of several towers may be taken. Thread-safe.

    A common step takes one batch from every tower. If one tower had ended, the step would fail and lose what it took
    from the others. So a batch is released only when every tower has staged its part of the round.
    """

    def __init__(self, towers: int) -> None:
        self._towers = [_Tower() for _ in range(towers)]
        self._phase = _Phase.TOGETHER
        # Whether the last announced step takes only from some towers.
        self._expects_alone = False
        self._draining = False
        # Whether failed steps have taken more batches from some towers than from others.
        self._uneven = False
        self._lock = threading.Lock()

    def staged_one(self, tower: int) -> list[tuple[int, int]]:
        """Count a batch that `tower` staged. Return the (tower, batches) to release."""
        with self._lock:
            self._towers[tower].staged += 1
            return self._due()

    def end(self, tower: int) -> list[tuple[int, int]]:
        """Record that `tower` will stage no more. Return the (tower, batches) to release."""
        with self._lock:
            self._towers[tower].ended = True
            # The waiting step may take only from other towers.
            if self._expects_alone:
                self._phase = _Phase.SEPARATE
            return self._due()

    def expect(self, alone: bool) -> list[tuple[int, int]]:
        """Record whether the next step takes only from some towers. Return the (tower, batches) to release."""
        with self._lock:
            self._expects_alone = alone
            if alone and (self._draining or any(tower.ended for tower in self._towers)):
                self._phase = _Phase.SEPARATE
            return self._due()

    def drain(self) -> None:
        """Record that every tower will end soon. Whole rounds continue until a step takes only from some towers."""
        with self._lock:
            self._draining = True

    def note_taken(self, batches: Sequence[int]) -> None:
        with self._lock:
            self._uneven = len(set(batches)) > 1

    def rescue(self) -> list[tuple[int, int]]:
        """Return the (tower, batches) to release at the end, so that no common step waits for them forever.

        After failed steps that took only from some towers, the last common step needs more than the last whole round.
        It finds a batch of one tower, and would wait forever for a batch that is withheld from another.
        """
        if not (self._uneven and self.over):
            return []
        with self._lock:
            if self._phase is _Phase.TOGETHER:
                self._phase = _Phase.RESCUE
            return self._due()

    def to_close(self) -> list[int]:
        """Return the towers that have released their last batch, each once."""
        with self._lock:
            done = [
                number
                for number, tower in enumerate(self._towers)
                if tower.ended and not tower.closed and tower.released == tower.staged
            ]
            for number in done:
                self._towers[number].closed = True
            return done

    def withheld(self) -> list[int]:
        """Return, for each tower, the number of staged batches that are not released."""
        with self._lock:
            return [tower.staged - tower.released for tower in self._towers]

    @property
    def over(self) -> bool:
        """Whether every possible whole round has been released: a tower has ended, and no other lags behind it."""
        with self._lock:
            ends = [tower.staged for tower in self._towers if tower.ended]
            return bool(ends) and self._phase is not _Phase.SEPARATE and self._whole_rounds() == min(ends)

    @property
    def final(self) -> set[int]:
        """The towers from which a common step can get no more than has been released."""
        everyone = set(range(len(self._towers)))
        if self.over:
            return everyone
        with self._lock:
            return {tower for tower in everyone if self._towers[tower].closed}

    def lags_behind(self, tower: int) -> bool:
        """Whether a whole round waits for another tower, which has staged fewer batches than `tower`."""
        with self._lock:
            behind = [other for other in self._towers if other.staged < self._towers[tower].staged and not other.ended]
            return bool(behind) and self._phase is _Phase.TOGETHER

    def _whole_rounds(self) -> int:
        return min(tower.staged for tower in self._towers)

    def _due(self) -> list[tuple[int, int]]:
        rounds = self._whole_rounds()
        due = []
        for number, tower in enumerate(self._towers):
            up_to = max(rounds, tower.released) if self._phase is _Phase.TOGETHER else tower.staged
            if up_to > tower.released:
                due.append((number, up_to - tower.released))
                tower.released = up_to
        return due
