"""Functions of the user's that change what they get: neither the records nor a later epoch may notice."""

from __future__ import annotations

import collections
import functools
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from staging_tf1 import sources
from staging_tf1.sources import ArraySource, MapSource, RecordSource, TFRecordSource
from staging_tf1.sources.own_copy import own_copy
from staging_tf1.spec import ArraySpec, flatten
from staging_tf1.spec.ragged import RaggedValue
from staging_tf1.spec.sparse import SparseValue

Named = collections.namedtuple("Named", "x y")


class Tagged(list[Any]):
    """A list with attributes."""


class TaggedTuple(tuple[Any, ...]):
    """A tuple with attributes."""


class TaggedDict(collections.OrderedDict[Any, Any]):
    """A dict with attributes."""


class Items(dict[Any, Any]):
    """A dict whose attributes are its items."""

    def __init__(self, **items: Any) -> None:
        super().__init__(items)
        self.__dict__ = self


def cells() -> Any:
    """An array whose values are arrays."""
    held = np.empty(2, object)
    held[:] = [np.arange(3.0), np.ones(2)]
    return held


RECORDS: dict[str, Callable[[], Any]] = {
    "array": lambda: np.arange(3.0),
    "view": lambda: np.arange(8.0)[1::2],
    "dict": lambda: {"x": np.arange(3.0), "label": 2},
    "list": lambda: [3.0, 1.0, 2.0],
    "list of arrays": lambda: [np.arange(3.0), np.arange(2)],
    "tuple": lambda: (np.arange(3.0), 5),
    "nested": lambda: {"a": {"b": [np.arange(3), {"c": np.ones(2)}]}, "d": ([1, 2], np.ones(1))},
    "named tuple": lambda: Named([1, 2], np.ones(2)),
    "subclasses": lambda: collections.OrderedDict(x=np.ones(2), y=Tagged([np.ones(3)])),
    "array of arrays": cells,
    "bytes and sets": lambda: {"b": bytearray(b"abc"), "s": {1, 2}},
    "row of a table": lambda: np.zeros(1, [("x", "f8"), ("y", "i4")])[0],
    "sparse and ragged": lambda: {
        "r": RaggedValue(np.arange(3.0), np.array([0, 1, 3])),
        "s": SparseValue(np.zeros((1, 2), np.int64), np.ones(1), np.ones(2, np.int64)),
    },
}


def spoil(value: Any) -> float:
    """Change all that can be changed in `value`, and return a number that its content decides."""
    total = 0.0
    if isinstance(value, np.ndarray):
        total = sum(map(spoil, value)) if value.dtype == object else float(value.sum())
        if value.dtype != object:
            value += 1
    elif isinstance(value, np.void):
        total = float(value["x"])
        value["x"] += 1
    elif isinstance(value, RaggedValue):
        total = spoil(value.flat_values)
    elif isinstance(value, SparseValue):
        total = spoil(value.values)
    elif isinstance(value, dict):
        total = sum(spoil(value.pop(key)) for key in list(value))
    elif isinstance(value, (list, tuple, set, bytearray)):
        total = float(sum(map(spoil, value)))
        if not isinstance(value, tuple):
            value.clear()
    elif isinstance(value, (int, float)):
        total = float(value)
    return total


class Keeper:
    """A dataset of a class that keeps its records."""

    def __init__(self, records: list[Any]) -> None:
        self.records = records

    def __len__(self) -> int:
        return len(self.records)

    def __getitem__(self, number: int) -> Any:
        return self.records[number]


def spoilt_batch(records: list[Any]) -> Any:
    totals = np.array([spoil(record) for record in records])
    records.clear()
    return totals


kept = functools.cache(lambda number: RECORDS["dict"]())

# Sources whose functions change what they get, from a list of equal records.
WAYS: dict[str, Callable[[list[Any]], Any]] = {
    "load": lambda data: MapSource(data, load=spoil, batch_size=2),
    "load of a class": lambda data: MapSource(Keeper(data), load=spoil, batch_size=2),
    "load by threads": lambda data: MapSource(data, load=spoil, batch_size=4, threads=3),
    "load of good records": lambda data: MapSource(data, load=spoil, batch_size=3, skip_bad_records=True),
    "load and pad": lambda data: MapSource(data, load=lambda x: [spoil(x)], batch_size=2).pad(),
    "load in a combination": lambda data: sources.zip_records((MapSource(data, load=spoil, batch_size=2),)),
    "collate": lambda data: MapSource(data, collate=spoilt_batch, batch_size=2),
    "collate of a class": lambda data: MapSource(Keeper(data), collate=spoilt_batch, batch_size=4),
    "collate of what load returns": lambda data: MapSource(data, load=lambda x: x, collate=spoilt_batch, batch_size=2),
}


@pytest.mark.parametrize("record", RECORDS)
@pytest.mark.parametrize("way", WAYS)
def test_a_record_stays_what_it_is(way: str, record: str) -> None:
    data = [RECORDS[record]() for _ in range(4)]
    source = WAYS[way](data).with_options(epochs=3)
    total = spoil(RECORDS[record]())
    for batch in source.batches():
        np.testing.assert_array_equal(np.ravel(flatten(batch)[0]), total)
    assert [spoil(each) for each in data] == [total] * 4, "the dataset itself"


def test_what_load_keeps_stays_what_it_is() -> None:
    source = MapSource(range(4), load=kept, collate=spoilt_batch, batch_size=2, epochs=2)
    assert [batch.tolist() for batch in source.batches()] == [[5.0, 5.0]] * 4


def test_object_columns_hold_what_they_held() -> None:
    held = np.empty(4, object)
    held[:] = [np.arange(3.0) for _ in range(4)]
    source = MapSource({"x": held, "y": np.arange(4)}, load=lambda row: spoil(row["x"]), batch_size=2, epochs=2)
    assert [batch.tolist() for batch in source.batches()] == [[3.0, 3.0]] * 4


class Views(RecordSource):
    """A source of the user's that returns views of its array."""

    def __init__(self, **options: Any) -> None:
        self.array = np.zeros((4, 2))
        super().__init__(4, **options)

    def record_spec(self, batch_dim: int | None) -> Any:
        return ArraySpec((batch_dim, 2), np.float64)

    def gather(self, records: Any) -> Any:
        return self.array[records]


def files(folder: Path) -> str:
    sources.write_tfrecords([b"%d" % number for number in range(4)], folder / "r.tfrecord")
    return str(folder / "r.tfrecord")


zeros = {"x": np.zeros(4)}
parsed = np.zeros(2)

# Sources whose transform changes what it gets. All records are zeros.
TRANSFORMED: dict[str, Callable[..., Any]] = {
    "arrays": lambda folder, **options: ArraySource(zeros, **options),
    "a list": lambda folder, **options: MapSource([zeros] * 4, **options),
    "columns": lambda folder, **options: MapSource(zeros, **options),
    "ragged rows": lambda folder, **options: MapSource([[0.0]] * 4, collate="ragged", **options),
    "views": lambda folder, **options: Views(**options),
    "kept by parse_fn": lambda folder, **options: TFRecordSource(files(folder), parse_fn=lambda _: parsed, **options),
    "cache_bytes": lambda folder, **options: TFRecordSource(
        files(folder), parse_fn=lambda _: np.zeros(2), cache_bytes=10**6, **options
    ),
    "a cache": lambda folder, **options: sources.cached(zeros, folder / "cache", **options),
    "zipped views": lambda folder, transform, **options: sources.zip_records((Views(**options),)).with_options(
        transform=transform
    ),
    "concatenated": lambda folder, transform, **options: sources.concatenate(
        [ArraySource(np.zeros(2), **options), MapSource(np.zeros(2), **options)]
    ).with_options(transform=transform),
    "batches": lambda folder, batch_size, **options: sources.SequenceSource([zeros], **options),
}


def plus_one(batch: Any) -> Any:
    for leaf in flatten(batch):
        spoil(leaf)
    return batch


@pytest.mark.parametrize("kind", TRANSFORMED)
@pytest.mark.parametrize("shuffle", [False, True])
def test_a_transform_gets_a_copy(kind: str, shuffle: bool, tmp_path: Path) -> None:
    source = TRANSFORMED[kind](tmp_path, batch_size=2, epochs=3, shuffle=shuffle, transform=plus_one)
    for batch in source.batches():
        for leaf in flatten(batch):
            assert np.asarray(getattr(leaf, "flat_values", leaf)).ravel().tolist() == [1.0] * np.size(
                getattr(leaf, "flat_values", leaf)
            )


@pytest.mark.parametrize("make", [Tagged, TaggedTuple, TaggedDict, Items])
def test_attributes_are_copied(make: Any) -> None:
    record = make(x=np.zeros(2)) if issubclass(make, dict) else make([np.zeros(2)])
    part = record["x"] if isinstance(record, dict) else record[0]
    record.same, record.other = part, [part]
    own = own_copy(record)
    own.same += 1
    own_part = own["x"] if isinstance(own, dict) else own[0]
    assert own_part is own.same is own.other[0] and own_part.tolist() == [1, 1]
    assert part.tolist() == [0, 0] and vars(own).keys() == vars(record).keys()
    own.new = 5
    assert make is not Items or own["new"] == 5


def test_a_record_may_hold_itself() -> None:
    row: dict[str, Any] = {"x": np.zeros(2), "rows": [], "pair": ()}
    row["rows"].append(row)
    row["pair"] = (row, row["x"])
    own = own_copy(row)
    assert own is own["rows"][0] is own["pair"][0] is not row
    assert own["pair"][1] is own["x"] is not row["x"]


def test_a_tensor_of_torch_is_copied() -> None:
    torch = pytest.importorskip("torch")
    data = [(torch.zeros(2), 1) for _ in range(2)]
    source = MapSource(data, load=lambda record: record[0].add_(1), batch_size=2, epochs=2)
    assert [batch.tolist() for batch in source.batches()] == [[[1.0, 1.0]] * 2] * 2
