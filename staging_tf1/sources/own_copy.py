"""`own_copy`: a record for a function of the user's, which may change it in place."""

from __future__ import annotations

import contextlib
import copy
from typing import Any

import numpy as np

from staging_tf1.spec.ragged import RaggedValue
from staging_tf1.spec.sparse import SparseValue

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
    return _own(record, {})


def _own(value: Any, copies: dict[int, Any]) -> Any:
    """Copy a part of a record. `copies` has those made so far, by the id of the original: a part may occur twice."""
    kind = type(value)
    if kind in _UNCHANGING:
        return value
    if id(value) not in copies:
        copies[id(value)] = _copied(value, kind, copies)
    return copies[id(value)]


def _copied(value: Any, kind: type[Any], copies: dict[int, Any]) -> Any:
    own: Any
    if isinstance(value, np.ndarray):
        return _own_array(value, copies)
    if kind is dict:
        # Noted before it is filled, because it may hold itself.
        own = copies[id(value)] = {}
        for key, each in value.items():
            own[key] = _own(each, copies)
        return own
    if kind is list or kind is tuple:
        # Long lists of numbers are common.
        if _UNCHANGING.issuperset(map(type, value)):
            return kind(value)
        if kind is tuple:
            return tuple([_own(each, copies) for each in value])
        own = copies[id(value)] = []
        own.extend(_own(each, copies) for each in value)
        return own
    if isinstance(value, (set, bytearray, np.void)):
        return value.copy()
    if isinstance(value, (SparseValue, RaggedValue)):
        return value._map(own_copy)
    return _of_subclass(value, copies) if isinstance(value, (dict, list, tuple)) or _is_tensor(value) else value


def _own_array(array: np.ndarray[Any, Any], copies: dict[int, Any]) -> np.ndarray[Any, Any]:
    if array.dtype.kind == "O" and array.ndim and not _UNCHANGING.issuperset(map(type, array.flat)):
        own: np.ndarray[Any, Any] = np.frompyfunc(lambda value: _own(value, copies), 1, 1)(array)
        return own
    # Writing to a read-only array raises an error.
    return array.copy("K") if array.flags.writeable else array


def _is_tensor(value: Any) -> bool:
    return type(value).__module__ == "torch" and type(value).__name__ == "Tensor"


def _of_subclass(record: Any, copies: dict[int, Any]) -> Any:
    """Copy a tensor of torch, a named tuple, or another subclass of dict, list or tuple, which may refuse a copy."""
    with contextlib.suppress(Exception):
        if _is_tensor(record):
            return record.clone()
        if isinstance(record, tuple):
            parts = [_own(value, copies) for value in record]
            own = record._make(parts) if hasattr(record, "_make") else tuple.__new__(type(record), parts)
        else:
            own = copies[id(record)] = copy.copy(record)
            if isinstance(own, dict):
                dict.update(own, {key: _own(value, copies) for key, value in dict.items(record)})
            else:
                list.__setitem__(own, slice(None), [_own(value, copies) for value in list.__iter__(record)])
        attributes = getattr(record, "__dict__", None)
        if attributes is record:
            # A dict whose items are its attributes.
            object.__setattr__(own, "__dict__", own)
        elif attributes:
            own.__dict__.update({name: _own(value, copies) for name, value in attributes.items()})
        return own
    return record
