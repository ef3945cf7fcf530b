"""What the sources of `once.py` read. Worker processes import this file, and not TensorFlow."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

# Not what is read for dtypes and shapes when a source is made: 0 by MapSource, and the first of Grain's two shards.
BAD = frozenset({1, 2, 6, 11, 12, 13, 21})


class BadRecordError(Exception):
    """Raised by a source at a bad record."""


def good(value: Any) -> Any:
    """Return the value, a record's number, unless the record is bad."""
    if int(np.ravel(value)[0]) in BAD:
        raise BadRecordError(f"record {value}")
    return value


def as_is(value: Any) -> Any:
    return value


def number_in(record: Any) -> Any:
    return np.int64(bytes(record))


class Numbers:
    """A map-style dataset."""

    def __init__(self, count: int, check: Callable[[Any], Any]) -> None:
        self._count, self._check = count, check

    def __len__(self) -> int:
        return self._count

    def __getitem__(self, index: int) -> Any:
        return self._check(np.int64(index))
