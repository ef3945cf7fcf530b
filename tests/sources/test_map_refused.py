"""What MapSource and SequenceSource cannot read is refused by name."""

from __future__ import annotations

import types
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from staging_tf1.errors import SpecError
from staging_tf1.sources import MapSource, SequenceSource, concatenate


class Thing:
    """A dataset, as a class."""

    def __len__(self) -> int:
        return 1

    def __getitem__(self, i: int) -> Any:
        return i


def other_library(module: str, name: str) -> Any:
    """An object whose type has the name of another library's."""
    made = types.new_class(name, (list,))
    made.__module__ = module
    return made([1, 2])


REFUSED: dict[str, tuple[Callable[[], Any], type[Exception], str]] = {
    "a number": (
        lambda: MapSource(3, batch_size=1),
        TypeError,
        "MapSource got dataset=3, expected a dataset with __len__",
    ),
    "a string": (
        lambda: MapSource("abc", batch_size=1),
        TypeError,
        "got dataset='abc', expected a dataset with __len__",
    ),
    "a generator": (lambda: MapSource((n for n in "ab"), batch_size=1), TypeError, "expected a dataset with __len__"),
    "a class": (lambda: MapSource(Thing, batch_size=1), TypeError, "expected a dataset with __len__ and __getitem__"),
    "nothing": (lambda: MapSource([], batch_size=1), SpecError, "MapSource got a dataset without records, expected"),
    "no columns": (lambda: MapSource({}, batch_size=1), ValueError, "got dataset={}, expected at least one column"),
    "empty columns": (lambda: MapSource({"x": np.ones(0)}, batch_size=1), SpecError, "a dataset without records"),
    "lists as columns": (
        lambda: MapSource({"x": [1]}, batch_size=1),
        TypeError,
        "got a list of 1 as column 'x', expected",
    ),
    "lengths": (
        lambda: MapSource({"x": np.ones(2), "y": np.ones(3)}, batch_size=1),
        SpecError,
        "MapSource got columns of different lengths: component 'x' has 2, component 'y' has 3.",
    ),
    "dates": (lambda: MapSource(np.ones(2, "M8[s]"), batch_size=1), SpecError, "has dtype datetime64[s]"),
    "one value": (lambda: MapSource(np.array(3), batch_size=1), SpecError, "the batch is one value, expected an array"),
    "arrow": (
        lambda: MapSource(other_library("pyarrow.lib", "Table"), batch_size=1),
        TypeError,
        "MapSource got a Table of 2 as dataset. Its [] does not return a record. Pass its columns: {name: numpy_array}",
    ),
    "polars": (
        lambda: MapSource(other_library("polars.frame", "DataFrame"), batch_size=1),
        TypeError,
        "Pass its columns",
    ),
    "keras": (
        lambda: MapSource(other_library("keras.src.trainers", "PyDataset"), batch_size=1),
        TypeError,
        "Its elements are batches: use SequenceSource.",
    ),
    "load": (lambda: MapSource([1], batch_size=1, load=3), TypeError, "MapSource got load=3"),  # type: ignore[arg-type]
    "collate": (
        lambda: MapSource([1], batch_size=1, collate="join"),  # type: ignore[arg-type]
        ValueError,
        "MapSource got collate='join', expected 'stack', 'pad', 'ragged' or a function",
    ),
    "threads": (
        lambda: MapSource([1], batch_size=1, threads=0),
        ValueError,
        "MapSource got threads=0, expected a whole",
    ),
    "safe": (
        lambda: MapSource([1], batch_size=1, thread_safe=2),
        TypeError,
        "got thread_safe=2, expected True or False",
    ),
    "a None": (
        lambda: MapSource([1, None], batch_size=2).batch(0),
        SpecError,
        "MapSource: record 1 is None, expected a nest of arrays and numbers.",
    ),
    "another dtype": (
        lambda: MapSource([np.int32(1), np.int64(1)], batch_size=2).batch(0),
        SpecError,
        "MapSource: record 1: the dataset returned int64 [], but int32 [] for the first record.",
    ),
    "another number": (
        lambda: MapSource([1, 1.5], batch_size=2).batch(0),
        SpecError,
        "MapSource: record 1: the dataset: the batch got",
    ),
    "another shape": (
        lambda: MapSource([{"x": [1]}, {"x": [1, 2]}], batch_size=2).batch(0),
        SpecError,
        "MapSource: record 1: the dataset returned component 'x' as int64 [2], but int64 [1] for the first record. All "
        "records must have the same dtype and shape: pad or crop them.",
    ),
    "another structure": (
        lambda: MapSource([{"x": 1}, {"y": 1}], batch_size=2).batch(0),
        SpecError,
        "MapSource: record 1: the dataset: the batch lacks the key 'x' and has the unknown key 'y'",
    ),
    "an object": (
        lambda: MapSource([object()], batch_size=1).spec,
        SpecError,
        "MapSource: record 0: the batch got an obj",
    ),
    "few rows": (
        lambda: MapSource([1, 2], batch_size=2, collate=lambda records: np.zeros(1)).spec,
        SpecError,
        "MapSource: collate returned the batch with 1 rows for 2 records.",
    ),
    "no rows": (
        lambda: MapSource([1, 2], batch_size=2, collate=lambda records: 3).spec,
        SpecError,
        "MapSource: collate: the batch is one value, expected one row per record.",
    ),
    "sequence": (
        lambda: SequenceSource(3),
        TypeError,
        "SequenceSource got sequence=3, expected an object with __len__",
    ),
    "no batches": (lambda: SequenceSource([]), SpecError, "SequenceSource got a sequence without batches, ex"),
    "a None batch": (
        lambda: SequenceSource([None]).spec,
        SpecError,
        "SequenceSource: batch 0 is None, expected a nest",
    ),
    "pad batches": (
        lambda: SequenceSource([[1]]).pad(),
        ValueError,
        "whose elements are batches, expected a source with",
    ),
    "size": (
        lambda: SequenceSource([[1]]).with_options(batch_size=2),
        ValueError,
        "got batch_size=, but the dataset makes",
    ),
    "part": (lambda: concatenate([SequenceSource([[1]])]), ValueError, "as source 0, whose elements are batches. Use"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_what_cannot_be_read_is_refused_by_name(name: str) -> None:
    make, kind, message = REFUSED[name]
    with pytest.raises(kind) as caught:
        make()
    assert message in str(caught.value)
