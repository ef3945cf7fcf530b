"""A bounded in-memory cache of records."""

from __future__ import annotations

import sys
import threading
from typing import Any

import numpy as np

from staging_tf1.spec import flatten

__all__ = ["RecordCache"]


class RecordCache:
    """Keeps the first records that fit into `limit_bytes`, counting arrays and strings. Thread-safe.

    Nothing is evicted. Each epoch reads each record once, so a least-recently-used cache smaller than the data would
    evict each record just before its next use and never hit.
    """

    def __init__(self, limit_bytes: int) -> None:
        self.limit_bytes = limit_bytes
        self.held_bytes = 0
        self._records: dict[int, Any] = {}
        self._lock = threading.Lock()

    def __getstate__(self) -> dict[str, Any]:
        # Each process has a cache of its own, which begins empty.
        return {"limit_bytes": self.limit_bytes}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__init__(state["limit_bytes"])  # type: ignore[misc]

    def __len__(self) -> int:
        return len(self._records)

    def get(self, number: int) -> Any:
        """Return the record, or None."""
        return self._records.get(number)

    def offer(self, number: int, record: Any) -> None:
        """Store the record if it fits."""
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
