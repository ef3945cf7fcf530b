"""Records drawn with replacement, with given probabilities.

Each place of each epoch draws by itself: a hash of the seed, the epoch and the place is a number below 2**53, and the
records divide these numbers among themselves in proportion to their weights. So any place can be read without the ones
before, and shards draw what one reader would.
"""

from __future__ import annotations

import functools
from typing import Any

import numpy as np

from staging_tf1 import arguments
from staging_tf1.sources.batches import Arrangement
from staging_tf1.sources.order import Order
from staging_tf1.sources.permutation import hashed, mix64, mix_int
from staging_tf1.sources.selection import Chosen, digest, label_codes, one_per_record

_MAKER = "weighted()"
# The precision of a float64 between 0 and 1.
_BITS = 53


def sampling(caller: str, weights: Any, count: int, num_records: int | None) -> Arrangement:
    """Draw from `count` records by weights, `num_records` of them in an epoch. Checks the arguments."""
    expected = f"a number from 0 for each of the {count} records"
    array = one_per_record(caller, "weights", weights, count, expected, "iuf").astype(np.float64)
    if not (np.isfinite(array).all() and (array >= 0).all() and array.any()):
        arguments.refuse(caller, "weights", weights, f"{expected}, at least one of them positive", ValueError)
    if num_records is None:
        num_records = count
    num_records = arguments.whole(caller, "num_records", num_records, 1, arguments.INT64_MAX, "records of an epoch")
    # Divided before they are added, because the sum of large ones may be infinite.
    bounds = np.cumsum(array / array.max())
    bounds = np.floor(bounds / bounds[-1] * 2.0**_BITS).astype(np.int64)
    return Arrangement(
        _MAKER,
        "which draws from all records. Call {caller} before it.",
        "whose records are drawn by weighted() or balanced(). Call it on the result.",
        is_random=True,
        text=f"weighted({digest(array)}, num_records={num_records})",
        order=functools.partial(_Drawn, bounds, num_records),
    )


def is_sampling(arrangement: Arrangement | None) -> bool:
    """Whether records are drawn by weights."""
    return arrangement is not None and arrangement.maker == _MAKER


def balancing(caller: str, labels: Any, count: int) -> np.ndarray[Any, Any]:
    """Return weights for `count` records with which each label is equally likely. Checks the argument."""
    codes = label_codes(caller, "labels", labels, count)
    weights: np.ndarray[Any, Any] = 1 / np.bincount(codes)[codes]
    return weights


class _Drawn(Order):
    """Draws `num_records` records in an epoch. Record `i` has the numbers from `bounds[i - 1]` to below `bounds[i]`."""

    def __init__(
        self,
        bounds: np.ndarray[Any, Any],
        num_records: int,
        chosen: Chosen,
        seed: int | None,
        shuffle: bool,
        shard: tuple[int, int],
    ) -> None:
        super().__init__(num_records, seed, *shard, chosen.select)
        self._bounds = bounds

    def _at(self, places: np.ndarray[Any, Any], epoch: int) -> np.ndarray[Any, Any]:
        assert self.seed is not None
        hashes = mix64(hashed(places, mix_int(mix_int(self.seed) ^ mix_int(epoch + 1))))
        drawn = (hashes >> np.uint64(64 - _BITS)).astype(np.int64)
        # Ascending, because a search at random places of many bounds takes five times as long.
        rows = drawn.argsort()
        records = np.empty_like(places)
        records[rows] = self._bounds.searchsorted(drawn[rows], side="right")
        return records
