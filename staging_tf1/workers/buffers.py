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
from staging_tf1.workers.channel import PeerGone

__all__ = ["Buffer", "Buffers", "BuffersClosed", "Credit", "Lent"]

_PAGE = mmap.PAGESIZE
# The size of a buffer if the size of a batch is unknown. Memory that is not written to takes no room.
_FIRST_BYTES = 1 << 20


class BuffersClosed(Exception):
    """The pool was stopped while a thread waited for a buffer."""


class Lent(np.ndarray[Any, Any]):
    """The memory of a buffer while a batch in it is in use. The base of the arrays of the batch."""


class Buffer:
    """One block of shared memory without a name, of one worker.

    Attributes:
      number: identifies it in messages.
      size: in bytes.
      owner: the worker that maps it.
      descriptor: for the worker, until it has been sent; then -1.
    """

    def __init__(self, number: int, size: int, owner: Any) -> None:
        self.number, self.size, self.owner = number, size, owner
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

    Args:
      limit: the most bytes of all buffers together, which the earliest batch may exceed; 0 is no limit.
      expected: the bytes of a batch; None if unknown.
      pool: the pool, for messages.
    """

    def __init__(self, limit: int, expected: int | None, pool: str) -> None:
        self._limit, self._pool = limit, pool
        self._credit = Credit(limit) if limit else None
        unknown = min(_FIRST_BYTES, limit // 16) if limit else _FIRST_BYTES
        self._wanted = self._fitted(unknown if expected is None else expected + _PAGE)
        self._returned: SimpleQueue[Loan | None] = SimpleQueue()
        self._free: dict[Any, list[Buffer]] = {}
        # By the number of the buffer. If a buffer held its own loan, only the garbage collector could free both.
        self._lent: dict[int, Loan] = {}
        self._lock = threading.Lock()
        self._changed = threading.Condition(self._lock)
        self._numbers = 0
        self._nbytes = self._most = 0
        # Dropped buffers that their workers must still forget.
        self._forgotten: list[Buffer] = []
        self._waiting = 0
        self._has_listener = self._closed = False

    @property
    def most_bytes(self) -> int:
        """The most bytes that the buffers had together."""
        return self._most

    def draw(self, batch: int) -> None:
        """Note that a batch is next in the order of delivery. May be called again for the same batch."""
        if self._credit is not None:
            with self._lock:
                self._credit.draw(batch)

    def done(self, batch: int) -> None:
        """Note that a drawn batch needs no buffer any more."""
        if self._credit is not None:
            with self._changed:
                self._credit.done(batch)
                self._wake()

    def take(self, owner: Any, batch: int, least: int = 0, wanted: int = 0) -> tuple[Buffer, list[Buffer]]:
        """Take a buffer of a worker for a batch. With a limit, waits for memory, in the order of `draw`.

        Args:
          owner: the worker.
          batch: the number of the batch.
          least: the bytes that the buffer must have.
          wanted: the bytes that the buffers of the next batches should have, if there is memory.

        Returns:
          The buffer, and buffers that their workers should forget.

        Raises:
          BuffersClosed: `close` was called.
          PeerGone: the worker has ended.
          SourceError: the batch is larger than the limit.
        """
        if self._limit and least > self._limit:
            raise SourceError(
                f"{self._pool}: batch {batch} needs {least:,} bytes of shared memory, but memory_limit is "
                f"{self._limit:,}. Raise memory_limit, or make smaller batches."
            )
        with self._lock:
            if least:
                fits = not self._limit or _paged(wanted) <= self._limit
                self._wanted = max(self._wanted, self._fitted(least), _paged(wanted) if fits else 0)
            self._sweep()
            self._wake()
            while (buffer := self._try_take(owner, batch)) is None:
                self._wait()
            # The next batch in the order may have waited for this one.
            self._wake()
            forgotten, self._forgotten = self._forgotten, []
            return buffer, forgotten

    def lend(self, buffer: Buffer) -> Lent:
        """Lend the memory of a buffer that holds a batch. It is free again when all arrays in it have been freed."""
        memory = buffer.lend()
        # Without the lock, because every batch comes through here.
        if self._closed:
            return memory
        self._lent[buffer.number] = loan = Loan(memory, self._returned.put)
        loan.lent = buffer
        return memory

    def given_up(self, batch: int, unused: Buffer | None = None) -> None:
        """Note that a batch has no buffer. `unused` is returned."""
        with self._changed:
            if self._credit is not None:
                self._credit.lose(batch)
            if unused is not None:
                self._put_back(unused)
            self._wake()

    def drop(self, buffer: Buffer, batch: int) -> None:
        """Drop a buffer that is too small for its batch.

        Do not free it: the retry might get the same buffer, whose size suffices, but whose gaps between the source's
        arrays do not. So each attempt drops a buffer, until the batch gets a new one, which is empty.
        """
        with self._changed:
            if self._credit is not None:
                self._credit.give_back(buffer.number)
                self._credit.lose(batch)
            self._drop(buffer)
            self._wake()

    def forget(self, owner: Any) -> None:
        """Drop the buffers of a worker that has ended. Those in use are dropped when they are returned."""
        with self._changed:
            for buffer in self._free.pop(owner, []):
                self._drop(buffer)
            self._wake()

    def add_owner(self, owner: Any) -> None:
        """Let a worker have buffers."""
        with self._changed:
            self._free[owner] = []

    def close(self) -> None:
        """Wake all waiting threads, and drop all free buffers."""
        with self._changed:
            self._sweep()
            self._closed = True
            # What is in use is freed with its arrays.
            self._lent.clear()
            for owner in list(self._free):
                for buffer in self._free.pop(owner):
                    self._drop(buffer)
            self._wake()

    def _try_take(self, owner: Any, batch: int) -> Buffer | None:
        if self._closed:
            raise BuffersClosed
        free = self._free.get(owner)
        if free is None:
            raise PeerGone
        buffer = next((fitting for fitting in reversed(free) if fitting.size >= self._wanted), None)
        if self._credit is not None and not self._credit.allows(batch, self._wanted if buffer is None else buffer.size):
            return None
        if buffer is None:
            buffer = self._new(owner)
        else:
            free.remove(buffer)
        if self._credit is not None:
            self._credit.take(batch, buffer.number, buffer.size)
        return buffer

    def _new(self, owner: Any) -> Buffer:
        buffer = Buffer(self._numbers + 1, self._wanted, owner)
        self._numbers += 1
        # It replaces those that are too small, so buffers grow with the batches.
        free = self._free[owner]
        while free:
            self._drop(free.pop())
        if self._limit:
            self._evict(buffer.size)
        self._nbytes += buffer.size
        self._most = max(self._most, self._nbytes)
        return buffer

    def _evict(self, nbytes: int) -> None:
        """Drop free buffers of other workers, until the limit has room."""
        for free in self._free.values():
            while free and self._nbytes + nbytes > self._limit:
                self._drop(free.pop())

    def _wake(self) -> None:
        if self._waiting:
            self._changed.notify_all()
            if self._has_listener:
                self._returned.put(None)

    def _wait(self) -> None:
        """Wait until a buffer may have become free. One thread listens for that, and wakes the others."""
        self._waiting += 1
        try:
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
            if loan is not None:
                self._put_back(loan.lent)
            self._sweep()
            self._changed.notify_all()
        finally:
            self._waiting -= 1

    def _sweep(self) -> None:
        """Take back all buffers that were returned. It may take the listener's wake-up, so `_wake` must follow."""
        with contextlib.suppress(Empty):
            # Checking first is cheaper than the exception.
            while not self._returned.empty():
                loan = self._returned.get_nowait()
                if loan is not None:
                    self._put_back(loan.lent)

    def _put_back(self, buffer: Buffer) -> None:
        self._lent.pop(buffer.number, None)
        if self._credit is not None:
            self._credit.give_back(buffer.number)
        if buffer.owner in self._free:
            self._free[buffer.owner].append(buffer)
        else:
            self._drop(buffer)

    def _drop(self, buffer: Buffer) -> None:
        buffer.sent()
        self._nbytes -= buffer.size
        if buffer.owner in self._free:
            self._forgotten.append(buffer)

    def _fitted(self, nbytes: int) -> int:
        """Return the size of a buffer for `nbytes`, which are at most the limit."""
        return min(_paged(nbytes), self._limit or sys.maxsize)


def _paged(nbytes: int) -> int:
    """Round up to a whole number of pages, in steps of a sixteenth: batches of similar sizes share buffers."""
    step = max(_PAGE, 1 << max(0, rounded(nbytes).bit_length() - 4))
    return max(_PAGE, -(-nbytes // step) * step)


class Credit:
    """Grants memory to batches in the order in which their numbers were drawn. Not thread-safe.

    Batches are delivered in that order, so a later batch keeps its memory until the earlier ones are delivered. The
    earliest batch without memory must not wait for that: it may exceed the limit. No other batch may, so the excess is
    at most one batch.

    Args:
      limit: in bytes.
    """

    def __init__(self, limit: int) -> None:
        self.limit = limit
        # The place in the order of each batch that was drawn and is not done.
        self._places: dict[int, int] = {}
        self._drawn = itertools.count()
        # The places of those that have no buffer.
        self._without: set[int] = set()
        # By buffer in use: the place of its batch, and its bytes.
        self._held: dict[int, tuple[int, int]] = {}
        self._nbytes = 0

    def draw(self, batch: int) -> None:
        """Give a batch the next place, unless it has one."""
        if batch not in self._places:
            self._places[batch] = place = next(self._drawn)
            self._without.add(place)

    def done(self, batch: int) -> None:
        """Take back the place of a batch that needs no other buffer."""
        place = self._places.pop(batch, None)
        if place is not None:
            self._without.discard(place)

    def allows(self, batch: int, nbytes: int) -> bool:
        """Whether a batch may have a buffer of `nbytes` now."""
        place = self._places[batch]
        if place != min(self._without):
            return False
        if self._nbytes + nbytes <= self.limit:
            return True
        if place != min(self._places.values()):
            # An earlier batch has a buffer, which may turn out to be too small.
            return False
        earlier = sum(other < place for other, _ in self._held.values())
        # The program may hold its last batch until it has the next one. Any other batch is on its way to the program.
        return earlier == 0 or (earlier == 1 and self._nbytes <= self.limit)

    def take(self, batch: int, buffer: int, nbytes: int) -> None:
        """Count a buffer as in use by a batch."""
        place = self._places[batch]
        self._without.discard(place)
        self._held[buffer] = place, nbytes
        self._nbytes += nbytes

    def give_back(self, buffer: int) -> None:
        """Count a buffer as free."""
        self._nbytes -= self._held.pop(buffer, (0, 0))[1]

    def lose(self, batch: int) -> None:
        """Note that a batch has no buffer: it was too small, or its worker has died."""
        if batch in self._places:
            self._without.add(self._places[batch])
