"""A sample of the records of a source in memory. It tells the workers of a cluster whether they have the same.

Integers and texts are hashed. Floats are summed up, and compared with a tolerance: another machine may have computed
them with other instructions.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Iterable
from typing import Any

import numpy as np

from staging_tf1.spec import flatten_with_paths

__all__ = ["Content", "content_of_columns", "content_of_items"]

# By component: a hash, and the sums of floats.
Content = dict[str, tuple[str, list[float]]]

# Records in a sample, spread evenly, with the first and the last.
_RECORDS = 32
# Values that count, of each component of a record; and components.
_VALUES = 1 << 16
_COMPONENTS = 32


def content_of_columns(columns: Any) -> Content:
    """Return the content of a nest of arrays with one row per record; empty if one is no array in memory."""
    named = flatten_with_paths(columns)
    if not all(isinstance(column, np.ndarray) for _, column in named):
        # Others read and decompress whole blocks.
        return {}
    return {
        f"component '{path}'" if path else "the array": _sampled([column[place]] for place in _places(len(column)))
        for path, column in named[:_COMPONENTS]
    }


def content_of_items(items: Any) -> Content:
    """Return the content of a list or tuple of plain values; empty for anything else, whose code may be slow."""
    if type(items) not in (list, tuple):
        return {}
    try:
        return {"the records": _sampled(_leaves(items[place]) for place in _places(len(items)))}
    except _NotPlain:
        return {}


class _NotPlain(Exception):
    """A record holds an object whose content is unknown."""


def _places(count: int) -> list[int]:
    return sorted({place * (count - 1) // (_RECORDS - 1) for place in range(_RECORDS)})


def _sampled(records: Iterable[Iterable[Any]]) -> tuple[str, list[float]]:
    digest, sums = hashlib.blake2b(digest_size=12), []
    for record in records:
        for value in record:
            array = np.asarray(value).reshape(-1)[:_VALUES]
            kind = array.dtype.kind
            if kind in "biu":
                digest.update(array.astype("<i8").tobytes())
            # V is the kind of bfloat16 and its like.
            elif kind in "fV":
                # Weighted, so that another order has another sum.
                sums.append(float(array.astype(np.float64) @ np.linspace(1.0, 2.0, len(array))))
            elif kind == "c":
                sums += [float(part.astype(np.float64).sum()) for part in (array.real, array.imag)]
            else:
                digest.update(b"\0".join(map(_as_bytes, array.tolist())))
            digest.update(b"\1")
    return digest.hexdigest(), sums


def _leaves(record: Any) -> Iterable[Any]:
    if type(record) is dict:
        for key, value in record.items():
            yield str(key)
            yield from _leaves(value)
    elif type(record) in (list, tuple):
        for value in record[:_VALUES]:
            yield from _leaves(value)
    elif isinstance(record, (str, bytes, bool, int, float, np.ndarray, np.generic)):
        yield record
    else:
        raise _NotPlain


def _as_bytes(text: Any) -> bytes:
    if isinstance(text, bytes):
        return text
    # A path may lead through other folders on another machine.
    return str(text).rpartition(os.sep)[2].encode(errors="surrogatepass")
