"""The rounds of several towers: one batch a tower, or none."""

from __future__ import annotations

import threading
from collections.abc import Sequence


class Rounds:
    """Decides when the towers' staged batches may be taken: a whole round, one batch a tower, or none.

    A step takes one batch from every tower. If one tower has ended, that step fails, and what it had taken from the
    others would be lost; so a batch is released only when every tower has staged its part of the round.
    """

    def __init__(self, towers: int) -> None:
        self._staged = [0] * towers
        self._released = [0] * towers
        self._ended = [False] * towers
        self._closed = [False] * towers
        self._alone = self._draining = self._asked_alone = self._uneven = self._rescuing = False
        self._lock = threading.Lock()

    def staged_one(self, tower: int) -> list[tuple[int, int]]:
        """Counts a batch that `tower` staged; returns (tower, batches) to release now."""
        with self._lock:
            self._staged[tower] += 1
            return self._due()

    def end(self, tower: int) -> list[tuple[int, int]]:
        """Counts that `tower` will stage no more; returns (tower, batches) to release now."""
        with self._lock:
            self._ended[tower] = True
            # The step that waits at this moment may want one of the other towers only.
            self._alone = self._alone or self._asked_alone
            return self._due()

    def ask(self, alone: bool) -> list[tuple[int, int]]:
        """Notes whether the step that begins wants some of the towers only; returns (tower, batches) to release."""
        with self._lock:
            self._asked_alone = alone
            if alone and (self._draining or any(self._ended)):
                self._alone = True
            return self._due()

    def drain(self) -> None:
        """Counts that every tower will end soon. Whole rounds go on until a step asks for some of the towers only."""
        with self._lock:
            self._draining = True

    def note_taken(self, batches: Sequence[int]) -> None:
        """Notes how many batches have been taken of each tower, after a step that failed."""
        with self._lock:
            self._uneven = len(set(batches)) > 1

    def rescue(self) -> list[tuple[int, int]]:
        """(tower, batches) to release because a common step may wait for them that can wait for nothing else.

        Where failed steps have taken from some towers only, the last whole round is not the last step's: that has
        what it needs of one tower, and would wait for ever for what is withheld of another.
        """
        if not (self._uneven and self.over):
            return []
        with self._lock:
            self._rescuing = True
            return self._due()

    def to_close(self) -> list[int]:
        """The towers from which nothing more can come, each named once."""
        with self._lock:
            done = [
                tower
                for tower, ended in enumerate(self._ended)
                if ended and not self._closed[tower] and self._released[tower] == self._staged[tower]
            ]
            for tower in done:
                self._closed[tower] = True
            return done

    def withheld(self) -> list[int]:
        """Batches a tower has staged that no whole round could use."""
        with self._lock:
            return [staged - released for staged, released in zip(self._staged, self._released, strict=True)]

    @property
    def over(self) -> bool:
        """Whether every whole round there can be has been released: a tower has ended, and none lags behind it."""
        with self._lock:
            ends = [staged for staged, ended in zip(self._staged, self._ended, strict=True) if ended]
            return bool(ends) and not self._alone and min(self._staged) == min(ends)

    @property
    def final(self) -> set[int]:
        """The towers from which a common step can get no more than what has been released already."""
        everyone = set(range(len(self._staged)))
        if self.over:
            return everyone
        with self._lock:
            return {tower for tower in everyone if self._closed[tower]}

    def _due(self) -> list[tuple[int, int]]:
        whole = min(self._staged)
        due = []
        for tower, staged in enumerate(self._staged):
            upto = staged if self._alone or self._rescuing else max(whole, self._released[tower])
            if upto > self._released[tower]:
                due.append((tower, upto - self._released[tower]))
                self._released[tower] = upto
        return due
