"""`Credit`: which batch may have shared memory next, under a limit. A pure core of `slots.py`."""

from __future__ import annotations

import itertools

__all__ = ["Credit"]


class Credit:
    """Grants memory to batches in the order in which their numbers were drawn. Not thread-safe.

    Batches are delivered in that order. So memory that a later batch holds may wait for an earlier batch, and the
    earliest one without memory must not wait for it: it may exceed the limit. No other batch may. The batches that hold
    memory then fit into the limit without the earliest one, so the excess is at most one batch.

    Args:
      limit: in bytes.
    """

    def __init__(self, limit: int) -> None:
        self.limit = limit
        # Place in the order, of each batch that was drawn and is not done.
        self._places: dict[int, int] = {}
        self._drawn = itertools.count()
        # The places of those that have no slot.
        self._without: set[int] = set()
        # By slot in use: the place of its batch, and its bytes.
        self._held: dict[int, tuple[int, int]] = {}
        self._nbytes = 0

    def draw(self, batch: int) -> None:
        """Give a batch the next place, unless it has one."""
        if batch not in self._places:
            self._places[batch] = place = next(self._drawn)
            self._without.add(place)

    def done(self, batch: int) -> None:
        """Take back the place of a batch that needs no other slot."""
        place = self._places.pop(batch, None)
        if place is not None:
            self._without.discard(place)

    def allows(self, batch: int, nbytes: int) -> bool:
        """Whether a batch may have a slot of `nbytes` now."""
        place = self._places[batch]
        if place != min(self._without):
            return False
        if self._nbytes + nbytes <= self.limit:
            return True
        if place != min(self._places.values()):
            # An earlier batch has a slot, which may turn out to be too small.
            return False
        earlier = sum(other < place for other, _ in self._held.values())
        # The program may hold the last batch that it took until it has the next one. More are on their way to it.
        return earlier == 0 or (earlier == 1 and self._nbytes <= self.limit)

    def take(self, batch: int, slot: int, nbytes: int) -> None:
        """Count a slot as in use by a batch."""
        place = self._places[batch]
        self._without.discard(place)
        self._held[slot] = place, nbytes
        self._nbytes += nbytes

    def give_back(self, slot: int) -> None:
        """Count a slot as free."""
        self._nbytes -= self._held.pop(slot, (0, 0))[1]

    def lose(self, batch: int) -> None:
        """Note that a batch has no slot: it was too small, or its worker has died."""
        if batch in self._places:
            self._without.add(self._places[batch])
