"""Single bad records are left out, counted and named, in each kind of source; the others of their batch are kept."""

from __future__ import annotations

import re
import threading
from concurrent.futures import ThreadPoolExecutor
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

BAD, NONE = {0, 4, 5, 6, 13}, {7, 19}
# Each thread has a buffer of its own: no source can help a function whose threads write to the same one.
own = threading.local()


def parsed(record: bytes) -> Any:
    """Parse a record; "none" and text that is no number are bad."""
    return None if record == b"none" else {"n": int(record), "x": np.full(3, int(record))}


def buffered(record: bytes) -> Any:
    """The same with a buffer that is used for each, as a `parse_fn` may do."""
    found = parsed(record)
    if found is not None:
        buffer = vars(own).setdefault("buffer", np.zeros(3, np.int64))
        buffer[:], found["x"] = found["x"], buffer
    return found


class Records:
    """Texts of which some cannot be parsed, in a container that parses them."""

    def __init__(self, texts: list[bytes], parse_fn: Any = parsed) -> None:
        self.texts, self.parse_fn = texts, parse_fn

    def __len__(self) -> int:
        return len(self.texts)

    def __getitem__(self, number: int) -> Any:
        return self.parse_fn(self.texts[number])


def texts(bad: Any = (), none: Any = ()) -> list[bytes]:
    return [b"bad" if n in bad else b"none" if n in none else b"%d" % n for n in range(20)]


def source(bad: Any = (), none: Any = (), parse_fn: Any = parsed, **options: Any) -> MapSource:
    options = {**dict(batch_size=4, epochs=1, skip_bad_records=True), **options}
    return MapSource(Records(texts(bad, none), parse_fn), **options)


FILES: dict[str, Any] = {
    "TFRecordSource": (TFRecordSource, sources.write_tfrecords),
    "ArrayRecordSource": (ArrayRecordSource, sources.write_array_records),
}


@pytest.fixture(params=["MapSource", "load", *FILES])
def make(request: pytest.FixtureRequest, tmp_path: Path) -> Any:
    """Make a source of the numbers up to 19, with bad records in place of some."""
    if request.param == "MapSource":
        return source
    if request.param == "ArrayRecordSource":
        pytest.importorskip("array_record")

    def make(bad: Any = (), none: Any = (), parse_fn: Any = parsed, **options: Any) -> Any:
        options = {**dict(batch_size=4, epochs=1, skip_bad_records=True), **options}
        if request.param == "load":
            return MapSource(texts(bad, none), load=parse_fn, **options)
        kind, write = FILES[request.param]
        parse_fn = buffered if parse_fn is parsed else parse_fn
        return kind(write(texts(bad, none), str(tmp_path / "records")), parse_fn=parse_fn, **options)

    return make


def check(found: Any, good: set[int]) -> None:
    """Check that each batch has all of its records that are good."""
    for k, batch in enumerate(found.batches()):
        assert batch["n"].tolist() == [n for n in found.record_ids(k).tolist() if n in good]
        assert batch["x"].tolist() == [[n] * 3 for n in batch["n"].tolist()]
    assert found.num_skipped == 20 - len(good)
    assert found.spec["n"].shape == (None,) and found.spec["x"].shape == (None, 3)


@pytest.mark.parametrize("options", [{}, dict(cache_bytes=0), dict(cache_bytes=100)], ids=str)
@pytest.mark.parametrize(("shuffle", "batch_size"), [(False, 1), (True, 4), (True, 20)])
def test_a_batch_has_all_its_records_but_the_bad_ones(
    make: Any, shuffle: bool, batch_size: int, options: dict[str, int]
) -> None:
    if options and isinstance(make(), MapSource):
        return
    options = dict(shuffle=shuffle, batch_size=batch_size, seed=3, epochs=2, **options)
    found = make(BAD, NONE, **options)
    check(found, set(range(20)) - BAD - NONE)
    assert found.fingerprint() == make(BAD, NONE, **options | dict(skip_bad_records=False)).fingerprint()


@settings(max_examples=examples(60))
@given(
    bad=st.sets(st.integers(0, 19), max_size=19),
    none=st.sets(st.integers(0, 18), max_size=19),
    batch_size=st.integers(1, 7),
    shuffle=st.booleans(),
    threads=st.integers(1, 3),
    epochs=st.integers(1, 2),
)
def test_any_records_may_be_bad(bad: set[int], none: set[int], **options: Any) -> None:
    good = set(range(20)) - bad - none
    if good:
        check(source(bad, none, seed=3, **options), good)


def test_each_bad_record_is_named_once(make: Any, caplog: pytest.LogCaptureFixture) -> None:
    found = make([3], [17], epochs=3)
    list(found.batches())
    first, second = [record.getMessage() for record in caplog.records]
    assert re.fullmatch(r"left out .*: record 3.* \(1 so far\): ValueError: invalid literal for int.*", first)
    assert re.fullmatch(r"left out .*: record 17.* \(2 so far\): SpecError: .*None.*", second)
    assert found.num_skipped == 2 and found.take(3).num_skipped == 2, "counted over all sources of the dataset"


def test_a_bad_record_that_two_threads_read_at_once_counts_once() -> None:
    both = threading.Barrier(2)

    def load(number: int) -> int:
        if number == 3:
            both.wait(60)
            raise ValueError
        return number

    found = MapSource(range(4), load=load, batch_size=4, skip_bad_records=True, max_ignored=1)
    # Read by one thread: from now on it is known that the records share no memory.
    assert found.spec is not None
    with ThreadPoolExecutor(2) as pool:
        assert [batch.tolist() for batch in pool.map(found.batch, [0, 0])] == [[0, 1, 2]] * 2


def test_what_may_not_be_left_out_raises(make: Any) -> None:
    for options, bad in ((dict(max_ignored=1), 4), (dict(max_ignored=0), 0), (dict(skip_bad_records=False), 0)):
        found = make([3, 17], **options)
        assert [len(found.batch(k)["n"]) for k in range(bad)] == [3, 4, 4, 4][:bad]
        with pytest.raises(ValueError, match="invalid literal"):
            found.batch(bad)

    def exhausted(record: bytes) -> Any:
        raise MemoryError

    with pytest.raises(MemoryError):
        make(parse_fn=exhausted).batch(0)
    for make_bad in (lambda: make(bad=range(20)), lambda: make(none=range(20)).pad()):
        with pytest.raises(SpecError, match=r"Source: all 20 records are bad\."):
            make_bad().spec  # noqa: B018
    with pytest.raises(ValueError, match=r"Source got max_ignored=3 without skip_bad_records=True\."):
        make(max_ignored=3, skip_bad_records=False)


def test_the_others_keep_their_places_in_every_layout(make: Any) -> None:
    found = make([0, 5, 6], shuffle=True, seed=1)
    testing.assert_resumes_everywhere(found)
    testing.assert_deterministic(found, threads=3)
    # This module imports TensorFlow, so processes get a function that is not defined here.
    if make is not source:
        testing.assert_works_in_processes(make([0, 5, 6], parse_fn=int), processes=1)
    for layout in (found.pad(), found.ragged(), found.with_options(batch_size=3)):
        kept = [n for batch in layout.batches() for n in batch["n"].tolist()]
        assert sorted(kept) == sorted({*range(20)} - {0, 5, 6})
        assert [spec.shape[0] for spec in flatten(layout.spec)] == [None, None], "a batch may be smaller"
    drawn = [n for batch in found.weighted(np.ones(20)).batches() for n in batch["n"].tolist()]
    assert drawn and not {0, 5, 6} & {*drawn}
    with pytest.raises(ValueError, match=r"which may leave out records \(skip_bad_records=True\)\. Write the good"):
        concatenate([found])


@pytest.mark.usefixtures("quick_graphs")
def test_a_batch_of_bad_records_is_staged_empty(make: Any) -> None:
    assert make([4, 5, 6, 7]).pad().batch(1)["x"].shape == (0, 0)
    with tf.Graph().as_default():
        x = staging.staged(make([4, 5, 6, 7, 9]))
        with staging.StagingSession() as sess:
            assert [sess.run(x["n"]).tolist() for _ in range(3)] == [[0, 1, 2, 3], [], [8, 10, 11]]


def test_collate_gets_the_good_ones() -> None:
    found = source(bad=[0, 5, 6, 8, 9, 10, 11], collate=lambda records: np.array([each["n"] for each in records]))
    assert [found.batch(k).tolist() for k in (0, 1)] == [[1, 2, 3], [4, 7]]
    with pytest.raises(SpecError, match="all records of a batch are bad, so collate gets none"):
        found.batch(2)


def test_a_cache_holds_the_good_ones(tmp_path: Any) -> None:
    stored = cached(source(bad=[0, 7]), tmp_path / "cache", batch_size=30, epochs=1, progress=False)
    assert stored.batch(0)["n"].tolist() == [n for n in range(20) if n not in (0, 7)]


def test_a_dataset_that_shrinks_is_no_bad_record() -> None:
    class Shrinking(Records):
        def __len__(self) -> int:
            self.texts = self.texts[:-5]
            return len(self.texts) + 5

        def __getitem__(self, number: int) -> Any:
            raise IndexError(number)

    with pytest.raises(StagingError, match="Records must stay"):
        MapSource(Shrinking(texts()), batch_size=4, skip_bad_records=True).batch(0)


def test_what_a_file_needs_to_leave_out_records(tmp_path: Path) -> None:
    path = sources.write_tfrecords(texts(), str(tmp_path / "records"))
    with pytest.raises(ValueError, match=r"Source got skip_bad_records= without parse_fn=\. Give"):
        TFRecordSource(path, batch_size=4, skip_bad_records=True)
    sizes = TFRecordSource(path, batch_size=12, skip_bad_records=True, parse_fn=lambda record: np.zeros(len(record)))
    with pytest.raises(SpecError, match="All records must have the same dtype and shape"):
        sizes.batch(0)


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
