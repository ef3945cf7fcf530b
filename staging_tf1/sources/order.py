"""Which records make batch `k`: shuffle, shard, epochs and the last partial batch, all by arithmetic.

Sharding deals out the *shuffled* order (shard `i` of `n` has the places i, i+n, i+2n, ...), so the shards
together walk through one shuffle of all records: `n` shards at batch size `b` read in each round what one
reader with batch size `n*b` would. A shard of a shard is a shard again.
"""

from __future__ import annotations

import dataclasses
import threading
from collections import OrderedDict
from typing import Any, NamedTuple

import numpy as np

from staging_tf1.sources.permutation import permute

__all__ = ["Order", "Piece", "Schedule"]

# Places evaluated at once: long enough that numpy's cost a call vanishes (a quarter of them would take nearly as long),
# short enough (0.2 to 0.8 ms) not to be felt.
_CHUNK = 16384

# Chunks kept: feed threads work on neighbouring batches, so each needs one or two, across an end of epoch
# four.
_CHUNKS_KEPT = 4


class Piece(NamedTuple):
    """Consecutive places of one shard in one epoch: `start <= place < stop`."""

    epoch: int
    start: int
    stop: int


@dataclasses.dataclass(frozen=True)
class Schedule:
    """Cuts a shard's epochs into batches.

    Attributes:
      num_records: of the shard, in one epoch; at least 1.
      batch_size: records in a full batch.
      epochs: how many, or None without end.
      drop_remainder: leave out a batch that is not full.
      across_epochs: fill a batch from the next epoch, so that at most the very last one is partial.
    """

    num_records: int
    batch_size: int
    epochs: int | None = None
    drop_remainder: bool = False
    across_epochs: bool = False

    @property
    def batches_per_epoch(self) -> int | None:
        """Batches in one epoch; None when they cross epochs and do not divide them."""
        if self.across_epochs and self.num_records % self.batch_size:
            return None
        return self._count(self.num_records)

    @property
    def num_batches(self) -> int | None:
        """Batches over all epochs; None without end."""
        if self.epochs is None:
            return None
        if self.across_epochs:
            return self._count(self.num_records * self.epochs)
        return self._count(self.num_records) * self.epochs

    @property
    def has_partial(self) -> bool:
        """Whether a partial batch can occur."""
        if self.drop_remainder or (self.across_epochs and self.epochs is None):
            return False
        total = self.num_records * (self.epochs or 1) if self.across_epochs else self.num_records
        return total % self.batch_size != 0

    def _count(self, records: int) -> int:
        return records // self.batch_size if self.drop_remainder else -(-records // self.batch_size)

    def epoch_of(self, index: int) -> int:
        """The epoch in which batch `index` starts, counted from 0."""
        if self.across_epochs:
            return index * self.batch_size // self.num_records
        return index // self._count(self.num_records)

    def pieces(self, index: int) -> list[Piece]:
        """The places that make batch `index`: one piece, or several where a batch crosses epochs.

        Raises:
          IndexError: there is no such batch.

        >>> Schedule(num_records=10, batch_size=4, epochs=2).pieces(5)
        [Piece(epoch=1, start=8, stop=10)]
        >>> Schedule(num_records=10, batch_size=4, epochs=2, across_epochs=True).pieces(2)
        [Piece(epoch=0, start=8, stop=10), Piece(epoch=1, start=0, stop=2)]
        """
        last = self.num_batches
        if index < 0 or (last is not None and index >= last):
            raise IndexError(f"batch {index} is out of range (0 {'or more' if last is None else f'to {last - 1}'})")
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
    """The order of a shard's records in each epoch. Thread-safe.

    Args:
      total_records: of all shards together.
      seed: of the shuffle; None for the order in which they stand.
      shard_index, shard_count: which shard this is.

    >>> Order(10, seed=None, shard_index=1, shard_count=3).records(Piece(epoch=0, start=0, stop=2))
    slice(1, 7, 3)
    """

    def __init__(self, total_records: int, seed: int | None, shard_index: int = 0, shard_count: int = 1) -> None:
        self.total_records = total_records
        self.seed = seed
        self.shard_index = shard_index
        self.shard_count = shard_count
        self._chunks: OrderedDict[tuple[int, int], np.ndarray[Any, Any]] = OrderedDict()
        self._lock = threading.Lock()

    @property
    def num_records(self) -> int:
        """Records of this shard, in one epoch."""
        return len(range(self.shard_index, self.total_records, self.shard_count))

    def records(self, piece: Piece) -> np.ndarray[Any, Any] | slice:
        """The record numbers at the places of `piece`: int64, or a slice when they are not shuffled."""
        if self.seed is None:
            first = self.shard_index + self.shard_count * piece.start
            return slice(first, first + self.shard_count * (piece.stop - piece.start), self.shard_count)
        first_chunk, last_chunk = piece.start // _CHUNK, (piece.stop - 1) // _CHUNK
        parts = []
        for number in range(first_chunk, last_chunk + 1):
            base = number * _CHUNK
            chunk = self._chunk(piece.epoch, number)
            parts.append(chunk[max(piece.start - base, 0) : piece.stop - base])
        return parts[0] if len(parts) == 1 else np.concatenate(parts)

    def _chunk(self, epoch: int, number: int) -> np.ndarray[Any, Any]:
        key = (epoch, number)
        with self._lock:
            chunk = self._chunks.get(key)
            if chunk is not None:
                self._chunks.move_to_end(key)
                return chunk
        places = np.arange(number * _CHUNK, min((number + 1) * _CHUNK, self.num_records), dtype=np.int64)
        assert self.seed is not None
        chunk = permute(places * self.shard_count + self.shard_index, self.total_records, self.seed, epoch)
        with self._lock:
            self._chunks[key] = chunk
            while len(self._chunks) > _CHUNKS_KEPT:
                self._chunks.popitem(last=False)
        return chunk
