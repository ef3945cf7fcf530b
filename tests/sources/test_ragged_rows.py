"""`ragged()`: records of different sizes in one batch, from every source that reads them one by one."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from slow import examples

from staging_tf1 import testing
from staging_tf1.errors import SpecError
from staging_tf1.sources import (
    ArraySource,
    MapSource,
    RaggedValue,
    TFRecordSource,
    concatenate,
    mix,
    zip_records,
)
from staging_tf1.sources.aligned import is_aligned
from staging_tf1.spec import ArraySpec
from staging_tf1.spec.ragged import RaggedSpec

TEXTS = [{"words": list(range(n, n + n % 4 + 1)), "label": n % 2, "vector": np.full(3, n, "f")} for n in range(20)]
OPTIONS: dict[str, Any] = dict(batch_size=4, shuffle=True, seed=1, epochs=2)


def texts(**options: Any) -> Any:
    return MapSource([{k: text[k] for k in ("words", "label")} for text in TEXTS], **{**OPTIONS, **options})


def test_a_batch_keeps_the_size_of_each_record() -> None:
    source = texts().ragged()
    assert source.spec == {
        "words": RaggedSpec((4, None), np.int64, name="words"),
        "label": ArraySpec((4,), np.int64, "label"),
    }
    for k in range(10):
        batch, ids = source.batch(k), source.record_ids(k)
        assert batch["words"].to_list() == [TEXTS[n]["words"] for n in ids]
        assert batch["label"].tolist() == [TEXTS[n]["label"] for n in ids]
        assert is_aligned(batch["words"].flat_values)
    testing.assert_resumes_everywhere(source)
    testing.assert_deterministic(source)
    testing.assert_shards_partition(texts(epochs=1).ragged(), 3)


def test_collate_does_the_same() -> None:
    first, other = texts(collate="ragged"), texts().ragged()
    assert first.spec == other.spec
    assert first.batch(3)["words"].to_list() == other.batch(3)["words"].to_list()
    assert texts(collate="ragged").pad(6).batch(0)["words"].shape == (4, 6), "the last call decides"


def test_dimensions_are_chosen_by_component() -> None:
    records = [
        {"rows": np.full((n + 1, 2), n), "image": np.full((n % 3, 4 - n, 5), n), "name": "ab"[:n]} for n in range(4)
    ]
    source = MapSource(records, batch_size=4, epochs=1).ragged({"rows": 1, "image": 2})
    batch = source.batch(0)
    assert source.spec["rows"] == RaggedSpec((4, None, 2), np.int64, name="rows")
    assert source.spec["image"] == RaggedSpec((4, None, None, 5), np.int64, 2, name="image")
    assert batch["rows"].flat_values.shape == (10, 2) and batch["rows"].nested_row_splits[0].tolist() == [
        0,
        1,
        3,
        6,
        10,
    ]
    assert batch["image"].nested_row_splits[1].tolist() == [0, 3, 5, 7]
    assert batch["name"].tolist() == [b"", b"a", b"ab", b"ab"]
    both = MapSource([{"a": np.zeros((1, 2)), "b": np.zeros((2, 2))}] * 2, batch_size=2, epochs=1).ragged(2).batch(0)
    assert both["a"].nested_row_splits[1].tolist() == [0, 2, 4] and len(both["b"].nested_row_splits[1]) == 5


@pytest.mark.parametrize(
    "document",
    [
        [[1, 2], [], [3]],
        (np.array([1, 2]), np.array([], int), [3]),
        RaggedValue.from_rows([[1, 2], [], [3]]),
    ],
    ids=["lists", "arrays", "a ragged value"],
)
def test_a_record_may_be_ragged_itself(document: Any) -> None:
    dataset = [[[7]], document] if not isinstance(document, tuple) else [[[7]], list(document)]
    batch = MapSource(dataset, batch_size=2, epochs=1).ragged(2).batch(0)
    assert batch.to_list() == [[[7]], [[1, 2], [], [3]]]


def test_a_malformed_ragged_record_is_refused_wherever_it_stands() -> None:
    """What is malformed is in the table of test_composites.py."""
    good, bad = (RaggedValue(np.arange(5), np.array(splits)) for splits in ([0, 2, 5], [0, 2]))
    for number, pair in enumerate([(bad, good), (good, bad)]):
        source = MapSource(pair, batch_size=2, epochs=1).ragged(2)
        with pytest.raises(
            SpecError, match=rf"^MapSource: record {number}: the batch.* row_splits that end at 2, expec"
        ):
            source.batch(0)


def test_lists_in_a_ragged_record_get_the_dtype_of_the_first_record() -> None:
    records = [RaggedValue(np.array([0.5]), np.array([0, 1])), RaggedValue([1, 2], [0, 1, 2])]
    batch = MapSource(records, batch_size=2, epochs=1).ragged(2).batch(0)
    assert batch.flat_values.dtype == np.float64 and batch.to_list() == [[[0.5]], [[1.0], [2.0]]]


def test_strings_empty_records_and_an_empty_epoch() -> None:
    source = MapSource([["a", "bc"], [], ["\N{SNOWMAN}"]], batch_size=2, epochs=1).ragged()
    assert [batch.to_list() for batch in source.batches()] == [[[b"a", b"bc"], []], [["\N{SNOWMAN}".encode()]]]
    assert source.spec == RaggedSpec((None, None), np.object_)


def test_records_of_files(tmp_path: Path) -> None:
    path = str(tmp_path / "words.tfrecord")
    import tensorflow.compat.v1 as tf

    with tf.io.TFRecordWriter(path) as writer:
        for n in range(7):
            writer.write(np.arange(n % 3).tobytes())
    buffer = np.empty(3, np.int64)

    def parse(record: bytes) -> Any:
        words = np.frombuffer(record, np.int64)
        buffer[: len(words)] = words
        return {"words": buffer[: len(words)], "rows": RaggedValue(buffer[: len(words)], [0, len(words)])}

    source = TFRecordSource(path, batch_size=3, epochs=1, parse_fn=parse).ragged({"words": 1, "rows": 2})
    expected = [list(range(n % 3)) for n in range(7)]
    assert [row for batch in source.batches() for row in batch["words"].to_list()] == expected
    assert [row for batch in source.batches() for row in batch["rows"].to_list()] == [[row] for row in expected]


def test_combinations_are_ragged_as_a_whole() -> None:
    first, second = texts().take(10), texts().skip(10)
    joined = concatenate([first, second]).ragged()
    assert joined.batch(1)["words"].to_list() == [TEXTS[n]["words"] for n in joined.record_ids(1)]
    mixed = mix([first, second], seed=3).ragged()
    assert mixed.batch(0)["words"].to_list() == [TEXTS[n]["words"] for n in mixed.record_ids(0)]
    zipped = zip_records({"text": texts(), "n": ArraySource(np.arange(20), **OPTIONS)}).ragged()
    assert zipped.batch(2)["text"]["words"].to_list() == [TEXTS[n]["words"] for n in zipped.batch(2)["n"]]
    with pytest.raises(ValueError, match=re.escape("which is ragged. Call ragged() on the result.")):
        concatenate([first.ragged(), second])
    arranged = texts().by_length([len(text["words"]) for text in TEXTS]).ragged()
    assert len({len(row) for row in arranged.batch(1)["words"].to_list()}) < 4


def test_collated_composites_are_zipped_but_not_joined() -> None:
    def collate(records: list[Any]) -> Any:
        return {"words": RaggedValue.from_rows([record["words"] for record in records])}

    source = texts(collate=collate)
    assert source.spec == {"words": RaggedSpec((4, None), np.int64, name="words")}
    zipped = zip_records({"a": source, "b": ArraySource(np.arange(20), **OPTIONS)})
    assert zipped.spec["a"]["words"] == RaggedSpec((4, None), np.int64, name="a.words")
    assert zipped.batch(1)["a"]["words"].to_list() == source.batch(1)["words"].to_list()
    with pytest.raises(SpecError) as caught:
        concatenate([source, source])
    assert str(caught.value) == (
        "concatenate(): component 'words' of source 0 is ragged int64 [?, ?], expected an array, because rows of "
        "several sources are put into one batch. Collate the result: concatenate(...).ragged()."
    )


ROWS = st.lists(st.lists(st.integers(-9, 9), max_size=3), max_size=3)


@settings(max_examples=examples(60))
@given(records=st.lists(ROWS, min_size=1, max_size=7), batch_size=st.integers(1, 4), rank=st.integers(1, 2))
def test_any_records_come_back(records: Any, batch_size: int, rank: int) -> None:
    """Records of arrays, so that the first one has a dtype even if it is empty."""
    wanted = records if rank == 2 else [[value for row in record for value in row] for record in records]
    made = [
        RaggedValue.from_rows(record, dtype=np.int64) if rank == 2 else np.array(record, np.int64) for record in wanted
    ]
    source = MapSource(made, batch_size=batch_size, epochs=1).ragged(rank)
    assert [row for batch in source.batches() for row in batch.to_list()] == wanted
