"""`Arena`: the memory of one buffer in the worker that writes batches to it."""

from __future__ import annotations

import mmap
import sys
import threading
import weakref
from typing import Any, NamedTuple

import numpy as np

from staging_tf1.sources.aligned import ALIGNMENT_BYTES, Memory

__all__ = ["Arena", "mapped", "rounded"]

# By default Python keeps a copy of the descriptor for resizing. Many buffers would then exceed the limit of open files.
_OPTIONS: dict[str, Any] = {"trackfd": False} if sys.version_info >= (3, 13) else {}
# Beyond this number of arrays alive at a time, looking for a gap takes longer than the copy that it saves.
_MOST_ALIVE = 256


def mapped(descriptor: int, nbytes: int) -> mmap.mmap:
    """Map the first bytes of a file. From Python 3.13 on, the mapping has no descriptor."""
    return mmap.mmap(descriptor, nbytes, **_OPTIONS)


class _Region(NamedTuple):
    begin: int
    end: int
    memory: weakref.ref[Memory]


def rounded(nbytes: int) -> int:
    """Round up to where an array may begin."""
    return -(-nbytes // ALIGNMENT_BYTES) * ALIGNMENT_BYTES


class Arena:
    """Allocates arrays in a mapped buffer. Thread-safe.

    A batch is made in a buffer only after the training process has released it. Within it, a region is free when
    the array in it has been freed here: a source may keep an array of an earlier batch.

    Attributes:
      peak: the size that the buffer needs to hold all arrays that were alive at the same time since `begin`.
    """

    def __init__(self, descriptor: int, size: int) -> None:
        self.size = size
        self._map = mapped(descriptor, size)
        self.address = np.frombuffer(self._map, np.uint8).__array_interface__["data"][0]
        self._regions: list[_Region] = []
        self._lock = threading.Lock()
        self._is_packing = False
        self.peak = 0

    def begin(self) -> None:
        """Begin a batch."""
        with self._lock:
            self._forget()
            self._is_packing = False
            self.peak = max((region.end for region in self._regions), default=0)

    def pack(self) -> None:
        """Begin to pack the batch: `allocate` uses all gaps of the buffer, for any number of arrays."""
        with self._lock:
            # Regions of arrays that are elsewhere are only kept for `peak`.
            self._regions = [region for region in self._regions if region.end <= self.size]
            self._is_packing = True

    def allocate(self, nbytes: int) -> Memory | None:
        """Return memory on a 64-byte boundary: in the buffer if it has room, else elsewhere.

        Returns None if too many arrays are alive. The caller then uses other memory.
        """
        with self._lock:
            is_crowded = len(self._regions) >= _MOST_ALIVE
            # Packing frees nothing.
            if not (is_crowded and self._is_packing):
                self._forget()
                is_crowded = len(self._regions) >= _MOST_ALIVE
            if is_crowded and not self._is_packing:
                return None
            index, begin = self._behind() if is_crowded else self._gap(nbytes)
            end = begin + nbytes
            if end <= self.size:
                memory = np.ndarray.__new__(Memory, nbytes, np.uint8, self._map, begin)
            else:
                memory = np.ndarray.__new__(Memory, nbytes, np.uint8)
            self._regions.insert(index, _Region(begin, end, weakref.ref(memory)))
            self.peak = max(self.peak, end)
            return memory

    def offset_of(self, array: np.ndarray[Any, Any]) -> int | None:
        """Return where in the buffer an array begins. None if it is elsewhere, not contiguous or not aligned."""
        if not array.flags.c_contiguous:
            return None
        offset = int(array.__array_interface__["data"][0]) - self.address
        fits = offset >= 0 and offset + array.nbytes <= self.size
        return offset if fits and offset % ALIGNMENT_BYTES == 0 else None

    def _forget(self) -> None:
        if any(region.memory() is None for region in self._regions):
            self._regions = [region for region in self._regions if region.memory() is not None]

    def _gap(self, nbytes: int) -> tuple[int, int]:
        """Find the first gap of `nbytes`: its index among the regions, and where it begins."""
        begin = 0
        for index, region in enumerate(self._regions):
            if region.begin - begin >= nbytes:
                return index, begin
            begin = rounded(region.end)
        return len(self._regions), begin

    def _behind(self) -> tuple[int, int]:
        return len(self._regions), rounded(self._regions[-1].end)
