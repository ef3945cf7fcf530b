"""A bounded store of records in memory."""

from __future__ import annotations

import sys
import threading
from typing import Any

import numpy as np

from staging_tf1.spec import flatten

__all__ = ["RecordCache"]


class RecordCache:
    """Keeps the records that come first until `limit_bytes` are full, and then no more. Thread-safe.

    Nothing is thrown out: each epoch needs each record once, so that a least-recently-used cache smaller than
      the
    data would throw out each record just before it is needed, and never hit.

    Args:
      limit_bytes: of the records' arrays or strings, without what Python needs to hold them; 0 keeps nothing.
    """

    def __init__(self, limit_bytes: int) -> None:
        self.limit_bytes = limit_bytes
        self.held_bytes = 0
        self._records: dict[int, Any] = {}
        self._lock = threading.Lock()

    def __len__(self) -> int:
        return len(self._records)

    def get(self, number: int) -> Any:
        """The record, or None."""
        return self._records.get(number)

    def offer(self, number: int, record: Any) -> None:
        """Keeps the record if there is room."""
        if self.held_bytes >= self.limit_bytes:
            return
        size = sum(_size(leaf) for leaf in flatten(record))
        with self._lock:
            if number not in self._records and self.held_bytes + size <= self.limit_bytes:
                self._records[number] = record
                self.held_bytes += size


def _size(leaf: Any) -> int:
    if isinstance(leaf, np.ndarray):
        own = leaf.nbytes
        return own + sum(len(value) for value in leaf.flat) if leaf.dtype.hasobject else own
    return len(leaf) if isinstance(leaf, (bytes, str)) else sys.getsizeof(leaf)
