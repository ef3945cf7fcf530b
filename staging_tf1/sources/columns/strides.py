"""How many records to read at once while a cache is built, so they take little memory whatever their size."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from staging_tf1.spec import flatten

__all__ = ["BYTES_AT_ONCE", "MOST_AT_ONCE", "Strides"]

# Records or bytes that are read at once from an input with random access.
MOST_AT_ONCE, BYTES_AT_ONCE = 256, 8 << 20


class Strides:
    """Ranges of record numbers, (first, end): one record at first, and then as many as their sizes allow.

    The first record does not say how large the others are. So each range has at most as many records as all before it,
    and `note` gets what was read.

    >>> list(Strides(0, 10))
    [(0, 1), (1, 2), (2, 4), (4, 8), (8, 10)]

    Args:
      start, total: the first record, and the number of all.
      least: how many to read at once even if they are large.
    """

    def __init__(self, start: int, total: int, least: int = 1) -> None:
        self._start, self._total, self._least = start, total, least
        self._count, self._most = 0, MOST_AT_ONCE

    def __iter__(self) -> Iterator[tuple[int, int]]:
        first = self._start
        while first < self._total:
            self._count = max(self._least, min(first - self._start, self._most))
            end = min(self._total, first + self._count)
            yield first, end
            first = end

    def note(self, records: Any) -> None:
        """Note the records of the last range: a list, or a nest of columns."""
        each = sum(map(_bytes_of, flatten(records))) // self._count
        self._most = min(MOST_AT_ONCE, BYTES_AT_ONCE // max(1, each))


def _bytes_of(leaf: Any) -> int:
    """Return the size of a leaf. An object of unknown type counts as a number."""
    if isinstance(leaf, (str, bytes)):
        return len(leaf)
    if isinstance(leaf, np.ndarray) and leaf.dtype.hasobject:
        return sum(map(_bytes_of, leaf.flat))
    if isinstance(leaf, (list, tuple)):
        return sum(map(_bytes_of, leaf))
    return int(getattr(leaf, "nbytes", 8))
