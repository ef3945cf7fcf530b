"""`TowerBarrier`: several towers get whole rounds, one batch each, or nothing."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum


class _Phase(Enum):
    # A batch is released when every tower has staged its part of the round.
    TOGETHER = "together"
    # Every batch is released at once, because a step wants some of the towers only.
    SEPARATE = "separate"
    # The same, because the last common step would otherwise wait forever.
    RESCUE = "rescue"


@dataclass
class _Tower:
    """Batches of one tower, counted."""

    staged: int = 0
    released: int = 0
    ended: bool = False
    closed: bool = False


class TowerBarrier:
    """Decides when the staged batches of several towers may be taken. Thread-safe.

    A step takes one batch from every tower. If one tower had ended, that step would fail, and what it took from the
    others would be lost. So a batch is released only when every tower has staged its part of the round.
    """

    def __init__(self, towers: int) -> None:
        self._towers = [_Tower() for _ in range(towers)]
        self._phase = _Phase.TOGETHER
        # The last step wanted some of the towers only.
        self._asked_alone = False
        self._draining = False
        # Failed steps have taken more batches from some towers than from others.
        self._uneven = False
        self._lock = threading.Lock()

    def staged_one(self, tower: int) -> list[tuple[int, int]]:
        """Counts a batch that `tower` staged; returns the (tower, batches) to release."""
        with self._lock:
            self._towers[tower].staged += 1
            return self._due()

    def end(self, tower: int) -> list[tuple[int, int]]:
        """Notes that `tower` will stage no more; returns the (tower, batches) to release."""
        with self._lock:
            self._towers[tower].ended = True
            # The step that is waiting may want one of the other towers only.
            if self._asked_alone:
                self._phase = _Phase.SEPARATE
            return self._due()

    def ask(self, alone: bool) -> list[tuple[int, int]]:
        """Notes whether the next step wants some of the towers only; returns the (tower, batches) to release."""
        with self._lock:
            self._asked_alone = alone
            if alone and (self._draining or any(tower.ended for tower in self._towers)):
                self._phase = _Phase.SEPARATE
            return self._due()

    def drain(self) -> None:
        """Notes that every tower will end soon. Whole rounds continue until a step asks for some of the towers only."""
        with self._lock:
            self._draining = True

    def note_taken(self, batches: Sequence[int]) -> None:
        """Notes how many batches have been taken from each tower, after a step that failed."""
        with self._lock:
            self._uneven = len(set(batches)) > 1

    def rescue(self) -> list[tuple[int, int]]:
        """The (tower, batches) to release because a common step may wait for them and nothing else will come.

        When failed steps have taken from some towers only, the last whole round is not the last step's. That step has
        what it needs from one tower, and would wait forever for what is withheld from another.
        """
        if not (self._uneven and self.over):
            return []
        with self._lock:
            if self._phase is _Phase.TOGETHER:
                self._phase = _Phase.RESCUE
            return self._due()

    def to_close(self) -> list[int]:
        """The towers that nothing more can come from; each is returned once."""
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
        """For each tower, the staged batches that no whole round could use."""
        with self._lock:
            return [tower.staged - tower.released for tower in self._towers]

    @property
    def over(self) -> bool:
        """Whether every possible whole round has been released: a tower has ended, and none lags behind it."""
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
