"""Functions and constants of numpy 1.18 that need more than another name."""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any

import numpy as np

NINF = -np.inf
PZERO = 0.0
NZERO = -0.0
sctypes: dict[str, list[type]] = {
    "int": [np.int8, np.int16, np.int32, np.int64],
    "uint": [np.uint8, np.uint16, np.uint32, np.uint64],
    "float": [np.float16, np.float32, np.float64, np.longdouble],
    "complex": [np.complex64, np.complex128, np.clongdouble],
    "others": [bool, object, bytes, str, np.void],
}


class _ByType(dict[Any, Any]):
    """A dictionary by scalar type, which computes its values."""

    def __init__(self, value: Callable[[Any], Any]) -> None:
        super().__init__()
        self._value = value

    def __missing__(self, key: Any) -> Any:
        return self._value(np.dtype(key).type)


cast = _ByType(lambda kind: lambda value: np.asarray(value).astype(kind))
nbytes = _ByType(lambda kind: np.dtype(kind).itemsize)


def alen(a: Any) -> int:
    """Return the length of the first dimension, 1 for a scalar."""
    return len(np.atleast_1d(a))


def asfarray(a: Any, dtype: Any = np.float64) -> Any:
    """Return an array of a floating-point dtype."""
    return np.asarray(a, dtype if np.issubdtype(dtype, np.inexact) else np.float64)


def asscalar(a: Any) -> Any:
    """Return the only element of an array as a Python number."""
    return np.asarray(a).item()


def disp(mesg: Any, device: Any = None, linefeed: bool = True) -> None:
    """Write a message to `device`, by default sys.stdout."""
    print(mesg, end="\n" if linefeed else "", file=device or sys.stdout, flush=True)


def fastCopyAndTranspose(a: Any) -> Any:  # numpy's spelling
    """Return a copy of the transposed array."""
    return np.array(a).T.copy()


def find_common_type(array_types: Any, scalar_types: Any) -> Any:
    """Return the dtype that holds all `array_types`, or also `scalar_types` if those are of a higher kind."""
    arrays = [np.dtype(kind) for kind in array_types]
    scalars = [np.dtype(kind) for kind in scalar_types]
    if not arrays or not scalars:
        listed = arrays or scalars
        return np.result_type(*listed) if listed else None
    most, least = np.result_type(*arrays), np.result_type(*scalars)
    order = "buifcmMOSUV"
    return least if order.index(least.kind) > order.index(most.kind) else most


def issctype(rep: Any) -> bool:
    """Return whether `rep` is a scalar type or a dtype."""
    return isinstance(rep, np.dtype) or (isinstance(rep, type) and obj2sctype(rep) not in (None, np.object_))


def issubclass_(arg1: Any, arg2: Any) -> bool:
    """Return whether `arg1` is a subclass of `arg2`; False if it is no class."""
    return isinstance(arg1, type) and issubclass(arg1, arg2)


def issubsctype(arg1: Any, arg2: Any) -> bool:
    """Return whether the scalar type of `arg1` is a subclass of that of `arg2`."""
    return issubclass_(obj2sctype(arg1), obj2sctype(arg2))


def maximum_sctype(t: Any) -> Any:
    """Return the largest scalar type of the same kind."""
    kind = obj2sctype(t)
    name = {"i": "int", "u": "uint", "f": "float", "c": "complex"}.get(np.dtype(kind).kind, "")
    return sctypes[name][-1] if name else kind


def msort(a: Any) -> Any:
    """Return a copy that is sorted along the first dimension."""
    return np.sort(a, axis=0)


def obj2sctype(rep: Any, default: Any = None) -> Any:
    """Return the scalar type of a type, dtype or array, or `default`."""
    if isinstance(rep, type) and issubclass(rep, np.generic):
        return rep
    if isinstance(rep, np.ndarray):
        return rep.dtype.type
    try:
        return np.dtype(rep).type
    except TypeError:
        return default


def sctype2char(sctype: Any) -> str:
    """Return the character code of a scalar type."""
    return str(np.dtype(sctype).char)
