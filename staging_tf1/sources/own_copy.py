"""`own_copy`: a record for a function of the user's, which may change it in place."""

from __future__ import annotations

import contextlib
import copy
from typing import Any

import numpy as np

from staging_tf1.spec.ragged import RaggedValue
from staging_tf1.spec.sparse import SparseValue

__all__ = ["own_copy"]

# Values of these types cannot be changed in place.
_UNCHANGING = frozenset({bool, int, float, complex, str, bytes, type(None)})


def own_copy(record: Any) -> Any:
    """Copy the dicts, lists, sets and arrays of a record, at any depth.

    Objects of other types, such as images and open files, are returned as they are: a deep copy of one may copy all
    that it refers to, or fail.

    >>> record = {"x": np.zeros(2), "words": ["a", "b"]}
    >>> own = own_copy(record)
    >>> own["x"] += 1
    >>> own["words"].sort(reverse=True)
    >>> record
    {'x': array([0., 0.]), 'words': ['a', 'b']}
    """
    kind = type(record)
    if kind in _UNCHANGING:
        return record
    if isinstance(record, np.ndarray):
        return _own_array(record)
    if kind is dict:
        return {key: own_copy(value) for key, value in record.items()}
    if kind is list or kind is tuple:
        # Long lists of numbers are common.
        return kind(record) if _UNCHANGING.issuperset(map(type, record)) else kind(map(own_copy, record))
    if isinstance(record, (set, bytearray, np.void)):
        return record.copy()
    if isinstance(record, (SparseValue, RaggedValue)):
        return record._map(own_copy)
    return _of_subclass(record) if isinstance(record, (dict, list, tuple)) or _is_tensor(record) else record


def _own_array(array: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    if array.dtype.kind == "O" and array.ndim and not _UNCHANGING.issuperset(map(type, array.flat)):
        own: np.ndarray[Any, Any] = np.frompyfunc(own_copy, 1, 1)(array)
        return own
    # Writing to a read-only array raises an error.
    return array.copy("K") if array.flags.writeable else array


def _is_tensor(value: Any) -> bool:
    return type(value).__module__ == "torch" and type(value).__name__ == "Tensor"


def _of_subclass(record: Any) -> Any:
    """Copy a tensor of torch, a named tuple, or another subclass of dict, list or tuple, which may refuse a copy."""
    with contextlib.suppress(Exception):
        if _is_tensor(record):
            return record.clone()
        if isinstance(record, tuple):
            parts = map(own_copy, record)
            return record._make(parts) if hasattr(record, "_make") else tuple.__new__(type(record), parts)
        own = copy.copy(record)
        if isinstance(own, dict):
            dict.update(own, {key: own_copy(value) for key, value in dict.items(record)})
        else:
            list.__setitem__(own, slice(None), [own_copy(value) for value in list.__iter__(record)])
        return own
    return record
