"""Which source each record of a mixture comes from.

Source `i` has `counts[i]` of `sum(counts)` records. Its `j`-th record, from 0, must stand at a place from
`floor(j / share)` to `ceil((j + 1) / share) - 1`. If all records do, every source has its share of any first `n`
records, to less than one (Baruah, Cohen, Plaxton, Varvel, "Proportionate Progress", 1996). Within that limit the places
are random. With a fixed pattern, a shard that takes every `n`-th record could always get the same source.

The order is drawn for a few tables, which are repeated in an order that a hash decides.
"""

from __future__ import annotations

import bisect
import functools
from collections.abc import Sequence
from typing import Any

import numpy as np

from staging_tf1.sources.permutation import mix64, mix_int

# The denominator of the finest share. Also the places of all tables together, which are drawn in 0.1 s.
_FINEST = 16384
# The places of one table, unless the shares need more.
_TABLE = 2048


def proportions(shares: np.ndarray[Any, Any]) -> tuple[int, ...]:
    """Return whole numbers in the proportions of `shares`, whose sum is 1, with a sum of at most 16,384.

    Raises ValueError if a share is too small for that.

    >>> proportions(np.array([0.7, 0.3]))
    (7, 3)
    """
    for total in range(len(shares), _FINEST + 1):
        rounded = np.rint(shares * total)
        if (np.abs(rounded - shares * total) < 1e-9 * total).all() and rounded.all():
            return tuple(int(count) for count in rounded)
    counts = np.floor(shares * _FINEST).astype(np.int64)
    # The largest remainders are rounded up.
    behind = np.argsort(counts - shares * _FINEST, kind="stable")
    counts[behind[: _FINEST - int(counts.sum())]] += 1
    if not counts.all():
        raise ValueError(
            f"mix() got weights, one of which is less than 1/{_FINEST} of their sum, the least that it can draw. Leave "
            f"that source out."
        )
    return tuple(int(count) for count in counts)


class Pattern:
    """The sources of all places of a mixture, without end."""

    def __init__(self, counts: tuple[int, ...], seed: int) -> None:
        period = sum(counts)
        self._length = period * max(1, _TABLE // period)
        self._per_table = np.array(counts) * (self._length // period)
        self._counts, self._seed = counts, seed

    def draws(self, places: np.ndarray[Any, Any]) -> tuple[np.ndarray[Any, Any], np.ndarray[Any, Any]]:
        """Return for each of ascending places its source, and how many earlier places have the same source."""
        which, before = _tables(tuple(self._per_table.tolist()), sum(self._counts), self._seed)
        rows, columns = np.divmod(places, self._length)
        first, last = int(rows[0]), int(rows[-1])
        hashes = mix64(np.arange(first, last + 1, dtype=np.uint64) + np.uint64(mix_int(self._seed)))
        table = (hashes % np.uint64(len(which))).astype(np.int64) * self._length
        columns += table.take(rows - first)
        source = which.ravel().take(columns)
        rows *= self._per_table.take(source)
        rows += before.ravel().take(columns)
        return source, rows


def records_without_repetition(counts: Sequence[int], sizes: Sequence[int]) -> int:
    """Return how many first records of a mixture repeat none of a source, with any seed. `sizes` are the sources'."""
    # Less than one record off, a source has at most all of its records if its share is at most that.
    return min(size * sum(counts) // count for size, count in zip(sizes, counts))


# More than the mixtures that a program reads in turn.
@functools.lru_cache(maxsize=16)
def _tables(counts: tuple[int, ...], period: int, seed: int) -> tuple[np.ndarray[Any, Any], np.ndarray[Any, Any]]:
    """Draw tables. Returns the source of each place, and how many places of the same source are before it."""
    length = sum(counts)
    seeds = [mix_int(seed ^ mix_int(table)) for table in range(max(1, _FINEST // length))]
    which = np.array(
        [_drawn_of_two(counts, period, seed) if len(counts) == 2 else _drawn_of_many(counts, seed) for seed in seeds]
    )
    before = np.empty_like(which)
    for source in range(len(counts)):
        mine = which == source
        before[mine] = (np.cumsum(mine, axis=1) - 1)[mine]
    return which, before


def _drawn_of_two(counts: tuple[int, ...], period: int, seed: int) -> np.ndarray[Any, Any]:
    """Draw the places of two sources. At each place, a source has exactly the probability of its share."""
    length = sum(counts)
    share = counts[0] * period // length
    phases = mix64(np.arange(length // period, dtype=np.uint64) + np.uint64(seed)) % np.uint64(period)
    upto = (share * np.arange(period + 1) + phases[:, None].astype(np.int64)) // period
    which: np.ndarray[Any, Any] = 1 - np.diff(upto, axis=1)
    return which.ravel()


def _drawn_of_many(counts: tuple[int, ...], seed: int) -> list[int]:
    """Draw the places of any number of sources.

    The source with the earliest random time comes next, unless another one would then miss its last place.
    """
    length = sum(counts)
    starts, stops, times = zip(
        *(_places_of(count, length, mix_int(seed ^ mix_int(source + 1))) for source, count in enumerate(counts))
    )
    # For each place, how many earlier places are left over by the records that must come before it.
    spare = np.arange(length + 1) - sum(np.searchsorted(stop, np.arange(length + 1), side="right") for stop in stops)
    drawn = []
    following = [0] * len(counts)
    # By place, the sources whose next record may come there at the earliest.
    coming: list[list[int]] = [list(range(len(counts))), *([] for _ in range(length))]
    # The sources whose next record may come now, by its time.
    ready: list[tuple[float, int]] = []
    for place in range(length):
        for source in coming[place]:
            bisect.insort(ready, (times[source][following[source]], source))
        for entry in ready:
            _, source = entry
            stop = stops[source][following[source]]
            if stop == place + 1 or spare[place + 1 : stop].min() > 0:
                break
        ready.remove(entry)
        spare[place + 1 : stop] -= 1
        drawn.append(source)
        following[source] += 1
        if following[source] < counts[source]:
            coming[max(starts[source][following[source]], place + 1)].append(source)
    return drawn


def _places_of(count: int, length: int, seed: int) -> tuple[list[int], list[int], list[float]]:
    """Return the first place of each record of one source, the place behind its last one, and its random time."""
    numbers = np.arange(count)
    uniform = (mix64(numbers.astype(np.uint64) + np.uint64(seed)) >> np.uint64(11)) / 2.0**53
    times = (numbers + uniform) * length / count
    return (numbers * length // count).tolist(), (-(-(numbers + 1) * length // count)).tolist(), times.tolist()
