"""Memory that TensorFlow takes over without a copy.

A fed array that starts on a 64-byte boundary is not copied: the tensor and the array are the same memory.
numpy itself aligns to 16 bytes, so its arrays are copied, sometimes: here they never are.
"""

from __future__ import annotations

import math
from collections import deque
from typing import Any

import numpy as np

__all__ = ["ALIGNMENT_BYTES", "aligned_copy", "aligned_empty", "is_aligned"]

# Eigen's EIGEN_MAX_ALIGN_BYTES with AVX-512: what TensorFlow asks of memory that it does not own.
ALIGNMENT_BYTES = 64


# Memory of batches that are gone, for those to come: where malloc gives every large block back to the system, its fresh
# pages cost more time than filling them. Small blocks malloc keeps itself; larger ones are too much to hold. A deque,
# because its append and popleft are atomic: memory may return at any moment.
_FROM_BYTES, _TO_BYTES = 64 << 10, 64 << 20
_returned: deque[bytearray] = deque(maxlen=8)


class _Memory(np.ndarray[Any, Any]):
    """The bytes behind one `aligned_empty` array: `given_away` once a source has handed it over."""

    given_away = False
    # What goes back when the last array that lies in it is gone. A bytearray: were it an array, numpy would make it
    # the base of our arrays in place of this object.
    block: bytearray | None = None

    def __del__(self, returned: deque[bytearray] = _returned) -> None:
        if self.block is not None:
            returned.append(self.block)


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
    memory = _memory(math.prod(dims) * dtype.itemsize + ALIGNMENT_BYTES)
    array: np.ndarray[Any, Any] = np.ndarray(dims, dtype, memory, -_address(memory) % ALIGNMENT_BYTES)
    return array


def _memory(nbytes: int) -> _Memory:
    if not _FROM_BYTES <= nbytes <= _TO_BYTES:
        return np.ndarray.__new__(_Memory, nbytes, np.uint8)
    # Batches whose length varies a little fit each other's memory.
    step = 1 << (nbytes.bit_length() - 4)
    size = -(-nbytes // step) * step
    block = _used_before(size) or bytearray(size)
    memory = np.ndarray.__new__(_Memory, size, np.uint8, block)
    memory.block = block
    return memory


def _used_before(size: int) -> bytearray | None:
    for _ in range(len(_returned)):
        try:
            block = _returned.popleft()
        except IndexError:  # another thread was faster
            return None
        if len(block) == size:
            return block
        _returned.append(block)
    return None


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
