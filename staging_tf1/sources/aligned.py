"""Memory that TensorFlow takes over without a copy.

A fed array that starts on a 64-byte boundary is not copied: the tensor and the array are the same memory.
numpy itself aligns to 16 bytes, so its arrays are copied, sometimes: here they never are.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

__all__ = ["ALIGNMENT_BYTES", "aligned_copy", "aligned_empty", "is_aligned"]

# Eigen's EIGEN_MAX_ALIGN_BYTES with AVX-512: what TensorFlow asks of memory that it does not own.
ALIGNMENT_BYTES = 64


class _Memory(np.ndarray[Any, Any]):
    """The bytes behind one `aligned_empty` array: `given_away` once a source has handed it over."""

    given_away = False


def aligned_empty(shape: int | tuple[int, ...], dtype: Any) -> np.ndarray[Any, Any]:
    """An uninitialised C-ordered array that starts on a 64-byte boundary, like `np.empty` otherwise.

    A `transform` that returns such an array hands it over: TensorFlow reads it in place, so it must not be
    written again.

    >>> is_aligned(aligned_empty((3, 5), np.float32))
    True
    """
    dtype = np.dtype(dtype)
    if dtype.hasobject:  # TensorFlow always copies strings
        return np.empty(shape, dtype)
    dims = (shape,) if isinstance(shape, int) else tuple(shape)
    nbytes = math.prod(dims) * dtype.itemsize
    memory = np.ndarray.__new__(_Memory, nbytes + ALIGNMENT_BYTES, np.uint8)
    offset = -_address(memory) % ALIGNMENT_BYTES
    array: np.ndarray[Any, Any] = np.ndarray(dims, dtype, memory, offset)
    return array


def aligned_copy(array: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    """A fresh C-ordered copy that starts on a 64-byte boundary."""
    copy = aligned_empty(array.shape, array.dtype)
    np.copyto(copy, array)
    return copy


def is_aligned(array: np.ndarray[Any, Any]) -> bool:
    """Whether TensorFlow would read `array` in place: C-ordered and on a 64-byte boundary."""
    return bool(array.flags.c_contiguous) and _address(array) % ALIGNMENT_BYTES == 0


def memory_of(array: np.ndarray[Any, Any]) -> _Memory | None:
    """The `aligned_empty` memory that `array` lies in, or None if it lies elsewhere."""
    base: Any = array
    while isinstance(base, np.ndarray) and not isinstance(base, _Memory):
        base = base.base
    return base if isinstance(base, _Memory) else None


def _address(array: np.ndarray[Any, Any]) -> int:
    return int(array.__array_interface__["data"][0])
