"""`Buffers`: the shared memory that batches are written to, and when each buffer is free again."""

from __future__ import annotations

import contextlib
import itertools
import mmap
import os
import sys
import threading
from queue import Empty, SimpleQueue
from typing import Any

import numpy as np

from staging_tf1.errors import SourceError
from staging_tf1.sources.aligned import Loan
from staging_tf1.workers.arena import mapped, rounded
from staging_tf1.workers.lanes import PeerGone

__all__ = ["Buffer", "Buffers", "Lent", "PoolStopped"]

_PAGE = mmap.PAGESIZE
# The size of a buffer if the size of a batch is unknown. Memory that is not written to takes no room.
_FIRST_BYTES = 1 << 20


class PoolStopped(Exception):
    """The pool was stopped while a thread waited for a batch."""


class Lent(np.ndarray[Any, Any]):
    """The memory of a buffer while a batch in it is in use. The base of the arrays of the batch."""


class Buffer:
    """One block of shared memory without a name, of one worker.

    Attributes:
      number: identifies it in messages.
      size: in bytes.
      owner: the worker that maps it.
      descriptor: for the worker, until it has been sent; then -1.
      place: that of its batch in the order of delivery; None if the buffer is free.
    """

    def __init__(self, number: int, size: int, owner: Any) -> None:
        self.number, self.size, self.owner = number, size, owner
        self.place: int | None = None
        self.descriptor = os.memfd_create("staging_tf1 batch")
        try:
            os.ftruncate(self.descriptor, size)
            self._map = mapped(self.descriptor, size)
        except BaseException:
            self.sent()
            raise

    def sent(self) -> None:
        """Close the descriptor: a mapping needs none."""
        if self.descriptor >= 0:
            os.close(self.descriptor)
        self.descriptor = -1

    def lend(self) -> Lent:
        """Return the memory as an array."""
        return np.ndarray.__new__(Lent, self.size, np.uint8, self._map)


class Buffers:
    """All buffers of one pool. Thread-safe.

    A `limit` of bytes, 0 for none, bounds the batches in flight. They get memory in the order in which their numbers
    were drawn, so a batch never waits for memory that a later one holds until it is delivered. Only a batch that
    outgrows its buffer may meet such ones: the earliest batch may exceed the limit. No other batch may, so the excess
    is at most one buffer.

    Attributes:
      most_bytes: the most bytes that the buffers had together.
    """

    def __init__(self, limit: int, expected: int | None, pool: str) -> None:
        self._limit, self._pool = limit, pool
        unknown = min(_FIRST_BYTES, limit // 16) if limit else _FIRST_BYTES
        # The size of the next buffer.
        self._size = self._fitted(unknown if expected is None else expected + _PAGE)
        self.most_bytes = 0
        self._numbers = itertools.count(1)
        # All that are not dropped, by number.
        self._all: dict[int, Buffer] = {}
        self._free: dict[Any, list[Buffer]] = {}
        # By the number of the buffer. If a buffer held its own loan, only the garbage collector could free both.
        self._lent: dict[int, Loan] = {}
        self._returned: SimpleQueue[Loan | None] = SimpleQueue()
        # The place of each batch that was drawn and is not done, the earliest first.
        self._places: dict[int, int] = {}
        self._drawn = itertools.count()
        self._changed = threading.Condition()
        # Dropped buffers that their workers must still forget.
        self._forgotten: list[Buffer] = []
        self._has_listener = self._closed = False

    def draw(self, batch: int) -> None:
        """Note that a batch is next in the order of delivery. May be called again for the same batch."""
        if self._limit:
            with self._changed:
                if batch not in self._places:
                    self._places[batch] = next(self._drawn)

    def done(self, batch: int) -> None:
        """Note that a drawn batch needs no other buffer."""
        if self._limit:
            with self._changed:
                self._places.pop(batch, None)
                self._wake()

    def take(self, owner: Any, batch: int, least: int = 0, wanted: int = 0) -> tuple[Buffer, list[Buffer]]:
        """Take a buffer of a worker for a batch. With a limit, waits for memory.

        Args:
          owner: the worker.
          batch: the number of the batch.
          least: the bytes that the buffer must have.
          wanted: the bytes that the buffers of the next batches should have, if there is memory.

        Returns:
          The buffer, and buffers that their workers should forget.

        Raises:
          PoolStopped: `close` was called.
          PeerGone: the worker has ended.
          SourceError: the batch is larger than the limit.
        """
        if self._limit and least > self._limit:
            raise SourceError(
                f"{self._pool}: batch {batch} needs {least:,} bytes of shared memory, but memory_limit is "
                f"{self._limit:,}. Raise memory_limit, or make smaller batches."
            )
        with self._changed:
            if least:
                fits = not self._limit or _paged(wanted) <= self._limit
                self._size = max(self._size, self._fitted(least), _paged(wanted) if fits else 0)
            self._sweep()
            while (free := self._free_of(owner)) is None or not self._may_take(batch):
                self._wait()
            buffer = next((fitting for fitting in reversed(free) if fitting.size >= self._size), None)
            if buffer is None:
                buffer = self._new(owner)
            else:
                free.remove(buffer)
            buffer.place = self._places.get(batch, 0)
            # It may be the turn of the next batch in the order.
            self._wake()
            forgotten, self._forgotten = self._forgotten, []
            return buffer, forgotten

    def lend(self, buffer: Buffer) -> Lent:
        """Lend the memory of a buffer that holds a batch. It is free again when all arrays in it have been freed."""
        memory = buffer.lend()
        # Without the lock, because every batch comes through here.
        if not self._closed:
            self._lent[buffer.number] = loan = Loan(memory, self._returned.put)
            loan.lent = buffer
        return memory

    def give_back(self, buffer: Buffer) -> None:
        """Take back a buffer that has no batch."""
        with self._changed:
            self._put_back(buffer)
            self._wake()

    def drop(self, buffer: Buffer) -> None:
        """Drop a buffer that is too small for its batch.

        Do not free it: the retry might get the same buffer, whose size suffices, but whose gaps between the source's
        arrays do not. So each attempt drops a buffer, until the batch gets a new one, which is empty.
        """
        with self._changed:
            self._drop(buffer)
            self._wake()

    def add_owner(self, owner: Any) -> None:
        """Let a worker have buffers."""
        with self._changed:
            self._free[owner] = []

    def forget(self, owner: Any) -> None:
        """Drop the buffers of a worker that has ended. Those in use are dropped when they are returned."""
        with self._changed:
            for buffer in self._free.pop(owner, []):
                self._drop(buffer)
            self._wake()

    def close(self) -> None:
        """Wake all waiting threads, and drop all buffers. What is in use is freed with its arrays."""
        with self._changed:
            self._sweep()
            self._closed = True
            self._lent.clear()
            for free in self._free.values():
                for buffer in free:
                    buffer.sent()
            self._free.clear()
            self._all.clear()
            self._wake()

    def _free_of(self, owner: Any) -> list[Buffer]:
        if self._closed:
            raise PoolStopped
        if owner not in self._free:
            raise PeerGone
        return self._free[owner]

    def _may_take(self, batch: int) -> bool:
        """Whether it is the turn of a batch to get a buffer, and there is memory."""
        if not self._limit:
            return True
        place = self._places[batch]
        held = {buffer.place: buffer.size for buffer in self._all.values() if buffer.place is not None}
        if place != next(place for place in self._places.values() if place not in held):
            return False
        if sum(held.values()) + self._size <= self._limit:
            return True
        # The program may hold its last batch until it has the next one. Any other batch is on its way to the program.
        earlier = sum(other < place for other in held)
        is_earliest = place == next(iter(self._places.values()))
        return is_earliest and (not earlier or (earlier == 1 and sum(held.values()) <= self._limit))

    def _new(self, owner: Any) -> Buffer:
        buffer = Buffer(next(self._numbers), self._size, owner)
        # It replaces those that are too small, so buffers grow with the batches.
        free = self._free[owner]
        while free:
            self._drop(free.pop())
        self._all[buffer.number] = buffer
        if self._limit:
            # Free buffers of other workers make room.
            for free in self._free.values():
                while free and self._nbytes > self._limit:
                    self._drop(free.pop())
        self.most_bytes = max(self.most_bytes, self._nbytes)
        return buffer

    @property
    def _nbytes(self) -> int:
        return sum(buffer.size for buffer in self._all.values())

    def _wait(self) -> None:
        """Wait until a buffer may have become free. One thread listens for that, and wakes the others."""
        if self._has_listener:
            self._changed.wait()
            return
        self._has_listener = True
        self._changed.release()
        try:
            loan = self._returned.get()
        finally:
            self._changed.acquire()
            self._has_listener = False
            self._changed.notify_all()
        if loan is not None:
            self._put_back(loan.lent)

    def _wake(self) -> None:
        if self._has_listener:
            self._returned.put(None)

    def _sweep(self) -> None:
        """Take back all buffers that were returned."""
        with contextlib.suppress(Empty):
            # Checking first is cheaper than the exception.
            while not self._returned.empty():
                loan = self._returned.get_nowait()
                if loan is not None:
                    self._put_back(loan.lent)
        # The listener's wake-up may have been among them.
        self._wake()

    def _put_back(self, buffer: Buffer) -> None:
        self._lent.pop(buffer.number, None)
        buffer.place = None
        if buffer.owner in self._free:
            self._free[buffer.owner].append(buffer)
        else:
            self._drop(buffer)

    def _drop(self, buffer: Buffer) -> None:
        buffer.sent()
        self._all.pop(buffer.number, None)
        if buffer.owner in self._free:
            self._forgotten.append(buffer)

    def _fitted(self, nbytes: int) -> int:
        """Return the size of a buffer for `nbytes`, which are at most the limit."""
        return min(_paged(nbytes), self._limit or sys.maxsize)


def _paged(nbytes: int) -> int:
    """Round up to a whole number of pages, in steps of a sixteenth: batches of similar sizes share buffers."""
    step = max(_PAGE, 1 << max(0, rounded(nbytes).bit_length() - 4))
    return max(_PAGE, -(-nbytes // step) * step)
