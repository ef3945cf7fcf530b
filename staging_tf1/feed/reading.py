"""Hands the batches of one source to several threads, each batch to exactly one of them."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple, Protocol

from staging_tf1.feed.ownership import owned
from staging_tf1.feed.skipping import Ignored
from staging_tf1.feed.source_errors import naming_batch
from staging_tf1.feed.turnstile import Turnstile
from staging_tf1.sources import Source, StreamSource


class Numbered(NamedTuple):
    """A batch and its number in the source's order, from 0."""

    number: int
    batch: Any
    # What the source raised in place of the batch, where the lane wants such batches skipped.
    error: BaseException | None = None


Skip = Callable[[BaseException], None]


_END = object()


def _raise(error: BaseException) -> None:
    raise error


class Reader(Protocol):
    """What a feed thread takes from."""

    def take(self, skip: Skip = _raise) -> Numbered | None:
        """The next batch, in arrays of its own, or None at the end. Thread-safe: a lane's threads call it at once.

        Args:
          skip: told of a bad batch that has no number of its own, and is passed over at once.
        """


class IndexReader:
    """Batches of a random-access source: threads take numbers, and make the batches at the same time."""

    def __init__(self, source: Source, ignored: Ignored, start: int = 0) -> None:
        self._source, self._ignored = source, ignored
        self._numbers = range(start, source.num_batches) if source.num_batches is not None else None
        self._next = start
        self._lock = threading.Lock()

    def take(self, skip: Skip = _raise) -> Numbered | None:
        with self._lock:
            index = self._next
            if self._numbers is not None and index not in self._numbers:
                return None
            self._next += 1
        try:
            with naming_batch(index):
                return Numbered(index, _given_away(self._source, self._source.batch(index)))
        except self._ignored.types as error:
            return Numbered(index, None, error)


class StreamReader:
    """Batches of a sequential source: one thread at a time is inside it."""

    def __init__(self, source: StreamSource, ignored: Ignored, start: int = 0) -> None:
        self._source, self._ignored = source, ignored
        self._batches: Iterator[Any] | None = None
        self._next = self._start = start
        self._ended = False
        self._lock = threading.Lock()

    def take(self, skip: Skip = _raise) -> Numbered | None:
        with self._lock:
            if self._ended:
                return None
            index = self._next
            with naming_batch(index):
                try:
                    batch = next(self._iterator(), _END)
                except self._ignored.types as error:
                    if self._batches is None:  # it did not even begin, and would not the next time
                        raise
                    # A generator is finished now, and says so the next time; other iterators may go on.
                    self._next += 1
                    return Numbered(index, None, error)
                except BaseException:
                    self._ended = True
                    raise
            if batch is _END:
                self._ended = True
                return None
            self._next += 1
            # Before the lock goes: the next thread's batch may be written to the same buffer.
            return Numbered(index, _given_away(self._source, batch))

    def _iterator(self) -> Iterator[Any]:
        if self._batches is None:
            self._batches = iter(self._source.batches(self._start))
        return self._batches


class DealtReader:
    """One tower's share of a stream that several towers read: every n-th batch, in strict rotation.

    Rotation keeps the towers' numbers of batches within one of each other, whatever their speed. So a bad batch is
    passed over within the turn: a tower that lost it would fall behind, until the others wait with full areas.

    Args:
      check: called with a batch's number and the batch; raises what is wrong with it.
    """

    def __init__(
        self,
        stream: StreamReader,
        rotation: Turnstile,
        tower: int,
        towers: int,
        start: int,
        check: Callable[[int, Any], object],
        ignored: Ignored,
    ) -> None:
        self._stream, self._rotation = stream, rotation
        self._tower, self._towers = tower, towers
        self._check, self._ignored = check, ignored
        self._round = start
        self._lock = threading.Lock()

    def take(self, skip: Skip = _raise) -> Numbered | None:
        with self._lock:
            number = self._round
            self._round += 1
        with self._rotation.turn(number * self._towers + self._tower):
            numbered = self._stream.take()
            while numbered is not None and (error := self._fault(number, numbered)) is not None:
                skip(error)
                numbered = self._stream.take()
        return None if numbered is None else numbered._replace(number=number)

    def _fault(self, number: int, numbered: Numbered) -> BaseException | None:
        """What is to be skipped in place of the batch, if anything."""
        if numbered.error is not None or not self._ignored.types:
            return numbered.error
        try:
            self._check(number, numbered.batch)
        except self._ignored.types as error:
            return error
        return None


def _given_away(source: Source | StreamSource, batch: Any) -> Any:
    """The batch, in arrays that the source will not write to again."""
    return batch if source.gives_away else owned(batch)
