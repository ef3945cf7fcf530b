"""`Arena`: the memory of one buffer in the worker that writes batches to it."""

from __future__ import annotations

import mmap
import sys
import threading
import weakref
from typing import Any

import numpy as np

from staging_tf1.sources.aligned import ALIGNMENT_BYTES, Memory

__all__ = ["Arena", "mapped", "rounded"]

# By default Python keeps a copy of the descriptor for resizing. Many buffers would then exceed the limit of open files.
_OPTIONS: dict[str, Any] = {"trackfd": False} if sys.version_info >= (3, 13) else {}


def mapped(descriptor: int, nbytes: int) -> mmap.mmap:
    """Map the first bytes of a file. From Python 3.13 on, the mapping has no descriptor."""
    return mmap.mmap(descriptor, nbytes, **_OPTIONS)


def rounded(nbytes: int) -> int:
    """Round up to where an array may begin."""
    return -(-nbytes // ALIGNMENT_BYTES) * ALIGNMENT_BYTES


class Arena:
    """Allocates arrays in a mapped buffer, each behind the last one that is alive. Thread-safe.

    A batch is made in a buffer only after the training process has released it. Arrays in it may still be alive here:
    a source may keep one of an earlier batch.

    Attributes:
      peak: the size that the buffer needs to hold all arrays that were allocated since `begin`.
    """

    def __init__(self, descriptor: int, size: int) -> None:
        self.size = size
        self._map = mapped(descriptor, size)
        self.address = np.frombuffer(self._map, np.uint8).__array_interface__["data"][0]
        # Where each array ends, and its memory. The last one is alive.
        self._arrays: list[tuple[int, weakref.ref[Memory]]] = []
        self._lock = threading.Lock()
        self.peak = 0

    def begin(self) -> None:
        """Begin a batch."""
        with self._lock:
            self.peak = self._end()

    def pack(self) -> None:
        """Begin to pack the batch into the buffer. Arrays that are elsewhere were only kept for `peak`."""
        with self._lock:
            self._arrays = [array for array in self._arrays if array[0] <= self.size]

    def allocate(self, nbytes: int) -> Memory:
        """Return memory on a 64-byte boundary: in the buffer if it has room, else elsewhere."""
        with self._lock:
            begin = rounded(self._end())
            end = begin + nbytes
            if end <= self.size:
                memory = np.ndarray.__new__(Memory, nbytes, np.uint8, self._map, begin)
            else:
                memory = np.ndarray.__new__(Memory, nbytes, np.uint8)
            self._arrays.append((end, weakref.ref(memory)))
            self.peak = max(self.peak, end)
            return memory

    def offset_of(self, array: np.ndarray[Any, Any]) -> int | None:
        """Return where in the buffer an array begins. None if it is elsewhere, not contiguous or not aligned."""
        if not array.flags.c_contiguous:
            return None
        offset = int(array.__array_interface__["data"][0]) - self.address
        fits = offset >= 0 and offset + array.nbytes <= self.size
        return offset if fits and offset % ALIGNMENT_BYTES == 0 else None

    def _end(self) -> int:
        """Return where the last array that is alive ends."""
        while self._arrays and self._arrays[-1][1]() is None:
            self._arrays.pop()
        return self._arrays[-1][0] if self._arrays else 0
