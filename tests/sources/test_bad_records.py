"""Single bad records of a `MapSource` are left out, counted and named; the others of their batch are kept."""

from __future__ import annotations

import re
from typing import Any

import numpy as np
import pytest
import tensorflow.compat.v1 as tf
from hypothesis import given, settings
from hypothesis import strategies as st
from slow import examples

import staging_tf1 as staging
from staging_tf1 import testing
from staging_tf1.errors import SpecError, StagingError
from staging_tf1.sources import MapSource, cached, concatenate
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
