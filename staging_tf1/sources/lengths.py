"""Batches of records of similar length, from a shuffle of all records.

The shuffled order is cut into blocks. Within a block the records are sorted by length and cut into groups, and the
groups are shuffled again. Without that second shuffle, lengths would rise through each block and fall at its end, and
the training loss with them.
"""

from __future__ import annotations

import functools
from typing import Any

import numpy as np

from staging_tf1.sources.batches import Arrangement
from staging_tf1.sources.order import Order
from staging_tf1.sources.permutation import mix_int, permute
from staging_tf1.sources.selection import Chosen, digest, one_per_record


def grouped(lengths: np.ndarray[Any, Any], group: int, block: int) -> Arrangement:
    """Group records by their `lengths`, which were checked. See `RecordSource.by_length`."""
    # numpy sorts two bytes several times as fast as eight.
    small = lengths.astype(np.uint16) if lengths.min() >= 0 and lengths.max() < 2**16 else lengths
    return Arrangement(
        "by_length()",
        "which arranges all records. Call {caller} before it.",
        "which is arranged by_length(). Call by_length() on the result.",
        is_random=False,
        text=f"by_length(group={group}, block={block}, lengths={digest(lengths)})",
        order=functools.partial(_GroupedOrder, small, group, block),
    )


def checked_lengths(caller: str, lengths: Any, count: int) -> np.ndarray[Any, Any]:
    """Check the lengths of `count` records."""
    expected = f"one integer for each of the {count} records"
    array = one_per_record(caller, "lengths", lengths, count, expected, "iu")
    return array.astype(np.int64)  # a copy, because the order depends on it


class _GroupedOrder(Order):
    """Consecutive places, `group` of them, have records of similar length. `block` groups are sorted together."""

    def __init__(
        self,
        lengths: np.ndarray[Any, Any],
        group: int,
        block: int,
        chosen: Chosen,
        seed: int | None,
        shuffle: bool,
        shard: tuple[int, int],
    ) -> None:
        super().__init__(chosen.size, seed if shuffle else None, *shard, chosen.select)
        self._lengths, self._group, self._size = lengths, group, group * block

    @property
    def _is_identity(self) -> bool:
        return False

    def _at(self, places: np.ndarray[Any, Any], epoch: int) -> np.ndarray[Any, Any]:
        size = self._size
        records = np.empty_like(places)
        for block in range(int(places[0]) // size, int(places[-1]) // size + 1):
            start = block * size
            begin, end = np.searchsorted(places, (start, start + size))
            if begin < end:
                records[begin:end] = self._block(block, epoch)[places[begin:end] - start]
        return records

    def _block(self, block: int, epoch: int) -> np.ndarray[Any, Any]:
        """Return the records of one block. The last one may have fewer than the others."""
        size = self._size
        records = np.arange(block * size, min((block + 1) * size, self.total_records), dtype=np.int64)
        if self.seed is not None:
            records = permute(records, self.total_records, self.seed, epoch)
        records = records[np.argsort(self._lengths[records], kind="stable")]
        full = len(records) // self._group
        if self.seed is None or full < 2:
            return records
        # A partial group stays last, so the others still begin where batches begin.
        seed = mix_int(self.seed ^ mix_int(block + 1)) >> 1
        groups = permute(np.arange(full), full, seed, epoch)
        cut = full * self._group
        return np.concatenate([records[:cut].reshape(full, -1)[groups].ravel(), records[cut:]])
