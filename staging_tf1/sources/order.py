"""Computes the records of batch `k` from shuffle, shard, epochs and batch size.

Sharding divides the *shuffled* order: shard `i` of `n` has the places i, i+n, i+2n, and so on. All shards together thus
follow one shuffle of all records: `n` shards with batch size `b` read in each round what one reader with batch size
`n*b` would read. A shard of a shard is again a shard.
"""

from __future__ import annotations

import dataclasses
import threading
from collections import OrderedDict
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

from staging_tf1.arguments import index_below
from staging_tf1.sources.permutation import permute

# How many places are computed at once, in 0.2 to 0.8 ms. A quarter would take nearly as long, because of numpy's
# overhead per call.
CHUNK = 16384

# Feed threads work on neighboring batches, so one or two chunks are in use, and four at the end of an epoch.
_CHUNKS_KEPT = 4


def numbers_of(records: np.ndarray[Any, Any] | slice) -> np.ndarray[Any, Any]:
    """Return record numbers as an int64 array. A slice has start, stop and step."""
    if isinstance(records, slice):
        return np.arange(records.start, records.stop, records.step, dtype=np.int64)
    return records


def count_of(records: np.ndarray[Any, Any] | slice) -> int:
    """Return how many record numbers there are."""
    return len(range(records.start, records.stop, records.step) if isinstance(records, slice) else records)


class Piece(NamedTuple):
    """A range of places of one shard in one epoch: `start <= place < stop`."""

    epoch: int
    start: int
    stop: int


@dataclasses.dataclass(frozen=True)
class Schedule:
    """Divides the epochs of a shard, of at least one record, into batches. See `RecordSource`.

    Attributes:
      drop_remainder: skip partial batches.
      across_epochs: fill batches from the next epoch. At most the last batch of all epochs is partial.
    """

    num_records: int
    batch_size: int
    epochs: int | None = None
    drop_remainder: bool = False
    across_epochs: bool = False

    @property
    def batches_per_epoch(self) -> int | None:
        """Batches in one epoch. None if batches cross epochs and do not divide them evenly."""
        if self.across_epochs and self.num_records % self.batch_size:
            return None
        return self._count(self.num_records)

    @property
    def num_batches(self) -> int | None:
        """Batches over all epochs. None if endless."""
        if self.epochs is None:
            return None
        if self.across_epochs:
            return self._count(self.num_records * self.epochs)
        return self._count(self.num_records) * self.epochs

    @property
    def has_partial(self) -> bool:
        """Whether a batch can be partial."""
        if self.drop_remainder or (self.across_epochs and self.epochs is None):
            return False
        total = self.num_records * (self.epochs or 1) if self.across_epochs else self.num_records
        return total % self.batch_size != 0

    def full_from(self, index: int, most: int) -> int:
        """Return how many of the `most` batches from `index` on are full and in the epoch of the first; at least 1."""
        size, records = self.batch_size, self.num_records
        start = index * size % records if self.across_epochs else index % self._count(records) * size
        return max(1, min(most, (records - start) // size))

    def _count(self, records: int) -> int:
        return records // self.batch_size if self.drop_remainder else -(-records // self.batch_size)

    def epoch_of(self, index: int) -> int:
        """Return the epoch, counted from 0, in which batch `index` starts."""
        if self.across_epochs:
            return index * self.batch_size // self.num_records
        return index // self._count(self.num_records)

    def pieces(self, index: int) -> list[Piece]:
        """Return the places of batch `index`. A batch that crosses epochs has several pieces.

        >>> Schedule(num_records=10, batch_size=4, epochs=2).pieces(5)
        [Piece(epoch=1, start=8, stop=10)]
        >>> Schedule(num_records=10, batch_size=4, epochs=2, across_epochs=True).pieces(2)
        [Piece(epoch=0, start=8, stop=10), Piece(epoch=1, start=0, stop=2)]
        """
        index = index_below("Schedule", index, self.num_batches)
        if not self.across_epochs:
            epoch, step = divmod(index, self._count(self.num_records))
            start = step * self.batch_size
            return [Piece(epoch, start, min(start + self.batch_size, self.num_records))]
        return self._crossing(index * self.batch_size)

    def _crossing(self, begin: int) -> list[Piece]:
        end = begin + self.batch_size
        if self.epochs is not None:
            end = min(end, self.num_records * self.epochs)
        pieces = []
        while begin < end:
            epoch, start = divmod(begin, self.num_records)
            stop = min(self.num_records, start + end - begin)
            pieces.append(Piece(epoch, start, stop))
            begin += stop - start
        return pieces


class Order:
    """The order of a shard's records in each epoch. A `seed` of None does not shuffle. Thread-safe.

    Other orders override `_at`, and `_is_identity` if they rearrange the records even without a seed.

    >>> Order(10, seed=None, shard_index=1, shard_count=3).records(Piece(epoch=0, start=0, stop=2))
    slice(1, 7, 3)
    """

    def __init__(
        self,
        total_records: int,
        seed: int | None,
        shard_index: int = 0,
        shard_count: int = 1,
        select: Callable[[Any], Any] | None = None,
        selects_slices: bool = True,
    ) -> None:
        self.total_records = total_records
        # Maps counted records to their numbers. Applied to chunks, which is faster than to batches.
        self._select = select
        # Whether it returns a slice for a slice.
        self._selects_slices = selects_slices
        self.seed = seed
        self.shard_index = shard_index
        self.shard_count = shard_count
        # Places that are computed at once.
        self._chunk_size = CHUNK
        self._chunks: OrderedDict[tuple[int, int], np.ndarray[Any, Any]] = OrderedDict()
        self._lock = threading.Lock()

    def __getstate__(self) -> dict[str, Any]:
        # Making chunks is faster than moving them.
        return {**vars(self), "_chunks": OrderedDict(), "_lock": None}

    def __setstate__(self, state: dict[str, Any]) -> None:
        vars(self).update(state, _lock=threading.Lock())

    @property
    def num_records(self) -> int:
        """Records of this shard, in one epoch."""
        return len(range(self.shard_index, self.total_records, self.shard_count))

    def records(self, piece: Piece) -> np.ndarray[Any, Any] | slice:
        """Return the record numbers at the places of `piece`: an int64 array, or a slice without a shuffle."""
        if self._is_identity:
            first = self.shard_index + self.shard_count * piece.start
            counted = slice(first, first + self.shard_count * (piece.stop - piece.start), self.shard_count)
            return counted if self._select is None else self._select(counted)
        first_chunk, last_chunk = piece.start // self._chunk_size, (piece.stop - 1) // self._chunk_size
        parts = []
        for number in range(first_chunk, last_chunk + 1):
            base = number * self._chunk_size
            chunk = self._chunk(piece.epoch, number)
            parts.append(chunk[max(piece.start - base, 0) : piece.stop - base])
        return parts[0] if len(parts) == 1 else np.concatenate(parts)

    @property
    def _is_identity(self) -> bool:
        """Whether place `i` of all shards together has counted record `i`, so the records of places are slices."""
        return self.seed is None and self._selects_slices

    def _at(self, places: np.ndarray[Any, Any], epoch: int) -> np.ndarray[Any, Any]:
        """Return the records at `places` of the order of all shards together, before `select`. The places ascend."""
        if self.seed is None:
            return places
        return permute(places, self.total_records, self.seed, epoch)

    def _chunk(self, epoch: int, number: int) -> np.ndarray[Any, Any]:
        """Return the records at the places from `number * self._chunk_size` on."""
        return self._kept((epoch, number), lambda: self._at(self._places(number), epoch))

    def _places(self, number: int) -> np.ndarray[Any, Any]:
        begin = number * self._chunk_size
        own = np.arange(begin, min(begin + self._chunk_size, self.num_records), dtype=np.int64)
        return own * self.shard_count + self.shard_index

    def _kept(self, key: tuple[int, int], make: Callable[[], np.ndarray[Any, Any]]) -> np.ndarray[Any, Any]:
        with self._lock:
            chunk = self._chunks.get(key)
            if chunk is not None:
                self._chunks.move_to_end(key)
                return chunk
        chunk = make()
        if self._select is not None:
            chunk = self._select(chunk)
        with self._lock:
            self._chunks[key] = chunk
            while len(self._chunks) > _CHUNKS_KEPT:
                self._chunks.popitem(last=False)
        return chunk
