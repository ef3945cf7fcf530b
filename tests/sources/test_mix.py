"""mix: exact proportions in the order of all records, whatever the shards, epochs and weights."""

from __future__ import annotations

from collections import Counter
from fractions import Fraction
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from slow import examples

from staging_tf1.sources import ArraySource, mix
from staging_tf1.sources.pattern import Pattern, proportions


def numbered(first: int, count: int, **options: Any) -> ArraySource:
    return ArraySource(np.arange(first, first + count), **{**dict(batch_size=8, epochs=2, shuffle=True), **options})


def order(mixture: Any, count: int) -> np.ndarray[Any, Any]:
    """The first records of an endless mixture."""
    return np.asarray(mixture.with_options(batch_size=count, epochs=None, across_epochs=True).batch(0))


weights_lists = st.lists(st.integers(1, 12), min_size=1, max_size=5)


@settings(max_examples=examples(15))
@given(weights_lists, st.integers(0, 99))
def test_every_prefix_has_the_proportions(counts: list[int], seed: int) -> None:
    shares = np.array(counts) / sum(counts)
    which, draws = Pattern(tuple(counts), seed).draws(np.arange(3 * 2048 + 100))
    for source, share in enumerate(shares):
        mine = which == source
        assert np.abs(np.cumsum(mine) - share * np.arange(1, len(which) + 1)).max() < 1
        assert (draws[mine] == np.arange(mine.sum())).all(), "no draw is lost or repeated"


@settings(max_examples=examples(20))
@given(weights_lists, st.lists(st.integers(1, 40), min_size=5, max_size=5), st.booleans(), st.integers(1, 9))
def test_an_epoch_repeats_nothing_and_the_next_one_goes_on(
    weights: list[int], sizes: list[int], shuffle: bool, batch_size: int
) -> None:
    options: dict[str, Any] = dict(shuffle=shuffle, batch_size=batch_size)
    parts = [numbered(1000 * part, size, **options) for part, size in zip(range(len(weights)), sizes)]
    mixture = mix(parts, weights, seed=1)
    per_epoch = mixture.batches_per_epoch
    assert per_epoch is not None
    epochs = [[r for k in range(e * per_epoch, (e + 1) * per_epoch) for r in mixture.batch(k).tolist()] for e in (0, 1)]
    assert max(Counter(epochs[0]).values()) == 1 and len(epochs[0]) == mixture.num_records
    both = order(mixture, 2 * mixture.num_records).tolist()
    assert both == epochs[0] + epochs[1]
    for part, size in enumerate(sizes[: len(weights)]):
        mine = [record for record in both if record // 1000 == part]
        passes = [mine[start : start + size] for start in range(0, len(mine), size)]
        assert all(len(set(each)) == len(each) for each in passes), "a source begins again when all of it was read"
        assert shuffle or mine == [1000 * part + n % size for n in range(len(mine))]


@pytest.mark.parametrize("weights", [[1, 1], [0.7, 0.3], [0.9, 0.1], [1, 1, 1]])
@pytest.mark.parametrize("shards", [2, 3, 8, 10])
def test_a_shard_has_nearly_the_proportions(weights: list[float], shards: int) -> None:
    # A pattern that repeats would give some shards one source only: 1, 1 and two shards.
    mixture = mix([numbered(10**6 * part, 10**6) for part in range(len(weights))], weights, seed=1)
    records = order(mixture, 40_000)
    for shard in range(shards):
        mine = Counter((records[shard::shards] // 10**6).tolist())
        for part, weight in enumerate(mixture.weights):
            assert mine[part] / mine.total() == pytest.approx(float(weight), abs=0.035)


def test_the_order_of_a_seed_is_pinned() -> None:
    # Changing this reorders resumed runs.
    mixture = mix([numbered(0, 7), numbered(100, 3)], [0.7, 0.3], seed=42)
    assert order(mixture, 10).tolist() == PINNED_TWO
    mixture = mix([numbered(0, 7), numbered(100, 3), numbered(200, 5000)], [2, 1, 3], seed=42)
    assert order(mixture, 12).tolist() == PINNED_THREE


PINNED_TWO = [100, 1, 4, 5, 101, 3, 6, 102, 0, 2]
PINNED_THREE = [3876, 1, 1626, 100, 4, 1967, 4453, 5, 3410, 101, 3, 4593]


def test_each_source_is_shuffled_as_a_whole() -> None:
    mixture = mix([numbered(0, 6000), numbered(10_000, 10)], [0.5, 0.5], seed=1)
    first, second = (records[records < 10_000] for records in np.split(order(mixture, 24_000), 2))
    assert sorted(first.tolist()) == list(range(6000)) == sorted(second.tolist())
    assert first.tolist() != second.tolist() and np.abs(np.corrcoef(first, np.arange(6000))[0, 1]) < 0.05
    small = order(mixture, 24_000)
    passes = small[small >= 10_000].reshape(-1, 10)
    assert len({tuple(each) for each in passes.tolist()}) > 1000, "each pass has an order of its own"


def test_a_mixture_has_no_limit_on_records_or_draws() -> None:
    rows = np.broadcast_to(np.int64(9), (10**9,))
    options: dict[str, Any] = dict(epochs=None, batch_size=64, across_epochs=True)
    mixture = mix([numbered(0, 3, **options), ArraySource(rows, shuffle=True, seed=1, **options)])
    assert mixture.num_records == 6
    last = mixture.batch(10**12)
    assert (last == 9).sum() == 32 and set(last.tolist()) == {0, 1, 2, 9}


def test_the_seed_is_given_shared_or_drawn() -> None:
    drawn = mix([numbered(0, 9), numbered(100, 9)])
    assert drawn.seed_was_drawn and drawn.seed is not None
    assert not mix([numbered(0, 9, seed=4), numbered(100, 9, seed=4)]).seed_was_drawn
    given = mix([numbered(0, 9, seed=4), numbered(100, 9, seed=5)], seed=6)
    assert given.seed == 6 and given.fingerprint()["seed"] == 6
    assert order(drawn.with_seed(6), 18).tolist() == order(given, 18).tolist()
    unshuffled = mix([numbered(0, 9, shuffle=False), numbered(100, 9, shuffle=False)])
    assert unshuffled.seed_was_drawn, "the order of the sources is random"


@pytest.mark.parametrize(
    ("weights", "counts"),
    [
        ([0.7, 0.3], (7, 3)),
        ([7, 3], (7, 3)),
        ([Fraction(1, 3), Fraction(2, 3)], (1, 2)),
        ([1 / 3, 2 / 3], (1, 2)),
        ([np.float32(0.5), np.int64(1)], (1, 2)),
        ([0.001, 0.999], (1, 999)),
        ([2**70, 2**70], (1, 1)),
        ([10**300, 1e300], (1, 1)),
    ],
)
def test_weights_are_proportions(weights: list[Any], counts: tuple[int, ...]) -> None:
    mixture = mix([numbered(0, 9), numbered(9, 9)], weights, seed=1)
    assert mixture.weights == tuple(Fraction(count, sum(counts)) for count in counts)
    assert mix([numbered(0, 9), numbered(9, 9)], seed=1).weights == (Fraction(1, 2), Fraction(1, 2))


def test_odd_weights_are_rounded_to_16384_parts() -> None:
    shares = np.array([0.1234567, 0.2345678, 1 - 0.1234567 - 0.2345678])
    counts = proportions(shares)
    assert sum(counts) == 16384
    assert all(abs(count / 16384 - share) <= 1 / 16384 for count, share in zip(counts, shares))
