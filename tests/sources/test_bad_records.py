"""Single bad records are left out, counted and named; the others of their batch are kept."""

from __future__ import annotations

import re
import threading
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tensorflow.compat.v1 as tf
from hypothesis import given, settings
from hypothesis import strategies as st
from slow import examples

import staging_tf1 as staging
from staging_tf1 import sources, testing
from staging_tf1.errors import CorruptRecordError, RecordFileError, SpecError, StagingError
from staging_tf1.sources import ArrayRecordSource, MapSource, TFRecordSource, cached, concatenate
from staging_tf1.spec import flatten


class Faulty:
    """Records that are consecutive numbers. Those in `bad` raise; those in `none` are None."""

    def __init__(self, count: int = 20, bad: Any = (), none: Any = ()) -> None:
        self.count, self.bad, self.none = count, set(bad), set(none)

    def __len__(self) -> int:
        return self.count

    def __getitem__(self, number: int) -> Any:
        if number in self.bad:
            raise OSError(f"image {number} is truncated")
        return None if number in self.none else {"n": number, "x": np.full(3, number)}


def source(bad: Any = (), none: Any = (), **options: Any) -> MapSource:
    return MapSource(Faulty(20, bad, none), **{**dict(batch_size=4, epochs=1, skip_bad_records=True), **options})


@settings(max_examples=examples(60))
@given(
    bad=st.sets(st.integers(0, 19), max_size=19),
    none=st.sets(st.integers(0, 19)),
    batch_size=st.integers(1, 7),
    shuffle=st.booleans(),
    threads=st.integers(1, 3),
    epochs=st.integers(1, 2),
    loads=st.booleans(),
)
def test_a_batch_has_all_its_records_but_the_bad_ones(bad: Any, none: Any, loads: bool, **options: Any) -> None:
    bad -= none if len(none) < 20 else set()
    good = set(range(20)) - bad - none
    if not good:
        return

    def load(number: int) -> Any:
        if number in bad:
            raise ValueError("load")
        return None if number in none else {"n": number, "x": np.full(3, number)}

    skips = dict(skip_bad_records=True, seed=3, **options)
    found = MapSource(range(20), load=load, **skips) if loads else MapSource(Faulty(20, bad, none), **skips)
    for k, batch in enumerate(found.batches()):
        assert batch["n"].tolist() == [n for n in found.record_ids(k).tolist() if n in good]
        assert batch["x"].shape == (len(batch["n"]), 3) and (batch["x"][:, 0] == batch["n"]).all()
    assert found.num_skipped == len(bad | none)
    assert found.spec["n"].shape == (None,)


def test_each_bad_record_is_named_once(caplog: pytest.LogCaptureFixture) -> None:
    found = source(bad=[3, 17], epochs=3)
    list(found.batches())
    assert [record.getMessage() for record in caplog.records] == [
        "left out MapSource: record 3 (1 so far): OSError: image 3 is truncated",
        "left out MapSource: record 17 (2 so far): OSError: image 17 is truncated",
    ]
    assert found.num_skipped == 2 and found.take(3).num_skipped == 2, "counted over all sources of the dataset"


def test_one_bad_record_more_than_may_be_left_out_raises() -> None:
    found = source(bad=[3, 17], max_ignored=1)
    assert [len(found.batch(k)["n"]) for k in range(4)] == [3, 4, 4, 4]
    with pytest.raises(OSError, match="image 17 is truncated"):
        found.batch(4)
    with pytest.raises(OSError, match="image 3 is truncated"):
        source(bad=[3], max_ignored=0).batch(0)
    with pytest.raises(OSError, match="image 3 is truncated"):
        MapSource(Faulty(20, [3]), batch_size=4).batch(0)


def test_the_order_and_the_position_are_those_of_the_source_that_raises() -> None:
    plain, skipping = MapSource(Faulty(), batch_size=4, seed=1), source(bad=range(7), epochs=None, seed=1)
    assert plain.fingerprint() == skipping.fingerprint()
    testing.assert_resumes_everywhere(source(bad=[0, 5, 6], shuffle=True, seed=1))
    testing.assert_works_in_processes(source(bad=[0, 5, 6]), allow_tensorflow=True)


@pytest.mark.parametrize("layout", [lambda s: s.pad(), lambda s: s.ragged(), lambda s: s.with_options(batch_size=2)])
def test_a_layout_leaves_them_out_too(layout: Any) -> None:
    found = layout(source(bad=[0, 1, 2, 3, 9]))
    kept = [n for batch in found.batches() for n in batch["n"].tolist()]
    assert kept == [n for n in range(20) if n not in (0, 1, 2, 3, 9)]
    assert [spec.shape[0] for spec in flatten(found.spec)] == [None, None], "a batch may be smaller"


def test_collate_gets_the_good_ones() -> None:
    found = source(bad=[0, 5, 6, 8, 9, 10, 11], collate=lambda records: np.array([each["n"] for each in records]))
    assert [found.batch(k).tolist() for k in (0, 1)] == [[1, 2, 3], [4, 7]]
    with pytest.raises(SpecError, match="all records of a batch are bad, so collate gets none"):
        found.batch(2)


def test_a_cache_holds_the_good_ones(tmp_path: Any) -> None:
    stored = cached(source(bad=[0, 7]), tmp_path / "cache", batch_size=30, epochs=1, progress=False)
    assert stored.batch(0)["n"].tolist() == [n for n in range(20) if n not in (0, 7)]


@pytest.mark.usefixtures("quick_graphs")
def test_they_are_left_out_of_what_is_staged() -> None:
    with tf.Graph().as_default():
        x = staging.staged(source(bad=[2, 3, 4], batch_size=5))
        with staging.StagingSession() as sess:
            assert [sess.run(x["n"]).tolist() for _ in range(2)] == [[0, 1], [5, 6, 7, 8, 9]]


def test_what_is_no_fault_of_a_record_is_not_left_out() -> None:
    class Shrinking(Faulty):
        def __len__(self) -> int:
            self.count -= 5
            return self.count + 5

        def __getitem__(self, number: int) -> Any:
            raise IndexError(number)

    shrunk = MapSource(Shrinking(), batch_size=4, skip_bad_records=True)
    with pytest.raises(StagingError, match="Records must stay"):
        shrunk.batch(0)

    def exhausted(number: int) -> Any:
        raise MemoryError

    with pytest.raises(MemoryError):
        MapSource(range(9), load=exhausted, batch_size=4, skip_bad_records=True).batch(0)

    for make in (lambda: source(bad=range(20)), lambda: source(none=range(20)).pad()):
        with pytest.raises(SpecError, match=r"MapSource: all 20 records are bad\."):
            make().spec  # noqa: B018


def test_what_cannot_be_is_refused() -> None:
    with pytest.raises(ValueError, match=re.escape("MapSource got max_ignored=3 without skip_bad_records=True.")):
        MapSource([1], batch_size=1, max_ignored=3)
    with pytest.raises(ValueError, match=r"which may leave out records \(skip_bad_records=True\)\. Write the good"):
        concatenate([source()])


# Record files: the same for a `parse_fn` that fails.

FILES: dict[str, Any] = {
    "TFRecordSource": (TFRecordSource, sources.write_tfrecords),
    "ArrayRecordSource": (ArrayRecordSource, sources.write_array_records),
}
# Each thread has a buffer of its own: no source can help a function whose threads write to the same one.
own = threading.local()


def parsed(record: bytes) -> Any:
    """Parse a record into a buffer that is used for each; "none" and text that is no number are bad."""
    if record == b"none":
        return None
    buffer = vars(own).setdefault("buffer", np.zeros(3, np.int64))
    buffer[:] = int(record)
    return {"n": int(record), "x": buffer}


@pytest.fixture(params=FILES)
def stored(request: pytest.FixtureRequest, tmp_path: Path) -> Any:
    """Make a source of the numbers up to 19, with bad records in place of some."""
    if request.param == "ArrayRecordSource":
        pytest.importorskip("array_record")
    kind, write = FILES[request.param]

    def make(bad: Any = (), none: Any = (), **options: Any) -> Any:
        texts = [b"bad" if n in bad else b"none" if n in none else b"%d" % n for n in range(20)]
        path = write(texts, str(tmp_path / "records"))
        options = {**dict(batch_size=4, epochs=1, parse_fn=parsed, skip_bad_records=True), **options}
        return kind(path, **options)

    return make


@pytest.mark.parametrize("cache_bytes", [0, 100, 10**6])
@pytest.mark.parametrize("shuffle", [False, True])
@pytest.mark.parametrize("batch_size", [1, 4, 20])
def test_a_batch_has_all_records_of_its_file_but_the_bad_ones(
    stored: Any, shuffle: bool, batch_size: int, cache_bytes: int
) -> None:
    bad, none = {0, 4, 5, 6, 13}, {7, 19}
    options = dict(shuffle=shuffle, batch_size=batch_size, cache_bytes=cache_bytes, seed=3, epochs=2)
    found = stored(bad, none, **options)
    assert found.spec["x"].shape == (None, 3), "the first record is bad"
    for k, batch in enumerate(found.batches()):
        assert batch["n"].tolist() == [n for n in found.record_ids(k).tolist() if n not in bad | none]
        assert batch["x"].tolist() == [[n] * 3 for n in batch["n"].tolist()]
    assert found.num_skipped == len(bad | none)
    assert found.fingerprint() == stored(bad, none, skip_bad_records=False, **options).fingerprint()


def test_bad_records_of_a_file_are_named_once(stored: Any, caplog: pytest.LogCaptureFixture) -> None:
    found = stored([3], [17], epochs=3)
    list(found.batches())
    first, second = [record.getMessage() for record in caplog.records]
    assert re.fullmatch(r"left out \S*records: record 3.* \(1 so far\): ValueError: invalid literal for int.*", first)
    assert re.fullmatch(r"left out \S*records: record 17.* \(2 so far\): SpecError: parse_fn returned None\.", second)
    assert found.num_skipped == 2


def test_bad_records_of_a_file_raise_where_they_may_not_be_left_out(stored: Any) -> None:
    found = stored([3, 17], max_ignored=1)
    assert [len(found.batch(k)["n"]) for k in range(4)] == [3, 4, 4, 4]
    with pytest.raises(ValueError, match="invalid literal"):
        found.batch(4)
    with pytest.raises(ValueError, match="invalid literal"):
        stored([3], skip_bad_records=False).batch(0)

    def exhausted(record: bytes) -> Any:
        raise MemoryError

    with pytest.raises(MemoryError):
        stored(parse_fn=exhausted).batch(0)
    with pytest.raises(SpecError, match="All records must have the same dtype and shape"):
        stored(parse_fn=lambda record: np.zeros(len(record))).take(12).with_options(batch_size=12).batch(0)
    for name, options in (("skip_bad_records=", {}), ("max_ignored=3", {"skip_bad_records": False, "max_ignored": 3})):
        with pytest.raises(ValueError, match=rf"Source got {name} without (parse_fn=|skip_bad_records=True)\. Give"):
            stored(parse_fn=None if not options else parsed, **options)


def test_a_file_of_bad_records_only_is_refused(stored: Any) -> None:
    for make in (lambda: stored(bad=range(20)), lambda: stored(none=range(20)).pad()):
        with pytest.raises(SpecError, match=r"Source: all 20 records are bad\."):
            make().spec  # noqa: B018


def test_bad_records_of_files_keep_the_places_of_the_others(stored: Any) -> None:
    found = stored([0, 5, 6], shuffle=True, seed=1)
    testing.assert_resumes_everywhere(found)
    testing.assert_deterministic(found, threads=3)
    # This module imports TensorFlow, so processes get a function that is not defined here.
    testing.assert_works_in_processes(stored([0, 5, 6], parse_fn=int))
    for layout in (found.pad(), found.ragged(), found.with_options(batch_size=3), found.weighted(np.ones(20))):
        kept = [n for batch in layout.batches() for n in batch["n"].tolist()]
        assert len(kept) > 0 and not {0, 5, 6} & {*kept}
    with pytest.raises(ValueError, match=r"which may leave out records \(skip_bad_records=True\)"):
        concatenate([found])


@pytest.mark.usefixtures("quick_graphs")
def test_a_batch_of_bad_records_is_empty(stored: Any) -> None:
    with tf.Graph().as_default():
        x = staging.staged(stored([4, 5, 6, 7, 9]))
        with staging.StagingSession() as sess:
            assert [sess.run(x["n"]).tolist() for _ in range(3)] == [[0, 1, 2, 3], [], [8, 10, 11]]


def test_corrupt_records_are_no_bad_ones(tmp_path: Path) -> None:
    path = tmp_path / "records"
    sources.write_tfrecords([b"%d" % number for number in range(10, 20)], path)
    content = bytearray(path.read_bytes())
    content[18 * 3 + 12] ^= 1  # the first byte of record 3
    path.write_bytes(content)
    options = dict(batch_size=10, epochs=1, parse_fn=lambda record: int(record) // (int(record) != 15))
    with pytest.raises(CorruptRecordError, match="record 3, at byte 54, is corrupt"):
        TFRecordSource(path, skip_bad_records=True, **options).batch(0)
    both = TFRecordSource(path, skip_bad_records=True, skip_corrupt=True, **options)
    assert both.batch(0).tolist() == [10, 11, 12, 14, 16, 17, 18, 19] and both.num_skipped == 2
    with pytest.raises(RecordFileError, match="all 1 records are corrupt"):
        TFRecordSource(path, skip_bad_records=True, skip_corrupt=True, **options).select([3]).spec  # noqa: B018
