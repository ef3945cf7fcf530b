"""Arrays that TensorFlow uses without a copy.

TensorFlow does not copy a fed array that starts on a 64-byte boundary: tensor and array share the memory. numpy aligns
to 16 bytes only, so whether its arrays are copied is a matter of chance. Arrays of this module are never copied.
"""

from __future__ import annotations

import ctypes
import math
import weakref
from collections import deque
from collections.abc import Callable
from typing import Any

import numpy as np

from staging_tf1.arguments import INT64_MAX, as_int, refuse
from staging_tf1.spec.arrays import as_numpy_dtype

# Eigen's EIGEN_MAX_ALIGN_BYTES with AVX-512, which TensorFlow requires of memory that it does not own.
ALIGNMENT_BYTES = 64


# Memory of freed batches is reused. Where malloc returns large blocks to the system, page faults in new blocks take
# longer than filling them. malloc keeps smaller blocks itself, and larger blocks would hold too much memory.
_FROM_BYTES, _TO_BYTES, _MOST_HELD = 64 << 10, 64 << 20, 8


class Memory(np.ndarray[Any, Any]):
    """The memory of one `aligned_empty` array. `given_away` is set once a source has delivered it."""

    given_away = False


class _Block(bytearray):
    """The buffer of a `Memory`. If it were an array, numpy would make it the base of our arrays instead."""

    __slots__ = ("loan",)
    loan: Loan | None


class Loan(weakref.ref["np.ndarray[Any, Any]"]):
    """Goes to a queue when the last array in some memory is freed, and says what may be used again.

    Memory may be freed at any moment. So the callback is the `append` or `put` of a queue, which is written in C: it is
    atomic, takes no lock that the same thread may hold, and runs no Python code. A `__del__` would not do: Python drops
    a KeyboardInterrupt raised in it, and the main thread would run it after each step.
    """

    __slots__ = ("lent",)
    lent: Any


_returned: deque[Loan] = deque()

# In a worker process, while it makes a batch: allocates in the shared buffer. May return None.
_allocate: Callable[[int], Memory | None] | None = None


def allocate_with(allocate: Callable[[int], Memory | None] | None) -> None:
    """Make `aligned_empty` allocate with a function from bytes to memory on a 64-byte boundary; None ends that."""
    global _allocate
    _allocate = allocate


def aligned_empty(shape: int | tuple[int, ...], dtype: Any) -> np.ndarray[Any, Any]:
    """Create an uninitialized C-ordered array that starts on a 64-byte boundary, otherwise like `np.empty`.

    The shape is an integer, or a tuple or list of integers. A `transform` that returns such an array must not write to
    it again, because TensorFlow reads it in place.

    Raises:
      TypeError, ValueError: the shape or the dtype is invalid.
      MemoryError: not enough memory.

    >>> is_aligned(aligned_empty((3, 5), np.float32))
    True
    """
    try:
        dims = shape if type(shape) is tuple else (shape,) if type(shape) is int else _checked_dims(shape)
        return _empty(dims, np.dtype(dtype))
    except MemoryError:
        raise
    # Validation is deferred to the error path, because every batch comes through here.
    except Exception:
        dims, checked = _checked_dims(shape), _checked_dtype(dtype)
        if math.prod(dims) * checked.itemsize > INT64_MAX - ALIGNMENT_BYTES:
            refuse("aligned_empty()", "shape", shape, "a shape of less than 2**63 bytes", ValueError)
        return _empty(dims, checked)


def _empty(dims: tuple[int, ...], dtype: np.dtype[Any]) -> np.ndarray[Any, Any]:
    if dtype.hasobject:  # TensorFlow always copies strings
        return np.empty(dims, dtype)
    count = math.prod(dims)
    if count < 0:  # np.ndarray would infer a dimension of -1 from the buffer
        raise ValueError
    memory = _memory(count * dtype.itemsize + ALIGNMENT_BYTES)
    array: np.ndarray[Any, Any] = np.ndarray(dims, dtype, memory, -_address(memory) % ALIGNMENT_BYTES)
    return array


def _checked_dims(shape: Any) -> tuple[int, ...]:
    listed = shape if isinstance(shape, (tuple, list)) else (shape,)
    expected = "a whole number or a tuple of them, each 0 or more"
    dims = [as_int(dim) for dim in listed]
    if any(dim is None for dim in dims):
        refuse("aligned_empty()", "shape", shape, expected)
    known = tuple(dim for dim in dims if dim is not None)
    if any(not 0 <= dim <= INT64_MAX for dim in known):
        refuse("aligned_empty()", "shape", shape, expected, ValueError)
    return known


def _checked_dtype(dtype: Any) -> np.dtype[Any]:
    try:
        checked: np.dtype[Any] = np.dtype(dtype)
        return checked
    except Exception:
        refuse("aligned_empty()", "dtype", dtype, "a numpy dtype, such as np.float32")


def _memory(nbytes: int) -> Memory:
    if _allocate is not None:
        allocated = _allocate(nbytes)
        if allocated is not None:
            return allocated
    if not _FROM_BYTES <= nbytes <= _TO_BYTES:
        return np.ndarray.__new__(Memory, nbytes, np.uint8)
    # Round up, so that batches of slightly different sizes can reuse each other's memory.
    step = 1 << (nbytes.bit_length() - 4)
    size = -(-nbytes // step) * step
    block = _used_before(size) or _Block(size)
    memory = np.ndarray.__new__(Memory, size, np.uint8, block)
    loan = Loan(memory, _returned.append)
    # A reference cycle keeps the loan alive while the block is in use.
    block.loan, loan.lent = loan, block
    return memory


def _used_before(size: int) -> _Block | None:
    block = None
    try:
        for _ in range(len(_returned)):
            loan = _returned.popleft()
            if block is None and len(loan.lent) == size:
                block = loan.lent
            elif len(_returned) < _MOST_HELD:
                _returned.append(loan)
            else:
                loan.lent.loan = None
    except IndexError:  # another thread took the last block
        pass
    return block


def aligned_copy(array: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    """Copy an array to new memory on a 64-byte boundary, C-ordered and in native byte order."""
    copy = aligned_empty(array.shape, array.dtype if array.dtype.isnative else as_numpy_dtype(array.dtype))
    np.copyto(copy, array)
    return copy


def is_aligned(array: np.ndarray[Any, Any]) -> bool:
    """Whether TensorFlow reads `array` in place: it is C-ordered and starts on a 64-byte boundary."""
    return bool(array.flags.c_contiguous) and _address(array) % ALIGNMENT_BYTES == 0


def memory_of(array: np.ndarray[Any, Any]) -> Memory | None:
    """Return the `aligned_empty` memory that holds `array`, or None."""
    base: Any = array
    while isinstance(base, np.ndarray) and not isinstance(base, Memory):
        base = base.base
    return base if isinstance(base, Memory) else None


def _address(array: Any) -> int:
    try:
        # Takes a quarter of the time of numpy's own interfaces.
        return ctypes.addressof(ctypes.c_char.from_buffer(array))
    except (TypeError, ValueError, BufferError):  # read-only, empty, not contiguous, or a dtype without a buffer
        return int(array.__array_interface__["data"][0])
