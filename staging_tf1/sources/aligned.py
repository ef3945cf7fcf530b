"""Memory that TensorFlow takes over without a copy.

A fed array that starts on a 64-byte boundary is not copied: the tensor and the array are the same memory.
numpy itself aligns to 16 bytes, so its arrays are copied, sometimes: here they never are.
"""

from __future__ import annotations

import ctypes
import math
import weakref
from collections import deque
from typing import Any

import numpy as np

from staging_tf1.arguments import INT64_MAX, as_int, refuse
from staging_tf1.arrays import as_numpy_dtype

__all__ = ["ALIGNMENT_BYTES", "aligned_copy", "aligned_empty", "is_aligned"]

# Eigen's EIGEN_MAX_ALIGN_BYTES with AVX-512: what TensorFlow asks of memory that it does not own.
ALIGNMENT_BYTES = 64


# Memory of batches that are gone, for those to come: where malloc gives every large block back to the system, its fresh
# pages cost more time than filling them. Small blocks malloc keeps itself; larger ones are too much to hold.
_FROM_BYTES, _TO_BYTES, _MOST_HELD = 64 << 10, 64 << 20, 8


class _Memory(np.ndarray[Any, Any]):
    """The bytes behind one `aligned_empty` array: `given_away` once a source has handed it over."""

    given_away = False


class _Block(bytearray):
    """What a `_Memory` lies in. Not an array: numpy would make it the base of our arrays in place of the `_Memory`."""

    __slots__ = ("loan",)
    loan: _Loan | None


class _Loan(weakref.ref[_Memory]):
    """Comes back to `_returned` when the last array that lies in its `_Memory` is gone.

    Not by a `__del__`: Python drops a KeyboardInterrupt that arrives in one, and the main thread runs it right after
    each step. A deque's own append runs no Python code, and is atomic: memory may return at any moment.
    """

    __slots__ = ("block",)
    block: _Block


_returned: deque[_Loan] = deque()


def aligned_empty(shape: int | tuple[int, ...], dtype: Any) -> np.ndarray[Any, Any]:
    """An uninitialised C-ordered array that starts on a 64-byte boundary, like `np.empty` otherwise.

    A `transform` that returns such an array hands it over: TensorFlow reads it in place, so it must not be
    written again.

    Args:
      shape: a whole number, or a tuple or list of them.
      dtype: a numpy dtype, or what `np.dtype` makes one of.

    Raises:
      TypeError, ValueError: they are none.
      MemoryError: there is not so much memory.

    >>> is_aligned(aligned_empty((3, 5), np.float32))
    True
    """
    try:
        dims = shape if type(shape) is tuple else (shape,) if type(shape) is int else _checked_dims(shape)
        return _empty(dims, np.dtype(dtype))
    except MemoryError:
        raise
    # Looked into only now: every batch comes this way.
    except Exception:
        dims, checked = _checked_dims(shape), _checked_dtype(dtype)
        if math.prod(dims) * checked.itemsize > INT64_MAX - ALIGNMENT_BYTES:
            refuse("aligned_empty()", "shape", shape, "a shape of less than 2**63 bytes", ValueError)
        return _empty(dims, checked)


def _empty(dims: tuple[int, ...], dtype: np.dtype[Any]) -> np.ndarray[Any, Any]:
    if dtype.hasobject:  # TensorFlow always copies strings
        return np.empty(dims, dtype)
    count = math.prod(dims)
    if count < 0:  # numpy takes a -1 for "as many as there are bytes for"
        raise ValueError
    memory = _memory(count * dtype.itemsize + ALIGNMENT_BYTES)
    array: np.ndarray[Any, Any] = np.ndarray(dims, dtype, memory, -_address(memory) % ALIGNMENT_BYTES)
    return array


def _checked_dims(shape: Any) -> tuple[int, ...]:
    listed = shape if isinstance(shape, (tuple, list)) else (shape,)
    wanted = "a whole number or a tuple of them, each 0 or more"
    dims = [as_int(dim) for dim in listed]
    if any(dim is None for dim in dims):
        refuse("aligned_empty()", "shape", shape, wanted)
    known = tuple(dim for dim in dims if dim is not None)
    if any(not 0 <= dim <= INT64_MAX for dim in known):
        refuse("aligned_empty()", "shape", shape, wanted, ValueError)
    return known


def _checked_dtype(dtype: Any) -> np.dtype[Any]:
    try:
        made: np.dtype[Any] = np.dtype(dtype)
        return made
    except Exception:
        refuse("aligned_empty()", "dtype", dtype, "a numpy dtype, such as np.float32")


def _memory(nbytes: int) -> _Memory:
    if not _FROM_BYTES <= nbytes <= _TO_BYTES:
        return np.ndarray.__new__(_Memory, nbytes, np.uint8)
    # Batches whose length varies a little fit each other's memory.
    step = 1 << (nbytes.bit_length() - 4)
    size = -(-nbytes // step) * step
    block = _used_before(size) or _Block(size)
    memory = np.ndarray.__new__(_Memory, size, np.uint8, block)
    loan = _Loan(memory, _returned.append)
    # Each holds the other, so that the loan lives as long as the block is lent.
    block.loan, loan.block = loan, block
    return memory


def _used_before(size: int) -> _Block | None:
    found = None
    try:
        for _ in range(len(_returned)):
            loan = _returned.popleft()
            if found is None and len(loan.block) == size:
                found = loan.block
            elif len(_returned) < _MOST_HELD:
                _returned.append(loan)
            else:
                loan.block.loan = None
    except IndexError:  # another thread was faster
        pass
    return found


def aligned_copy(array: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    """A fresh C-ordered copy that starts on a 64-byte boundary, in native byte order."""
    copy = aligned_empty(array.shape, array.dtype if array.dtype.isnative else as_numpy_dtype(array.dtype))
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


def _address(array: Any) -> int:
    try:
        # A quarter of what numpy's own ways to ask take.
        return ctypes.addressof(ctypes.c_char.from_buffer(array))
    except (TypeError, ValueError, BufferError):  # read-only, empty, not contiguous, or of a dtype without a buffer
        return int(array.__array_interface__["data"][0])
