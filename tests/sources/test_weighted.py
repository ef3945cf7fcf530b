"""Records that are drawn with replacement: `weighted` and `balanced`."""

from __future__ import annotations

from collections import Counter
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from slow import examples

from staging_tf1.sources import ArraySource, concatenate
from staging_tf1.sources.permutation import mix_int
from staging_tf1.sources.reshard import carried_over


def numbered(count: int = 10, **options: Any) -> ArraySource:
    """Records that are consecutive numbers."""
    return ArraySource(np.arange(count), **{**dict(batch_size=4, epochs=2), **options})


def drawn(weights: list[float], seed: int, epoch: int, place: int) -> int:
    """What stands at a place, by a search without numpy."""
    key = mix_int(mix_int(seed) ^ mix_int(epoch + 1))
    number = mix_int(mix_int(place * 0x9E3779B97F4A7C15 + key)) >> 11
    total, reached = 0.0, []
    for weight in weights:
        total += weight / max(weights)
        reached.append(total)
    return next(record for record, bound in enumerate(reached) if int(bound / total * 2.0**53) > number)


WEIGHTS = st.lists(st.one_of(st.just(0.0), st.floats(1e-6, 1e300)), min_size=1, max_size=20).filter(any)


@settings(max_examples=examples(60))
@given(
    weights=WEIGHTS,
    seed=st.integers(0, 2**63 - 1),
    num_records=st.integers(1, 40),
    shuffle=st.booleans(),
    shard=st.integers(1, 3),
    batch_size=st.integers(1, 7),
)
def test_each_place_draws_what_a_plain_search_finds(
    weights: list[float], seed: int, num_records: int, shuffle: bool, shard: int, batch_size: int
) -> None:
    source = numbered(len(weights), shuffle=shuffle, batch_size=batch_size)
    source = source.weighted(weights, num_records=num_records, seed=seed)
    for index in range(min(shard, num_records)):
        part = source.shard(index, min(shard, num_records))
        places = range(index, num_records, min(shard, num_records))
        expected = [drawn(weights, seed, epoch, place) for epoch in range(2) for place in places]
        assert [record for batch in part.batches() for record in batch.tolist()] == expected
    assert all(weights[record] for record in source.batch(0).tolist()), "a record without weight is never drawn"


def test_the_parts_of_what_is_drawn_follow_the_weights() -> None:
    weights = [1, 0, 3, 6]
    batch = numbered(4, batch_size=100_000).weighted(weights, num_records=100_000, seed=1).batch(0)
    parts = np.bincount(batch, minlength=4) / 100_000
    assert np.abs(parts - np.array(weights) / 10).max() < 0.005


def test_each_epoch_draws_anew_and_each_label_alike() -> None:
    labels = np.array(["common"] * 97 + ["rare", "rare", "odd"])
    source = numbered(100, batch_size=9000).balanced(labels, num_records=9000, seed=5)
    first, second = source.batch(0), source.batch(1)
    assert first.tolist() != second.tolist()
    counts = Counter(labels[first].tolist())
    assert all(abs(count - 3000) < 200 for count in counts.values()) and len(counts) == 3


@pytest.mark.parametrize("dtype", [object, "T"])
def test_labels_may_be_strings_as_pandas_has_them(dtype: Any) -> None:
    labels = [f"class {n % 3}" for n in range(10)]
    if dtype == "T" and not hasattr(np.dtypes, "StringDType"):
        pytest.skip("numpy 1 has no such dtype")
    drawn = numbered(seed=1).balanced(np.array(labels, dtype))
    assert drawn.fingerprint() == numbered(seed=1).balanced(labels).fingerprint()


def test_the_chosen_records_are_drawn_and_combinations_can_be() -> None:
    assert set(numbered().select([7, 2]).weighted([1, 1], num_records=50).batch(0).tolist()) <= {2, 7}
    both = concatenate([numbered(), numbered(3)]).weighted([0.0] * 10 + [1, 0, 0], seed=1)
    assert both.batch(0).tolist() == [0] * 4


def test_without_a_seed_the_source_draws_one() -> None:
    source = numbered().weighted(range(10))
    assert source.seed_was_drawn and source.seed is not None
    assert source.with_seed(4).seed == 4 and not source.with_seed(4).seed_was_drawn
    assert numbered(seed=8).weighted(range(10)).seed == 8


def test_a_fingerprint_knows_the_weights() -> None:
    weighted = [numbered(seed=1).weighted(weights, num_records=n) for weights, n in ((range(10), 9), (range(1, 11), 9))]
    prints = [source.fingerprint() for source in (*weighted, numbered(seed=1), numbered(seed=1).weighted(range(10)))]
    assert all(a != b for i, a in enumerate(prints) for b in prints[:i])
    assert carried_over(prints[0], [1], prints[1], towers=1) is None
