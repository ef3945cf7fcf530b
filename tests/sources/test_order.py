"""The order of records: pinned, uniform, disjoint across shards; positions are computed."""

from __future__ import annotations

import math
from collections import Counter

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from slow import examples

from staging_tf1.sources.order import Order, Piece, Schedule
from staging_tf1.sources.permutation import SORTED_RECORDS, permute


def _order(n: int, seed: int, epoch: int = 0) -> np.ndarray:
    return permute(np.arange(n), n, seed, epoch)


def test_order_is_pinned() -> None:
    # A change of any of these values would reorder resumed runs.
    assert _order(10, seed=42).tolist() == [3, 5, 2, 6, 9, 8, 7, 0, 1, 4]
    assert _order(10, seed=42, epoch=1).tolist() == [0, 9, 4, 2, 3, 6, 5, 1, 8, 7]
    assert _order(60_000, seed=42)[:5].tolist() == [34847, 7541, 54467, 36895, 40795]
    assert permute(np.arange(4), 10**9, 42, 3).tolist() == [742740197, 256970871, 512744951, 690376146]
    assert permute(np.arange(2), 10**12, 42, 3).tolist() == [203888628584, 779988564051]


@settings(max_examples=examples(60))
@given(
    n=st.one_of(st.integers(1, 300), st.integers(SORTED_RECORDS - 2, 20_000)),
    seed=st.integers(0, 2**63 - 1),
    epoch=st.integers(0, 10**6),
)
def test_every_record_has_one_place(n: int, seed: int, epoch: int) -> None:
    assert np.array_equal(np.sort(_order(n, seed, epoch)), np.arange(n))


@pytest.mark.parametrize("n", [SORTED_RECORDS + 1, 2**32 - 1, 2**32, 2**32 + 1, 10**12])
def test_any_places_can_be_asked_for(n: int) -> None:
    places = np.array([0, 1, n // 2, n - 1])
    records = permute(places, n, 7, 0)
    assert len(set(records.tolist())) == 4 and records.min() >= 0 and records.max() < n
    assert permute(places[2:3], n, 7, 0)[0] == records[2]


def test_all_permutations_of_three_are_equally_likely() -> None:
    counts = Counter(tuple(_order(3, seed)) for seed in range(6_000))
    assert len(counts) == 6
    chi_squared = sum((count - 1_000) ** 2 / 1_000 for count in counts.values())
    assert chi_squared < 20.5  # 0.1 % of uniform draws exceed this, and these draws are fixed


@pytest.mark.parametrize("n", [60_000, 65_536])
def test_mean_displacement_is_that_of_a_uniform_permutation(n: int) -> None:
    uniform = (n * n - 1) / (3 * n)
    for seed in range(5):
        displacement = np.abs(_order(n, seed) - np.arange(n)).mean()
        assert displacement == pytest.approx(uniform, rel=0.01)


@pytest.mark.parametrize("n", [60_000, 65_536])
def test_neighbours_are_independent(n: int) -> None:
    """The distances between neighbours, in 64 classes, are distributed as in a uniform permutation."""
    for seed in range(5):
        order = _order(n, seed)
        classes = (np.diff(order) % n) * 64 // n
        observed = np.bincount(classes, minlength=64)
        chi_squared = ((observed - n / 64) ** 2 / (n / 64)).sum()
        assert chi_squared < 63 + 5 * math.sqrt(2 * 63)


def test_epochs_and_seeds_are_independent_of_each_other() -> None:
    n = 60_000
    orders = [_order(n, seed, epoch) for seed in (0, 1) for epoch in (0, 1)]
    for i, first in enumerate(orders):
        for second in orders[i + 1 :]:
            assert (first == second).sum() < 10  # one on average
            assert abs(np.corrcoef(first, second)[0, 1]) < 5 / math.sqrt(n)


def test_shards_deal_out_the_shuffled_order() -> None:
    n, count = 10_001, 3
    whole = Order(n, seed=5).records(Piece(2, 0, n))
    for index in range(count):
        shard = Order(n, 5, index, count)
        assert np.array_equal(shard.records(Piece(2, 0, shard.num_records)), whole[index::count])


def test_unshuffled_records_are_a_slice() -> None:
    assert Order(10, None, 1, 3).records(Piece(7, 1, 3)) == slice(4, 10, 3)
    assert Order(10, None, 1, 3).num_records == 3


def test_nothing_grows_with_the_number_of_records() -> None:
    order = Order(10**9, seed=1)
    for step in range(0, 10**9, 10**7):
        order.records(Piece(0, step, step + 128))
    assert sum(chunk.nbytes for chunk in order._chunks.values()) <= 16 * 4096 * 8


@settings(max_examples=examples(200))
@given(
    n=st.integers(1, 40),
    batch_size=st.integers(1, 50),
    epochs=st.integers(1, 4),
    drop=st.booleans(),
    across=st.booleans(),
)
def test_batches_walk_through_the_epochs(n: int, batch_size: int, epochs: int, drop: bool, across: bool) -> None:
    schedule = Schedule(n, batch_size, epochs, drop, across)
    assert schedule.num_batches is not None
    batches = [
        [(piece.epoch, place) for piece in schedule.pieces(k) for place in range(piece.start, piece.stop)]
        for k in range(schedule.num_batches)
    ]
    walked = [place for batch in batches for place in batch]
    everything = [(epoch, place) for epoch in range(epochs) for place in range(n)]
    if not drop:
        assert walked == everything
    elif across:
        assert walked == everything[: len(everything) // batch_size * batch_size]
    else:
        assert walked == [(e, p) for e, p in everything if p < n // batch_size * batch_size]
    sizes = {len(batch) for batch in batches}
    assert schedule.has_partial == bool(sizes - {batch_size}) or not batches
    assert all(schedule.epoch_of(k) == batch[0][0] for k, batch in enumerate(batches))
    with pytest.raises(IndexError):
        schedule.pieces(schedule.num_batches)


def test_a_batch_may_be_larger_than_several_epochs() -> None:
    pieces = Schedule(3, 8, epochs=None, across_epochs=True).pieces(1)
    assert pieces == [Piece(2, 2, 3), Piece(3, 0, 3), Piece(4, 0, 3), Piece(5, 0, 1)]
