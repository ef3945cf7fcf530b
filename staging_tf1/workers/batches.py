"""How a batch travels: its arrays in a buffer, and the rest of it pickled.

The pickled part holds the structure of the batch, and values that are not arrays. They are checked in the training
process, as if a thread had made them.
"""

from __future__ import annotations

import io
import itertools
import pickle
import types
from typing import Any

import numpy as np

from staging_tf1.sources.aligned import ALIGNMENT_BYTES, aligned_copy
from staging_tf1.spec.arrays import is_plain
from staging_tf1.workers.arena import Arena, rounded
from staging_tf1.workers.by_value import class_of, number_of

__all__ = ["TooSmall", "packed", "unpacked"]

# Below this, strings are pickled: TensorFlow copies them anyway.
_STRING_BYTES = 16 << 10


class TooSmall(Exception):
    """The buffer cannot hold the batch, which needs `nbytes`."""

    def __init__(self, nbytes: int) -> None:
        super().__init__(nbytes)
        self.nbytes = nbytes


def packed(batch: Any, arena: Arena, *, keeps: bool) -> bytes:
    """Move the arrays of a batch into the buffer, unless they are there, and pickle the rest.

    Args:
      batch: the batch.
      arena: the buffer.
      keeps: whether the source keeps its arrays. They are then copied even if they are in the buffer.

    Raises:
      TooSmall: the buffer has no room for them.
    """
    file = io.BytesIO()
    arena.pack()
    packing = _Packing(file, arena, keeps)
    packing.dump(batch)
    if packing.missing:
        raise TooSmall(packing.needed)
    return file.getvalue()


def unpacked(payload: Any, memory: np.ndarray[Any, Any]) -> Any:
    """Return the batch of `packed`. Its arrays are views of `memory`, the buffer."""
    return pickle.loads(payload, buffers=itertools.repeat(memory))


class _Packing(pickle.Pickler):
    def __init__(self, file: io.BytesIO, arena: Arena, keeps: bool) -> None:
        buffer = pickle.PickleBuffer(bytearray(1))
        # The training process supplies this one, and no other. Without `self`, because a cycle would keep the arrays in
        # `_used` alive.
        super().__init__(file, 5, buffer_callback=lambda other: other is not buffer)
        self._arena, self._keeps, self._buffer = arena, keeps, buffer
        self._used: list[Any] = []
        self.needed, self.missing = 0, False

    def reducer_override(self, value: Any) -> Any:
        if type(value) in (np.memmap, memoryview):
            value = np.asarray(value)
        if type(value) is types.MappingProxyType:
            return _read_only, (dict(value),)
        if isinstance(value, type) and (number := number_of(value)) is not None:
            return class_of, (number,)
        if type(value) is not np.ndarray:
            return NotImplemented
        if value.dtype == object:
            return self._strings(value)
        if value.dtype.hasobject:
            return NotImplemented
        dtype = value.dtype.str if is_plain(value) else value.dtype
        return _array_at, (self._buffer, self._offset(value), dtype, value.shape)

    def _strings(self, value: np.ndarray[Any, Any]) -> Any:
        listed = value.reshape(-1).tolist()
        if set(map(type, listed)) != {bytes} or sum(map(len, listed)) < _STRING_BYTES:
            return NotImplemented
        joined = np.frombuffer(b"".join(listed), np.uint8)
        return _strings_at, (self._buffer, self._offset(joined), list(map(len, listed)), value.shape)

    def _offset(self, array: np.ndarray[Any, Any]) -> int:
        """Return where in the buffer the array is, after a copy if necessary."""
        self.needed += rounded(array.nbytes) + ALIGNMENT_BYTES
        offset = None if self._keeps else self._arena.offset_of(array)
        if offset is None:
            # aligned_copy allocates in the buffer as long as it has room.
            array = aligned_copy(array) if array.dtype.isnative else _copied(array)
            offset = self._arena.offset_of(array)
            # Freed memory would be used for the next array.
            self._used.append(array)
        if offset is None:
            self.missing = True
            return 0
        return offset


def _copied(array: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    """Copy an array to aligned memory as it is, in its byte order: the training process converts it."""
    raw = np.ascontiguousarray(array).reshape(-1).view(np.uint8)
    return aligned_copy(raw)


def _array_at(buffer: Any, offset: int, dtype: Any, shape: tuple[int, ...]) -> np.ndarray[Any, Any]:
    return np.ndarray(shape, dtype, buffer, offset)


def _read_only(mapping: dict[Any, Any]) -> Any:
    # pickle does not find the type, which has another name than its attribute of `types`.
    return types.MappingProxyType(mapping)


def _strings_at(buffer: Any, offset: int, lengths: list[int], shape: tuple[int, ...]) -> np.ndarray[Any, Any]:
    ends = list(itertools.accumulate(lengths, initial=offset))
    view = memoryview(buffer)
    strings = np.empty(len(lengths), object)
    strings[:] = [bytes(view[begin:end]) for begin, end in itertools.pairwise(ends)]
    return strings.reshape(shape)
