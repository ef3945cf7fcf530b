"""`packed`: several records in one row, each once, with what tells them apart."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st
from slow import examples

from staging_tf1 import testing
from staging_tf1.sources import MapSource, TFRecordSource, concatenate, mix, write_tfrecords
from staging_tf1.sources.packed import packed_rows
from staging_tf1.spec import flatten


def record(number: int, size: int) -> dict[str, Any]:
    """A record whose values name it."""
    return {"t": 1000 * number + np.arange(size), "e": np.full((size, 2), number, np.float32)}


def words(lengths: list[int], **options: Any) -> MapSource:
    given = dict(batch_size=3, epochs=1)
    return MapSource([record(n, size) for n, size in enumerate(lengths)], **{**given, **options})


def unpacked(batch: Any) -> list[list[list[int]]]:
    """The records in each row, found by the segments alone."""
    packed, segments, positions = batch
    rows = []
    for tokens, extra, numbers, places in zip(packed["t"], packed["e"], segments, positions):
        found = []
        for segment in range(1, numbers.max() + 1):
            mine = numbers == segment
            assert (np.diff(np.flatnonzero(mine)) == 1).all() and places[mine].tolist() == list(range(mine.sum()))
            assert (extra[mine, 0] == tokens[mine] // 1000).all()
            found.append(tokens[mine].tolist())
        assert not places[numbers == 0].any()
        rows.append([each for each in found if each])
    return rows


sized = st.lists(st.integers(0, 9), min_size=1, max_size=30)


@settings(max_examples=examples(60))
@given(lengths=sized, batch_size=st.integers(1, 4), shuffle=st.booleans(), length=st.integers(9, 20))
def test_each_record_is_in_one_row_once(lengths: list[int], batch_size: int, shuffle: bool, length: int) -> None:
    source = words(lengths, batch_size=batch_size, shuffle=shuffle, seed=1).packed(length, lengths, value=-1)
    rows = [row for batch in source.batches() for row in unpacked(batch)]
    held = sorted(each for row in rows for each in row)
    assert held == [record(n, size)["t"].tolist() for n, size in enumerate(lengths) if size]
    assert all(sum(map(len, row)) <= length for row in rows) and len(rows) == source.num_records
    for packed, segments, _ in source.batches():
        assert (packed["t"][segments == 0] == -1).all() and packed["t"].shape[1] == length


@settings(max_examples=examples(60))
@given(lengths=st.lists(st.integers(0, 50), min_size=1, max_size=300), length=st.integers(50, 90))
def test_two_rows_never_fit_into_one(lengths: list[int], length: int) -> None:
    rows = packed_rows(np.array(lengths), length)
    assert sorted(number for row in rows for number in row) == list(range(len(lengths)))
    sums = sorted(sum(lengths[number] for number in row) for row in rows)
    assert all(first + second > length for first, second in itertools.pairwise(sums))


def test_rows_of_many_records_are_nearly_full() -> None:
    lengths = np.clip(np.random.default_rng(0).lognormal(4, 0.8, 20_000).astype(int), 1, 512)
    assert lengths.sum() / 512 / len(packed_rows(lengths, 512)) > 0.99


LENGTHS = [1 + n % 7 for n in range(40)]


def test_rows_are_records_like_any_others(tmp_path: Any) -> None:
    source = words(LENGTHS, shuffle=True, seed=3, epochs=2).packed(10, LENGTHS)
    testing.assert_works_in_processes(source, processes=1)
    train, validation = source.split(0.5, seed=1)
    assert train.num_records + validation.num_records == source.num_records
    both = concatenate([source, source.take(2)])
    assert both.num_records == source.num_records + 2 and flatten(both.spec)[0].name == "[0].e"
    assert mix([source, source], seed=1).batch(0)[1].shape == (3, 10)


def test_the_chosen_records_are_packed_and_the_fingerprint_says_so() -> None:
    chosen = words(LENGTHS).select([39, 0, 7]).packed(10, [LENGTHS[n] for n in (39, 0, 7)])
    assert sorted(each[0] // 1000 for row in unpacked(chosen.batch(0)) for each in row) == [0, 7, 39]
    assert str(chosen.fingerprint()["records"]).startswith("MapSource(40).select(3, ")
    prints = [
        words(LENGTHS).packed(10, LENGTHS).fingerprint(),
        words(LENGTHS).packed(11, LENGTHS).fingerprint(),
        words(LENGTHS[::-1]).packed(10, LENGTHS[::-1]).fingerprint(),
    ]
    assert prints[0] != prints[1] != prints[2] != prints[0]


def test_records_of_files_and_strings_are_packed(tmp_path: Any) -> None:
    lines = ["a b c", "d", "e f"]
    file = write_tfrecords([line.encode() for line in lines], str(tmp_path / "lines.tfrecord"))
    source = TFRecordSource(file, batch_size=2, epochs=1, parse_fn=lambda line: np.array(line.split(), object))
    batch, segments, _ = source.packed(4, [3, 1, 2]).batch(0)
    assert batch.tolist() == [[b"a", b"b", b"c", b"d"], [b"e", b"f", b"", b""]]
    assert segments.tolist() == [[1, 1, 1, 2], [1, 1, 0, 0]]
    assert source.packed(4, [3, 1, 2]).fingerprint()["file_list"] == source.fingerprint()["file_list"]
