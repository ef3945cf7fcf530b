"""`Acked`: which batches of a source the steps of all workers have acknowledged, as the vector that checkpoints hold.

Batch `k` belongs to cell `k % WINDOW`. A cell holds its first batch that is not acknowledged, so it starts with its own
number, and an acknowledgement of `k` raises it to `k + WINDOW`. Batches may be acknowledged in any order within the
window. Acknowledging one twice, or too late, changes nothing: cells only grow.

One counter for each range of batches would be smaller. But a second acknowledgement would count for a batch that nobody
has trained, and it would be unknown which batch of a range a failed step has taken.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

# How many batches may be under way after the first unacknowledged one: 256 KiB in each checkpoint. If the worker that
# has that one dies, the others take as many before they must wait until it counts as gone.
WINDOW = 2**15


class Acked:
    """Which batches have been acknowledged: all before `base`, and some after it.

    Args:
      cells: what the variable holds.

    >>> acked = Acked([8, 5, 2, 7])
    >>> acked.base, acked.end, acked.unacked(acked.end), acked.ahead
    (2, 5, [2], 2)
    """

    def __init__(self, cells: Sequence[int] | np.ndarray[Any, Any]) -> None:
        self.cells = np.asarray(cells, np.int64)

    @classmethod
    def first(cls, batches: int, window: int = WINDOW) -> Acked:
        """Return the state in which only the first `batches` have been acknowledged."""
        return cls(batches + (np.arange(window) - batches) % window)

    @property
    def is_valid(self) -> bool:
        """Whether it can be the result of acknowledgements."""
        cells = self.cells
        own = np.arange(cells.size)
        return bool(cells.ndim == 1 and cells.size and (cells >= 0).all() and (cells % cells.size == own).all())

    @property
    def base(self) -> int:
        return int(self.cells.min())

    @property
    def end(self) -> int:
        """The batch after the last one that is acknowledged."""
        return int(self.cells.max()) - self.cells.size + 1

    @property
    def ahead(self) -> int:
        """How many have been acknowledged after `base`."""
        return self.end - self.base - len(self.unacked(self.end))

    def has(self, batch: int) -> bool:
        return bool(self.cells[batch % self.cells.size] > batch)

    def unacked(self, end: int) -> list[int]:
        """Return the batches before `end` that are not acknowledged, in order."""
        unacked = []
        late = self.cells[self.cells < end]
        while late.size:
            unacked += late.tolist()
            late = late + self.cells.size
            late = late[late < end]
        return sorted(unacked)
