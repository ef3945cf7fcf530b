"""A sample of the records of a source in memory. It tells the workers of a cluster whether they have the same."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Iterable
from typing import Any

import numpy as np

from staging_tf1.spec import flatten_with_paths

# By component: a hash of integers and texts; the sums of floats, which another machine may round in another way.
Content = dict[str, tuple[str, list[float]]]

# Records in a sample, spread evenly, with the first and the last; values that count, of each component; components.
_RECORDS, _VALUES, _COMPONENTS = 32, 1 << 16, 32
_PLAIN = (str, bytes, bool, int, float, np.ndarray, np.generic)


def content_of_columns(columns: Any) -> Content:
    """Return the content of a nest of arrays with one row per record; empty if one is no array in memory."""
    named = flatten_with_paths(columns)
    if not all(isinstance(column, np.ndarray) for _, column in named):
        # Others read and decompress whole blocks.
        return {}
    return {
        f"component '{path}'" if path else "the array": _sample(column[place] for place in _places(len(column)))
        for path, column in named[:_COMPONENTS]
    }


def content_of_items(items: Any) -> Content:
    """Return the content of a list or tuple of plain values; empty for anything else, whose code may be slow."""
    if type(items) not in (list, tuple):
        return {}
    try:
        return {"the records": _sample(leaf for place in _places(len(items)) for leaf in _leaves(items[place]))}
    except TypeError:
        return {}


def _places(count: int) -> list[int]:
    return sorted({place * (count - 1) // (_RECORDS - 1) for place in range(_RECORDS)})


def _leaves(record: Any) -> list[Any]:
    parts = [*record, *record.values()] if type(record) is dict else record
    if type(parts) in (list, tuple):
        return [leaf for part in parts[:_VALUES] for leaf in _leaves(part)]
    if not isinstance(record, _PLAIN):
        raise TypeError(record)
    return [record]


def _sample(values: Iterable[Any]) -> tuple[str, list[float]]:
    digest, sums = hashlib.blake2b(digest_size=12), []
    for value in values:
        array = np.asarray(value).reshape(-1)[:_VALUES]
        if array.dtype.kind == "c":
            array = array.astype(np.complex128).view(np.float64)
        if array.dtype.kind in "fV":  # V is the kind of bfloat16 and its like
            # Weighted, so that another order has another sum.
            sums.append(float(array.astype(np.float64) @ np.linspace(1.0, 2.0, len(array))))
        elif array.dtype.kind in "biu":
            digest.update(array.astype("<i8").tobytes() + b"\1")
        else:
            # A path may lead through other folders on another machine.
            texts = [text if isinstance(text, bytes) else str(text).rpartition(os.sep)[2] for text in array.tolist()]
            digest.update(repr(texts).encode())
    return digest.hexdigest(), sums
