"""Readers: hand the batches of one source to several threads, each to one of them; `BlockSize`: how many at once."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import numpy as np
from absl import logging

from staging_tf1._tf import is_profiled
from staging_tf1.errors import SpecError
from staging_tf1.feed.source_errors import SkipRule, naming_batch
from staging_tf1.feed.threads import Rotation, Stopped
from staging_tf1.sources import Source, StreamSource
from staging_tf1.sources.aligned import aligned_copy
from staging_tf1.sources.blocks import full_batches, read_block
from staging_tf1.sources.spans import Spans, end_of, next_kept
from staging_tf1.spec import map_structure
from staging_tf1.spec.arrays import checked_array, is_plain
from staging_tf1.spec.composite import as_composite, is_composite
from staging_tf1.workers.pool import CannotStart, PoolStopped, WorkerPool

_IMMUTABLE = (int, float, complex, str, bytes, np.generic)
_END = object()


class ReadBatch(NamedTuple):
    """A batch and its number in the source's order, from 0."""

    number: int
    batch: Any
    # What the source raised instead of the batch.
    error: Exception | None = None
    # How many batches before it, from the first one that was to be read, are left out.
    left_out: int = 0
    # How many batches, in rows one after the other.
    batches: int = 1


Skip = Callable[[BaseException], None]


def _raise(error: BaseException) -> None:
    raise error


class IndexReader:
    """Reads a random-access source: threads take numbers, and make the batches in parallel.

    Args:
      start: the first batch to read.
      limit: how many batches there are, if the source has more.
      skip: batches that are not read, besides those without a record.
      size: how many batches to read at once, of a source that has blocks; None is one.
      pool: makes the batches; None if the thread does.
    """

    def __init__(
        self,
        source: Source,
        start: int,
        limit: int | None,
        skip: Spans,
        size: BlockSize | None,
        pool: WorkerPool | None,
    ) -> None:
        self._source, self._skip, self._size, self._pool = source, skip, size, pool
        self._end = end_of(source, limit)
        self._next = start
        self._left_out = 0
        self._lock = threading.Lock()

    def take(self, skip: Skip = _raise) -> ReadBatch | None:
        with self._lock:
            index = next_kept(self._source, self._skip, self._next, self._end)
            if index is None:
                return None
            self._left_out += index - self._next
            left_out, batches = self._left_out, self._block_from(index)
            self._next = index + batches
            if self._pool is not None:
                self._pool.draw(index)
        return read_batch(self._source, index, self._pool, left_out, batches)

    def _block_from(self, index: int) -> int:
        """Return how many batches from `index` on are read at once."""
        if self._size is None:
            return 1
        most = self._size.batches if self._end is None else min(self._size.batches, self._end - index)
        return full_batches(self._source, index, most)


def read_batch(source: Source, index: int, pool: WorkerPool | None, left_out: int = 0, batches: int = 1) -> ReadBatch:
    """Return batch `index` of a random-access source, or a block from it on, in arrays of its own.

    With a pool, `pool.draw` has been called with its number, in the order of delivery.
    """
    try:
        with naming_batch(index):
            if pool is not None:
                read = pool.make(index)
            else:
                read = _given_away(source, source.batch(index)) if batches == 1 else read_block(source, index, batches)
    except PoolStopped:
        raise Stopped from None
    except CannotStart:
        # Not the batch's fault.
        raise
    except Exception as error:
        return ReadBatch(index, None, error, left_out)
    return ReadBatch(index, read, None, left_out, batches)


class StreamReader:
    """Reads a sequential source, one thread at a time."""

    def __init__(self, source: StreamSource, rule: SkipRule, start: int) -> None:
        self._source, self._rule = source, rule
        self._batches: Iterator[Any] | None = None
        self._next = self._start = start
        self._bad: int | None = None
        self._ended = False
        self._lock = threading.Lock()

    def take(self, skip: Skip = _raise) -> ReadBatch | None:
        with self._lock:
            if self._ended:
                return None
            index = self._next
            try:
                with naming_batch(index):
                    batch = next(self._iterator(), _END)
            except Exception as error:
                if self._batches is None:  # it cannot start, and would fail again
                    raise
                # A generator has ended now, and raises StopIteration next. Other iterators may continue.
                self._ended = not isinstance(error, self._rule.types)
                self._next += 1
                self._bad = index
                return ReadBatch(index, None, error)
            except BaseException:
                self._ended = True
                raise
            if batch is _END:
                self._ended = True
                if self._bad == index - 1:
                    logging.warning(
                        "%s ended right after the exception of batch %d, which was skipped. A generator cannot go on "
                        "after it raises, and what it had left is then missing. Catch the exception inside it, or use "
                        "a source with random access.",
                        self._source,
                        self._bad,
                    )
                return None
            self._next += 1
            # Under the lock, because the source may write the next batch to the same buffer.
            return ReadBatch(index, _given_away(self._source, batch))

    def _iterator(self) -> Iterator[Any]:
        if self._batches is None:
            self._batches = iter(self._source.batches(self._start))
        return self._batches


class RotationReader:
    """Reads one tower's share of a stream that several towers read: every n-th batch, in strict rotation.

    The rotation keeps the towers within one batch of each other. So a bad batch is skipped within the rotation.
    Otherwise its tower would fall behind, until the others waited for it with full areas.

    Args:
      stream: the reader that the towers share.
      rotation: their order.
      tower: the number of this tower.
      start: how many batches this tower has consumed before.
      check: called with a batch's number and the batch; raises if the batch is bad.
      rule: which exceptions are skipped.
    """

    def __init__(
        self,
        stream: Reader,
        rotation: Rotation,
        tower: int,
        start: int,
        check: Callable[[int, Any], object],
        rule: SkipRule,
    ) -> None:
        self._stream, self._rotation, self._tower = stream, rotation, tower
        self._check, self._rule = check, rule
        self._round = start
        self._lock = threading.Lock()

    def take(self, skip: Skip = _raise) -> ReadBatch | None:
        with self._lock:
            number = self._round
            self._round += 1
        try:
            with self._rotation.at(number, self._tower):
                numbered = self._stream.take()
                while numbered is not None and (error := self._fault(number, numbered)) is not None:
                    skip(error)
                    numbered = self._stream.take()
        except Stopped:
            raise
        except Exception as error:
            return ReadBatch(number, None, error)
        return None if numbered is None else numbered._replace(number=number)

    def _fault(self, number: int, numbered: ReadBatch) -> BaseException | None:
        """Return the exception for which the batch is skipped, if any."""
        try:
            if numbered.error is not None:
                raise numbered.error
            if self._rule.types:
                self._check(number, numbered.batch)
        except self._rule.types as error:
            return error
        return None


Reader = IndexReader | StreamReader | RotationReader


def _given_away(source: Source | StreamSource, batch: Any) -> Any:
    """Return the batch in arrays that the source will not write to again."""
    return batch if source.gives_away else owned(batch)


def owned(batch: Any) -> Any:
    """Return the batch in arrays that nothing else can write to, aligned so that TensorFlow does not copy them again.

    TensorFlow uses a fed numpy array in place if it starts on a 64-byte boundary, and copies it otherwise. A source
    that reuses its buffer would sometimes change a batch that is already staged.

    A batch that does not consist of arrays is returned as it is. The check of the batch reports it.
    """
    try:
        return map_structure(_owned, batch)
    except SpecError:
        return batch


def _owned(leaf: Any) -> Any:
    if isinstance(leaf, _IMMUTABLE):
        return leaf
    if is_composite(leaf):
        return as_composite(leaf)._map(_owned)
    # The leaf may be a memoryview or a torch tensor, which share the buffer, too.
    array = leaf if is_plain(leaf) else checked_array(leaf, None, "")
    return array.copy() if array.dtype == object else aligned_copy(array)


# What is read ahead is in no step yet, and the figures count a block when it is put.
_MOST_SECS = 0.025
_MOST_BYTES = 8 << 20
_MOST_BATCHES = 64
# How many batches come first. TensorFlow takes a moment to prepare the loop, and the first steps need its threads.
_FIRST_BATCHES = 32
# A `map_fn` that takes longer stays with the reading: it counts as time in the source, and not as waiting for room.
_MOST_MAP_SECS = 0.001
# A clock may stand still for that long.
_LEAST_SECS = 1e-6


class BlockSize:
    """How many batches are read at once and put in one run. All threads of a producer share it.

    Each run of a put holds Python's lock for a while, and the training loop waits for it. With steps of less than 5 ms
    that shows. So blocks grow while steps are fast, and while the step has enough staged batches during the reading.

    Args:
      capacity: how many batches can be staged.
      bytes_per_batch: bytes in a batch; None if unknown.
      maps: whether a batch goes through `map_fn` while it is read, and one of a block while it is put.

    Attributes:
      batches: how many to read next.
    """

    def __init__(self, capacity: int, bytes_per_batch: int | None, maps: bool = False) -> None:
        self.batches = 1
        self._put = 0
        self._capacity, self._maps = capacity, maps
        self._most = 1 if bytes_per_batch is None else min(_MOST_BATCHES, _MOST_BYTES // max(1, bytes_per_batch))

    def note(self, batches: int, source_secs: float, put_secs: float) -> None:
        """Set the next size from how long a block took to read, and to put."""
        self._put += batches
        if self._put < _FIRST_BATCHES or is_profiled():
            # The profile shows each batch.
            self.batches = 1
            return
        read_secs = max(source_secs / batches, _LEAST_SECS)
        if self._maps and batches == 1 and read_secs > _MOST_MAP_SECS:
            return
        step_secs = read_secs + put_secs / batches
        wanted = min(2 * batches, self._most, _MOST_SECS / step_secs, self._capacity * step_secs / read_secs)
        # A pause of the steps, as for a checkpoint, is over in the next block.
        self.batches = max(1, self.batches // 2, int(wanted))
