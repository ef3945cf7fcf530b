"""Records of different sizes: padding, and batches of records of similar length."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from slow import examples

from staging_tf1 import testing
from staging_tf1.errors import SpecError
from staging_tf1.sources import ArraySource, MapSource, TFRecordSource, concatenate, mix, write_tfrecords, zip_records
from staging_tf1.spec import ArraySpec


def ragged(count: int = 6, **options: Any) -> MapSource:
    """Record `i` is a range of length `i`, and its length."""
    records = [{"tokens": np.arange(i), "length": i} for i in range(count)]
    return MapSource(records, **{**dict(batch_size=3, epochs=1), **options})


def test_records_are_padded_to_the_longest_of_their_batch() -> None:
    source = ragged().pad()
    assert source.spec["tokens"] == ArraySpec((3, None), np.int64, "tokens")
    assert source.spec["length"] == ArraySpec((3,), np.int64, "length")
    assert source.batch(0)["tokens"].tolist() == [[0, 0], [0, 0], [0, 1]]
    assert source.batch(1)["tokens"].shape == (3, 5) and source.batch(1)["length"].tolist() == [3, 4, 5]
    testing.assert_resumes_everywhere(source)
    testing.assert_deterministic(source)


def test_records_are_padded_to_a_size_with_a_value() -> None:
    source = ragged().pad(7, value=-1)
    assert source.spec["tokens"].shape == (3, 7)
    assert source.batch(0)["tokens"].tolist() == [[-1] * 7, [0, *[-1] * 6], [0, 1, *[-1] * 5]]
    by_name = ragged().pad({"tokens": 6}, value={"tokens": 9})
    assert by_name.batch(0)["tokens"][0].tolist() == [9] * 6
    testing.assert_shards_partition(by_name, 2)


def test_several_dimensions_and_strings_are_padded() -> None:
    records = [(np.ones((i + 1, 5 - i), np.float32), ["x"] * (i + 1)) for i in range(4)]
    source = MapSource(records, batch_size=4, epochs=1).pad({"[0]": (None, 6), "[1]": None}, value={"[1]": "-"})
    assert source.spec[0].shape == (4, None, 6)
    images, words = source.batch(0)
    assert images.shape == (4, 4, 6) and images.sum() == sum((i + 1) * (5 - i) for i in range(4))
    assert words.tolist()[1] == [b"x", b"x", b"-", b"-"]


def test_parsed_records_of_files_are_padded(tmp_path: Any) -> None:
    files = write_tfrecords([b"a", b"bcd", b"ef"], str(tmp_path / "w.tfrecord"))

    def parse(record: bytes) -> Any:
        return np.frombuffer(record, np.uint8)

    source = TFRecordSource(files, batch_size=3, parse_fn=parse, epochs=1)
    with pytest.raises(SpecError, match="pad or crop them"):
        source.batch(0)
    assert source.pad().batch(0).tolist() == [[97, 0, 0], [98, 99, 100], [101, 102, 0]]


def test_compositions_are_padded_as_one() -> None:
    both = concatenate([ragged(3), ragged(6)]).pad()
    assert both.batch(2)["tokens"].tolist() == [[0, 1, 2, 0, 0], [0, 1, 2, 3, 0], [0, 1, 2, 3, 4]]
    zipped = zip_records((ragged(), ragged())).pad({"[1].tokens": 8, "[0].tokens": None})
    assert [part["tokens"].shape for part in zipped.batch(1)] == [(3, 5), (3, 8)]
    mixture = mix([ragged(shuffle=True), ragged(shuffle=True)], seed=1).pad()
    testing.assert_resumes_everywhere(mixture)
    assert ragged().split(0.5, 1)[0].pad().num_records == 3


# by_length


def lengths_of(count: int, seed: int = 0) -> np.ndarray[Any, Any]:
    return np.random.default_rng(seed).integers(1, 500, count)


def padding(lengths: np.ndarray[Any, Any], source: Any) -> float:
    """The part of all batches of an epoch that is padding."""
    batches = [lengths[source.record_ids(k)] for k in range(source.batches_per_epoch)]
    return 1 - sum(batch.sum() for batch in batches) / sum(len(batch) * batch.max() for batch in batches)


@settings(max_examples=examples(40))
@given(st.integers(1, 60), st.integers(1, 5), st.integers(1, 7), st.integers(1, 4), st.booleans(), st.integers(1, 3))
def test_an_order_by_length_is_an_order(
    count: int, batch_size: int, group: int, block: int, shuffle: bool, shards: int
) -> None:
    lengths = lengths_of(count)
    source = ArraySource(np.arange(count), batch_size=batch_size, shuffle=shuffle, seed=1, epochs=2)
    grouped = source.by_length(lengths, group=group, block=block)
    testing.assert_resumes_everywhere(grouped, max_batches=10)
    testing.assert_deterministic(grouped, threads=2, max_batches=5)
    testing.assert_shards_partition(grouped, min(shards, count))
    places, whole = source.with_options(batch_size=count).record_ids(0), grouped.with_options(batch_size=count)
    for start in range(0, count, group * block):
        stop = start + group * block
        ours = whole.record_ids(0)[start:stop]
        assert sorted(ours.tolist()) == sorted(places[start:stop].tolist()), "no record leaves its block"
        groups = [sorted(lengths[ours[at : at + group]].tolist()) for at in range(0, len(ours), group)]
        full = [each for each in groups if len(each) == group]
        assert sorted(full) == full or shuffle
        assert all(lower[-1] <= higher[0] for lower, higher in zip(sorted(full), sorted(full)[1:])), (
            "groups do not overlap"
        )


def test_little_padding_is_left_and_the_order_is_still_a_shuffle() -> None:
    lengths = lengths_of(20_000)
    shuffled = ArraySource(np.arange(20_000), batch_size=32, shuffle=True, seed=1, epochs=2)
    grouped = shuffled.by_length(lengths)
    assert padding(lengths, shuffled) > 0.4 and padding(lengths, grouped) < 0.03
    order = grouped.with_options(batch_size=20_000)
    first, second = order.record_ids(0), order.record_ids(1)
    displacement = np.abs(np.argsort(first) - np.arange(20_000)).mean() / (20_000 / 3)
    assert displacement == pytest.approx(1, abs=0.03)
    assert (first != second).mean() > 0.99, "each epoch has an order of its own"
    means = lengths[first].reshape(-1, 32).mean(axis=1)
    assert abs(np.corrcoef(means[:-1], means[1:])[0, 1]) < 0.1, "lengths do not rise through a block"


def test_the_shards_of_a_step_have_similar_lengths() -> None:
    lengths = lengths_of(12_800)
    source = ArraySource(np.arange(12_800), batch_size=8, shuffle=True, seed=1, epochs=1).by_length(lengths, group=32)
    shards = [source.shard(tower, 4) for tower in range(4)]
    for k in range(20):
        step = np.concatenate([lengths[shard.record_ids(k)] for shard in shards])
        assert np.ptp(step) < 60
    assert all(padding(lengths, shard) < 0.03 for shard in shards)


def test_large_and_negative_lengths_give_the_same_order() -> None:
    lengths = lengths_of(400)
    source = ArraySource(np.arange(400), batch_size=8, shuffle=True, seed=1)
    orders = [source.by_length(each).record_ids(3).tolist() for each in (lengths, lengths * 2**20, lengths - 1000)]
    assert orders[0] == orders[1] == orders[2]


def test_lengths_are_copied() -> None:
    lengths = lengths_of(40)
    source = ArraySource(np.arange(40), batch_size=8, epochs=1).by_length(lengths)
    before = source.record_ids(0).tolist()
    lengths[:] = 0
    assert source.with_options(shuffle=False).record_ids(0).tolist() == before


def test_lengths_are_those_of_the_selected_records() -> None:
    values = lengths_of(300)
    part = ArraySource(values, batch_size=8, shuffle=True, seed=1, epochs=1).skip(20).split(0.5, 1)[0]
    own = np.concatenate(list(part.with_options(shuffle=False).batches()))
    grouped = part.by_length(own, group=8, block=4)
    spread = [np.ptp(batch) for batch in grouped.batches()]
    assert np.mean(spread) < 160 < np.mean([np.ptp(batch) for batch in part.batches()])
    testing.assert_shards_partition(grouped, 3)
