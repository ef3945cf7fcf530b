"""`Acked`: which batches of a source the steps of all workers have acknowledged, as the vector that checkpoints hold.

Batch `k` has the slot `k % WINDOW`. A slot holds the first batch of its own that is not acknowledged, so it starts with
its own number, and an acknowledgement of `k` raises it to `k + WINDOW`. Batches may be acknowledged in any order within
the window. To acknowledge one twice, or too late, changes nothing: slots only grow.

Counters for each range of batches, in place of slots, would be smaller. But a second acknowledgement would count for a
batch that nobody has trained, and nobody could tell which batch of a range a failed step has taken.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

# How many batches may be under way beyond the first that is not acknowledged: 256 KiB in each checkpoint. If a worker
# dies with that first one, the others take as many before they wait until it counts as gone.
WINDOW = 2**15


class Acked:
    """Which batches have been acknowledged: all before `base`, and some from there on.

    Args:
      slots: what the variable holds.

    >>> acked = Acked([8, 5, 2, 7])
    >>> acked.base, acked.end, acked.unacked(acked.end), acked.ahead
    (2, 5, [2], 2)
    """

    def __init__(self, slots: Sequence[int] | np.ndarray[Any, Any]) -> None:
        self.slots = np.asarray(slots, np.int64)

    @classmethod
    def first(cls, batches: int, window: int = WINDOW) -> Acked:
        """Returns that in which the first `batches` have been acknowledged, and no other."""
        return cls(batches + (np.arange(window) - batches) % window)

    @property
    def is_valid(self) -> bool:
        """Whether steps can have made it."""
        slots = self.slots
        own = np.arange(slots.size)
        return bool(slots.ndim == 1 and slots.size and (slots >= 0).all() and (slots % slots.size == own).all())

    @property
    def base(self) -> int:
        """The first batch that is not acknowledged."""
        return int(self.slots.min())

    @property
    def end(self) -> int:
        """The batch after the last one that is acknowledged."""
        return int(self.slots.max()) - self.slots.size + 1

    @property
    def ahead(self) -> int:
        """How many have been acknowledged after `base`."""
        return self.end - self.base - len(self.unacked(self.end))

    def has(self, batch: int) -> bool:
        """Whether `batch` has been acknowledged."""
        return bool(self.slots[batch % self.slots.size] > batch)

    def unacked(self, end: int) -> list[int]:
        """Returns the batches before `end` that are not acknowledged, in order."""
        found = []
        late = self.slots[self.slots < end]
        while late.size:
            found += late.tolist()
            late = late + self.slots.size
            late = late[late < end]
        return sorted(found)
