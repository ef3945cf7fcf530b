"""What cannot be read, cut, combined, padded or drawn is refused by name, and the message says what to do.

What a single argument may be is in `test_arguments.py`.
"""

from __future__ import annotations

import functools
import types
from collections import namedtuple
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from staging_tf1.errors import SpecError
from staging_tf1.sources import (
    ArraySource,
    GeneratorSource,
    MapSource,
    RaggedValue,
    SequenceSource,
    Source,
    SparseValue,
    TFRecordSource,
    concatenate,
    mix,
    write_tfrecords,
    zip_records,
)
from staging_tf1.spec import ArraySpec

Feature = namedtuple("Feature", "dtype")
Make = Callable[[], Any]


class Batches(Source):
    """A source with random access to batches, and no records."""

    spec = ArraySpec((None,), np.int64)
    batch_size, num_records, batches_per_epoch, num_batches = 2, None, None, None

    def batch(self, index: int) -> Any:
        return np.array([index])

    def shard(self, index: int, count: int) -> Source:
        raise NotImplementedError

    def fingerprint(self) -> dict[str, int | str]:
        return {"source": "batches"}


class Thing:
    """A dataset, as a class."""

    def __len__(self) -> int:
        return 1

    def __getitem__(self, i: int) -> Any:
        return i


def of(rows: Any, **options: Any) -> Any:
    """A source of rows of an array."""
    return ArraySource(rows, **{"batch_size": 4, "epochs": 1, **options})


def mapped(*records: Any, **options: Any) -> Any:
    """A source of these records, all in one batch."""
    return MapSource(list(records), **{"batch_size": len(records), **options})


def other_library(module: str, name: str) -> Any:
    """An object whose type has the name of another library's."""
    made = types.new_class(name, (list,))
    made.__module__ = module
    return MapSource(made([1, 2]), batch_size=1)


# Ten records that are consecutive numbers; records of the lengths 0 to 5; a mixture.
TEN: Any = of(np.arange(10))
RANGES: Any = MapSource([{"tokens": np.arange(i), "length": i} for i in range(6)], batch_size=3)
TEXTS: Any = MapSource([{"words": [1, 2], "label": 0}, {"words": [1], "label": 1}], batch_size=2)
MIXED: Any = mix([TEN, TEN], seed=1)
MASK = np.ma.array([1] * 10, mask=[True] * 10)

# Values whose first batch or spec is refused.
RECORDS: list[tuple[Make, str]] = [
    (lambda: mapped(1, None), "MapSource: record 1 is None, expected a nest of arrays and numbers."),
    (lambda: mapped(np.int32(1), np.int64(1)), "record 1: the dataset returned int64 [], but int32 [] for the first r"),
    (lambda: mapped(1, 1.5), "MapSource: record 1: the dataset: the batch got"),
    (lambda: mapped({"x": [1]}, {"x": [1, 2]}), "component 'x' as int64 [2], but int64 [1] for the first record. All"),
    (lambda: mapped([1], [1, 2]), "All records must have the same dtype and shape: pad or crop them."),
    (lambda: mapped({"x": 1}, {"y": 1}), "the batch lacks the key 'x' and has the unknown key 'y'"),
    (lambda: mapped(object()), "MapSource: record 0: the batch got an obj"),
    (lambda: mapped(1, 2, collate=lambda _: np.zeros(1)), "collate returned the batch with 1 rows for 2 records."),
    (lambda: mapped(1, 2, collate=lambda _: 3), "collate: the batch is one value, expected one row per record."),
    (lambda: SequenceSource([None]), "SequenceSource: batch 0 is None, expected a nest"),
    # Padded.
    (lambda: RANGES.pad(4).select([5]), "record 5: component 'tokens' is int64 [5], longer than the 4 that pad(to=..."),
    (lambda: RANGES.pad({"length": ()}).select([0, 3]), "component 'tokens' is int64 [3], expected int64 [0]."),
    (lambda: mapped(np.ones(2), np.ones(2, np.int32)).pad(), "record 1: the batch is int32 [2], but float64 [2] for"),
    (lambda: mapped(np.ones(2), np.ones((2, 2))).pad(), "record 1: the batch is float64 [2, 2], but float64 [2] for"),
    (lambda: mapped([[1, 2]], [[3]]).pad(), "To pad other dimensions than the first, name them: pad(to=(None, None))."),
    (lambda: mapped({"x": [[1]]}, {"x": [[1, 2]]}).pad(), "name them: pad(to={'x': (None, None)})."),
    # Otherwise all records would be floats.
    (lambda: mapped([], [1, 2]).pad(), "record 0: the batch is an empty list, which has no dtype"),
    (lambda: RANGES.pad(value=0.5), "pad() got value=0.5: component 'length'"),
    (lambda: of(np.arange(3)).pad({"x": 1}), "pad() names unknown component 'x', expected one of ['']"),
    (lambda: RANGES.pad({"tokens": (1, 2)}), "pad() got to={'tokens': (1, 2)}, but component 'tokens' of a record is"),
    (lambda: RANGES.pad(value="x"), "pad() got value='x', but component 'leng"),
    # Packed.
    (lambda: mapped([1], [2, 3]).packed(8, [1, 3]), "record 1: the batch is int64 [2], but packed() got the length 3."),
    (lambda: TEN.take(2).packed(8, [1, 1]), "record 0: the batch is int64 [], but packed() got the length 1."),
    (lambda: mapped([], [1]).packed(8, [0, 1]), "record 0: the batch is an empty list, which has no dtype, and the fi"),
    # Ragged.
    (lambda: TEXTS.ragged({"wrds": 1}), "unknown component 'wrds', expected one of ['label', 'w"),
    (lambda: TEXTS.ragged(2), "component 'words' got an int as a row, expected a list or array. In ragged(), its rank"),
    (lambda: mapped(np.zeros(3)).ragged(2), "record 0: the batch has fewer dimensions than the 2 that ragged(rank=2)"),
    (lambda: mapped(np.zeros((1, 2)), np.zeros(3)).ragged(2), "as a row, expected a list or array. In ragged(), its r"),
    (lambda: mapped(RaggedValue([1], [0, 1])).ragged(), "is ragged itself: 2 dimensions vary, expected at most 1. Nam"),
    (lambda: mapped(SparseValue([[0]], [1], [1])).ragged(), "It stands for a whole batch. Make it dense"),
    (lambda: mapped(3).ragged({"": 1}), "got an int as a row, expected a list or array. In ragged(), its rank is 1. "),
    (lambda: mapped([], [1]).ragged(), "is an empty list, which has no dtype"),
    (lambda: mapped([1], [1.5]).ragged(), "got a list of 1 that cannot be converted to int64 values: 1.5 does not fit"),
    (lambda: mapped(np.zeros(1), np.zeros(1, "f")).ragged(), "the batch has float32 [1], but float64 [?] in the first"),
    (lambda: mapped(np.zeros((1, 2)), np.zeros((1, 3))).ragged(), "but float64 [?, 2] in the first record. Convert or"),
    (lambda: mapped([1], 1).ragged(), "got an int as a row, expected a list or array."),
    (lambda: mapped({"a": [1]}, [1]).ragged(), "got a list of 1, expected a"),
    (
        lambda: mapped({"a": [1], "b": [1]}, {"a": [1], "b": [1, 2]}).ragged({"a": 1}),
        "component 'b' has int64 [2], but int64 [1] in the first record",
    ),
    # Combined.
    (lambda: concatenate([of(np.ones((3, 2))), of(np.ones((3, 3)))]), "is float64 [?, 3], but float64 [?, 2] in sourc"),
]


@pytest.mark.parametrize(("make", "message"), RECORDS, ids=lambda value: value[:40] if isinstance(value, str) else None)
def test_records_that_make_no_batch_are_named(make: Make, message: str) -> None:
    with pytest.raises(ValueError) as caught:  # SpecError is one
        make().spec  # noqa: B018
        make().batch(0)
    assert message in str(caught.value)


CALLS: list[tuple[Make, type[Exception], str]] = [
    # One source.
    (lambda: TEN.take(0), ValueError, "take() got count=0, expected a whole number from 1"),
    (lambda: TEN.skip(10), ValueError, "skip() got count=10, expected a whole number from 0 to 9"),
    (lambda: TEN.split(1.0, 1), ValueError, "split() got fraction=1.0, expected a number between 0 and 1."),
    (lambda: TEN.take(1).split(0.5, 1), ValueError, "leaves 0 and 1 of 1 records, expected at least one in each part."),
    (lambda: TEN.split(0.01, 1), ValueError, "split(0.01, seed=1) leaves 0 and 10 of 10 records"),
    (lambda: TEN.split(0.5, 1, key=["a"] * 10), ValueError, "at least one in each part. Use more records or keys"),
    (lambda: TEN.split(0.5, 1, key=[1, 2]), ValueError, "split() got 2 keys, expected one integer or"),
    (lambda: TEN.split(0.5, 1, key=np.ones(10)), TypeError, "split() got key=array([1., 1."),
    (lambda: TEN.split(0.5, 1, key=[None] * 10), TypeError, "split() got key=None, expected one integer"),
    (lambda: TEN.select([]), ValueError, "select() selects none of 10 records, expected at least one."),
    (lambda: TEN.select([False] * 10), ValueError, "select() selects none of 10 records"),
    (lambda: TEN.select([True]), TypeError, "select() got records=[True], expected a mask of 10 boo"),
    (lambda: TEN.select([0, 1] * 5), ValueError, "select() got 10 numbers for 10 records, all of"),
    (lambda: TEN.select(MASK), TypeError, "or record numbers from 0 to 9, without a mask of missing values."),
    (lambda: TEN.select([0.5]), TypeError, "select() got records=[0.5], expected a mask of 10 booleans, or"),
    (lambda: TEN.select([3, 10]), ValueError, "select() got the record number 10, expected numb"),
    (lambda: TEN.select([-1]), ValueError, "select() got the record number -1, expected numbers from"),
    (lambda: TEN.shard(0, 2).select([1]), ValueError, "Call select() first, and shard() on its"),
    (lambda: TEN.shard(0, 2).take(1), ValueError, "a shard: records are counted before they are divided. Call take()"),
    (lambda: TEN.by_length(range(10)).take(3), ValueError, "take() comes after by_length(), which arranges all record"),
    (lambda: TEN.by_length([1]), ValueError, "by_length() got 1 lengths, expected one integer for each"),
    (lambda: TEN.by_length(["a"] * 10), TypeError, "by_length() got lengths=['a', 'a'"),
    (lambda: TEXTS.packed(8, [9, 1]), ValueError, "packed() got the length 9 of record 0, expected lengths"),
    (lambda: TEXTS.packed(8, [-1, 1]), ValueError, "packed() got the length -1 of record 0"),
    (lambda: TEXTS.packed(8, [1]), ValueError, "packed() got 1 lengths, expected one integer for each"),
    (lambda: TEXTS.pad().packed(8, [1, 1]), ValueError, "which is padded. Call pad() on the result."),
    (lambda: TEXTS.shard(0, 2).packed(8, [1]), ValueError, "a shard: records are arranged before"),
    (lambda: of([1], transform=abs).packed(8, [1]), ValueError, "Pass it to the result: source.packed(...).with_opt"),
    (lambda: TEN.weighted([1]), ValueError, "weighted() got 1 weights, expected a number from 0 for each of the 10"),
    (lambda: TEN.weighted([-1] * 10), ValueError, "each of the 10 records, at least one of them positive"),
    (lambda: TEN.weighted([0] * 10), ValueError, "at least one of them positive"),
    (lambda: TEN.weighted([np.nan] * 10), ValueError, "weighted() got weights=[nan, nan"),
    (lambda: TEN.weighted(["1"] * 10), TypeError, "weighted() got weights=['1', '1'"),
    (lambda: TEN.weighted(MASK), TypeError, "each of the 10 records, without a mask of missing values."),
    (lambda: TEN.balanced([1.5] * 10), TypeError, "balanced() got labels=[1.5, 1.5"),
    (lambda: TEN.balanced(np.array(["a", None] * 5)), TypeError, "balanced() got labels=None, expected"),
    (lambda: TEN.balanced([{}] * 10), TypeError, "balanced() got labels={}, expected one integer or string for each"),
    (lambda: TEN.balanced([1]), ValueError, "balanced() got 1 labels, expected one integer or string for each"),
    (lambda: TEN.weighted(range(10)).take(2), ValueError, "take() comes after weighted(), which draws from all"),
    (lambda: TEN.shard(0, 2).weighted(range(10)), ValueError, "a shard: records are counted before they are divid"),
    (lambda: TEN.by_length(range(10)).weighted(range(10)), ValueError, "only one of by_length(), weighted(), bal"),
    (lambda: TEN.weighted(range(10)).by_length(range(10)), ValueError, "by_length() comes after weighted(), but only"),
    (lambda: MIXED.balanced(range(20)), ValueError, "balanced() comes after mix(), but only one of"),
    (lambda: MIXED.by_length([1] * 20), ValueError, "by_length() comes after mix()"),
    (lambda: MIXED.split(0.5, 1), ValueError, "split() comes after mix()"),
    (lambda: MIXED.take(1), ValueError, "take() comes after mix()"),
    (lambda: SequenceSource([[1]]).pad(), ValueError, "whose elements are batches, expected a source with"),
    (lambda: SequenceSource([[1]]).with_options(batch_size=2), ValueError, "got batch_size=, but the dataset makes"),
    # Arrays, and options together.
    (lambda: of({}), SpecError, "ArraySource got {}, which holds no array. Pass a dict, a tuple or one array."),
    (lambda: of(np.zeros((0, 3))), SpecError, "ArraySource got no records: the array is float64 [0, 3]."),
    (lambda: of({"x": [1, 2], "y": [1]}), SpecError, "arrays of different lengths: component 'x' has 2, component 'y'"),
    (lambda: of({"x": np.array([[1], [1, 2]], object)}), SpecError, "component 'x' got an array of Python objects (th"),
    (lambda: of(([1, 2], np.float32(1))), SpecError, "component [1] is one number, expected an array with one row per"),
    (lambda: of([[1, 2], [3]]), SpecError, "ArraySource: the array got a list of 2 that cannot be converted to an arr"),
    (lambda: of(np.arange(10), shard=(10, 11)), ValueError, "got shard=(10, 11), which would be empty: 10 records are"),
    (lambda: of([1], batch_size=2, drop_remainder=True), ValueError, "batch_size=2 is larger than the 1 records, so d"),
    (
        lambda: of(np.arange(10), batch_size=6, drop_remainder=True, shard=(1, 2)),
        ValueError,
        "ArraySource: batch_size=6 is larger than the 5 records of shard 1 of 2, so drop",
    ),
    (lambda: of([1], transform=lambda: None), TypeError, "transform <lambda>() must take (batch) or (batch, rng): the"),
    (lambda: of([1], batch_size=2**31 - 1, across_epochs=True), ValueError, "got batch_size=2147483647 with across_ep"),
    # Several sources.
    (lambda: concatenate([]), ValueError, "concatenate() got sources=[], expected a list of sources"),
    (lambda: mix([]), ValueError, "mix() got sources=[], expected a list of sources"),
    (lambda: zip_records({}), TypeError, "zip_records() got sources={}, expected a dict, tuple or"),
    (lambda: zip_records(TEN), TypeError, "zip_records() got sources=ArraySource("),
    # It is not read, although it is an iterable without end.
    (lambda: concatenate(TEN.with_options(epochs=None)), TypeError, "concatenate() got sources=ArraySource("),
    (lambda: concatenate([TEN, Batches()]), TypeError, "Batches cannot be divided into records again."),
    (lambda: concatenate([SequenceSource([[1]])]), ValueError, "as source 0, whose elements are batches. Use"),
    (lambda: concatenate([TEN, TEN.shard(0, 2)]), ValueError, "as source 1, a shard: records are"),
    (lambda: concatenate([TEXTS.ragged()]), ValueError, "which is ragged. Call ragged() on the result."),
    (lambda: mix([TEN, TEN.pad()]), ValueError, "as source 1, which is padded. Call pad() on the result"),
    (lambda: zip_records((TEN, TEN.by_length(range(10)))), ValueError, "which is arranged by_length()"),
    (lambda: concatenate([MIXED]), ValueError, "Mix all sources in one call"),
    (lambda: mix([MIXED, TEN]), ValueError, "which arranges its records. Mix all sources in one call"),
    (lambda: concatenate([TEN.weighted(range(10))]), ValueError, "whose records are drawn by weighted() or balance"),
    (
        lambda: concatenate([TEN, TEN.with_options(epochs=None)]),
        ValueError,
        "concatenate() got sources with epochs=1 and epochs=None, expected one for all. Give them the same, for "
        "example with source.with_options(epochs=...), and change the result.",
    ),
    (lambda: mix([TEN, TEN.with_options(epochs=2)]), ValueError, "mix() got sources with epochs=1 and ep"),
    (lambda: zip_records((TEN, TEN.with_options(batch_size=2))), ValueError, "batch_size=4 and batch_size=2"),
    (lambda: concatenate([TEN, TEN.with_options(transform=abs)]), ValueError, "transform=None and transform="),
    (lambda: zip_records([TEN.with_options(transform=abs)]), ValueError, "Pass it to the result"),
    (
        lambda: mix([of([1], shuffle=True, seed=1), of([1], shuffle=True, seed=2)]),
        ValueError,
        "mix() got sources with seed=1 and seed=2, expected one for all.",
    ),
    (
        lambda: concatenate([TEN, of(np.ones(3))]),
        SpecError,
        "concatenate(): the batch of source 1 is float64 [?], but int64 [?] in source 0. Cast it, or pad the result:",
    ),
    (lambda: concatenate([TEN, of(np.ones((3, 2), int))]), SpecError, "source 1 is int64 [?, 2], but int64 [?] in sou"),
    (lambda: concatenate([TEN, of({"x": np.arange(3)})]), SpecError, "source 1 has the components 'x', but source 0 h"),
    (lambda: zip_records({"a": TEN, "b": TEN.take(5)}), SpecError, "'a' has 10, 'b' has 5. Cut them: source.take(5)."),
    # Weights of mixtures.
    (lambda: mix([TEN, TEN], [1, 0]), ValueError, "mix() got weights=[1, 0], expected a positive number for"),
    (lambda: mix([TEN, TEN], [1, -1]), ValueError, "Leave out a source without weight."),
    (lambda: mix([TEN, TEN], [1, float("nan")]), ValueError, "mix() got weights=[1, nan], expected a positive"),
    (lambda: mix([TEN, TEN], {3, 1}), TypeError, "mix() got weights={1, 3}, expected a positive number for each"),
    (lambda: mix([TEN, TEN], [1]), ValueError, "mix() got weights=[1], expected a positive number for each of"),
    (lambda: mix([TEN, TEN], [True, True]), TypeError, "mix() got weights=[True, True], expected"),
    (lambda: mix([TEN, TEN], ["1", "1"]), TypeError, "mix() got weights=['1', '1'], expected"),
    (lambda: mix([TEN, TEN], [1, 1e-9]), ValueError, "one of which is less than 1/16384 of their sum"),
    (lambda: mix([TEN, TEN], [10**400, 1]), ValueError, "expected a positive number for each"),
    # Datasets.
    (lambda: MapSource(3, batch_size=1), TypeError, "MapSource got dataset=3, expected a dataset with __len__"),
    (lambda: MapSource((n for n in "ab"), batch_size=1), TypeError, "expected a dataset with __len__"),
    (lambda: MapSource(Thing, batch_size=1), TypeError, "expected a dataset with __len__ and __getitem__"),
    (lambda: MapSource([], batch_size=1), SpecError, "MapSource got a dataset without records, expected"),
    (lambda: MapSource({}, batch_size=1), ValueError, "got dataset={}, expected at least one column"),
    (lambda: MapSource({"x": np.ones(0)}, batch_size=1), SpecError, "a dataset without records"),
    (lambda: MapSource({"x": [1]}, batch_size=1), TypeError, "got a list of 1 as column 'x', expected"),
    (
        lambda: MapSource({"x": np.ones(2), "y": np.ones(3)}, batch_size=1),
        SpecError,
        "MapSource got columns of different lengths: component 'x' has 2, component 'y' has 3.",
    ),
    (lambda: MapSource(np.array(3), batch_size=1), SpecError, "the batch is one value, expected an array"),
    (lambda: other_library("pyarrow.lib", "Table"), TypeError, "Pass its columns: {name: numpy_array}"),
    (lambda: other_library("polars.frame", "DataFrame"), TypeError, "Pass its columns"),
    (lambda: other_library("keras.src.trainers", "PyDataset"), TypeError, "Its elements are batches: use SequenceSour"),
    (lambda: mapped(1, collate="join"), ValueError, "got collate='join', expected 'stack', 'pad', 'ragged' or a funct"),
    (lambda: SequenceSource([]), SpecError, "SequenceSource got a sequence without batches, ex"),
    (lambda: GeneratorSource([[1]]).ragged(), AttributeError, "GeneratorSource has no ragged()"),
]


@pytest.mark.parametrize(
    ("make", "kind", "message"), CALLS, ids=lambda value: value[:40] if isinstance(value, str) else None
)
def test_what_cannot_be_is_refused_by_name(make: Make, kind: type[Exception], message: str) -> None:
    with pytest.raises(kind) as caught:
        make()
    assert message in str(caught.value)


@pytest.mark.parametrize("name", ["take", "select", "split", "without", "pad", "by_length", "weighted", "with_options"])
@pytest.mark.parametrize("make", [Batches, lambda: GeneratorSource([[1]])])
def test_a_source_without_records_says_so(make: Any, name: str) -> None:
    source = make()
    message = rf"^{type(source).__name__} has no {name}\(\): it delivers batches, which cannot be divided into records"
    with pytest.raises(AttributeError, match=message):
        getattr(source, name)
    assert not hasattr(source, name) and not hasattr(source, "anything_else")


def test_a_source_of_ones_own_needs_little() -> None:
    batches = Batches().batches(3)
    assert [next(batches).tolist() for _ in range(2)] == [[3], [4]] and Batches().bytes_per_batch == 16


def test_an_attribute_error_in_a_source_keeps_its_message() -> None:
    class Broken(Batches):
        @property
        def spec(self) -> Any:
            return self.no_such_thing

    with pytest.raises(AttributeError, match="no_such_thing"):
        Broken().spec  # noqa: B018


def test_records_that_the_graph_parses_or_that_may_be_left_out_are_no_parts(tmp_path: Any) -> None:
    write_tfrecords([b"1", b"2"], str(tmp_path / "f.tfrecord"))
    make = functools.partial(TFRecordSource, str(tmp_path / "f.tfrecord"), batch_size=4, epochs=1)
    parsed, dropping = make(features={"x": Feature("int64")}), make(skip_corrupt=True)
    same = concatenate([parsed] * 2)
    assert same.features == {"x": Feature("int64")}
    with pytest.raises(ValueError, match="different features=, source 0 and 1"):
        concatenate([parsed, make()])
    for lay_out in (lambda: zip_records([parsed]), same.pad, parsed.ragged):
        with pytest.raises(ValueError, match="with features="):
            lay_out()
    for combine in (concatenate, mix, zip_records):
        with pytest.raises(ValueError, match=r"which may leave out records \(skip_corrupt=True\)"):
            combine([dropping])
    assert dropping.skip(1).batch(0).tolist() == [b"2"]
