"""What cannot be combined, cut or padded is refused by name."""

from __future__ import annotations

import functools
from collections import namedtuple
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from staging_tf1.errors import SpecError
from staging_tf1.sources import (
    ArraySource,
    GeneratorSource,
    Source,
    TFRecordSource,
    concatenate,
    mix,
    write_tfrecords,
    zip_records,
)
from staging_tf1.spec import ArraySpec

Feature = namedtuple("Feature", "dtype")


def numbered(**options: Any) -> ArraySource:
    """Ten records that are consecutive numbers."""
    return ArraySource(np.arange(10), **{**dict(batch_size=4, epochs=1), **options})


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


@pytest.mark.parametrize("name", ["take", "select", "split", "pad", "by_length", "weighted", "with_options"])
@pytest.mark.parametrize("make", [Batches, lambda: GeneratorSource([[1]])])
def test_a_source_without_records_says_so(make: Any, name: str) -> None:
    source = make()
    message = rf"^{type(source).__name__} has no {name}\(\): it delivers batches, which cannot be divided into records"
    with pytest.raises(AttributeError, match=message):
        getattr(source, name)
    assert not hasattr(source, name) and not hasattr(source, "anything_else")


def test_an_attribute_error_in_a_source_keeps_its_message() -> None:
    class Broken(Batches):
        @property
        def spec(self) -> Any:
            return self.no_such_thing

    with pytest.raises(AttributeError, match="no_such_thing"):
        Broken().spec  # noqa: B018


def dropping(folder: Any) -> TFRecordSource:
    write_tfrecords([b"1", b"2"], str(folder / "d.tfrecord"))
    return TFRecordSource(str(folder / "d.tfrecord"), batch_size=4, epochs=1, skip_corrupt=True)


REFUSED: dict[str, tuple[Callable[[ArraySource], Any], type[Exception], str]] = {
    "take 0": (lambda s: s.take(0), ValueError, "take() got count=0, expected a whole number from 1"),
    "take -1": (lambda s: s.take(-1), ValueError, "take() got count=-1, expected a whole number from 1"),
    "take 1.5": (lambda s: s.take(1.5), TypeError, "take() got count=1.5, expected a whole number"),  # type: ignore[arg-type]
    "skip all": (lambda s: s.skip(10), ValueError, "skip() got count=10, expected a whole number from 0 to 9"),
    "skip -1": (lambda s: s.skip(-1), ValueError, "skip() got count=-1, expected a whole number from 0"),
    "split 0": (lambda s: s.split(0.0, 1), ValueError, "split() got fraction=0.0, expected a number between 0 and 1."),
    "split 1": (lambda s: s.split(1.0, 1), ValueError, "split() got fraction=1.0, expected a number between 0 and 1."),
    "split nan": (lambda s: s.split(float("nan"), 1), ValueError, "split() got fraction=nan, expected a number"),
    "split text": (lambda s: s.split("0.9", 1), TypeError, "split() got fraction='0.9', expected a number"),  # type: ignore[arg-type]
    "split seed": (lambda s: s.split(0.5, None), TypeError, "split() got seed=None, expected a whole number"),  # type: ignore[arg-type]
    "split one": (
        lambda s: s.take(1).split(0.5, 1),
        ValueError,
        "split(0.5, seed=1) leaves 0 and 1 of 1 records, expected at least one in each part. Use more records, or",
    ),
    "split little": (lambda s: s.split(0.01, 1), ValueError, "split(0.01, seed=1) leaves 0 and 10 of 10 records"),
    "select none": (lambda s: s.select([]), ValueError, "select() selects none of 10 records, expected at least one."),
    "an empty mask": (lambda s: s.select([False] * 10), ValueError, "select() selects none of 10 records"),
    "a short mask": (lambda s: s.select([True]), TypeError, "select() got records=[True], expected a mask of 10 boo"),
    "a mask of numbers": (lambda s: s.select([0, 1] * 5), ValueError, "select() got 10 numbers for 10 records, all of"),
    "missing values": (
        lambda s: s.select(np.ma.array([1, 2], mask=[True, False])),
        TypeError,
        "expected a mask of 10 booleans, or record numbers from 0 to 9, without a mask of missing values.",
    ),
    "halves": (lambda s: s.select([0.5]), TypeError, "select() got records=[0.5], expected a mask of 10 booleans, or"),
    "a number too many": (lambda s: s.select([3, 10]), ValueError, "select() got the record number 10, expected numb"),
    "from the end": (lambda s: s.select([-1]), ValueError, "select() got the record number -1, expected numbers from"),
    "select of a shard": (lambda s: s.shard(0, 2).select([1]), ValueError, "Call select() first, and shard() on its"),
    "one key": (
        lambda s: s.split(0.5, 1, key=["a"] * 10),
        ValueError,
        "of 10 records, expected at least one in each part. Use more records or keys",
    ),
    "few keys": (lambda s: s.split(0.5, 1, key=[1, 2]), ValueError, "split() got 2 keys, expected one integer or"),
    "odd keys": (lambda s: s.split(0.5, 1, key=np.ones(10)), TypeError, "split() got key=array([1., 1."),
    "mixed keys": (lambda s: s.split(0.5, 1, key=[None] * 10), TypeError, "split() got key=None, expected one integer"),
    "a shard": (
        lambda s: s.shard(0, 2).take(1),
        ValueError,
        "take() got ArraySource(5 records, batch_size=4, epochs=1, shard=(0, 2)), a shard: records are counted before "
        "they are divided. Call take() first, and shard() on its result.",
    ),
    "take after by_length": (
        lambda s: s.by_length(range(10)).take(3),
        ValueError,
        "take() comes after by_length(), which arranges all records. Call take() before it.",
    ),
    "no sources": (lambda s: concatenate([]), ValueError, "concatenate() got sources=[], expected a list of sources"),
    "one source": (lambda s: concatenate(s), TypeError, "concatenate() got sources=ArraySource("),  # type: ignore[arg-type]
    "batches": (
        lambda s: concatenate([s, Batches()]),  # type: ignore[list-item]
        TypeError,
        "as source 1, expected a source with numbered records, such as ArraySource, TFRecordSource or MapSource. "
        "Batches cannot be divided into records again.",
    ),
    "part is a shard": (lambda s: concatenate([s, s.shard(0, 2)]), ValueError, "as source 1, a shard: records are"),
    "part is padded": (
        lambda s: mix([s, s.pad()]),
        ValueError,
        "as source 1, which is padded. Call pad() on the result",
    ),
    "part by length": (lambda s: zip_records((s, s.by_length(range(10)))), ValueError, "which is arranged by_length()"),
    "part is a mixture": (lambda s: concatenate([mix([s, s], seed=1)]), ValueError, "Mix all sources in one call"),
    "take of a mixture": (lambda s: mix([s, s], seed=1).take(1), ValueError, "take() comes after mix()"),
    "epochs": (
        lambda s: concatenate([s, s.with_options(epochs=None)]),
        ValueError,
        "concatenate() got sources with epochs=1 and epochs=None, expected one for all. Give them the same, for "
        "example with source.with_options(epochs=...), and change the result.",
    ),
    "other epochs": (
        lambda s: mix([s, s.with_options(epochs=2)]),
        ValueError,
        "mix() got sources with epochs=1 and ep",
    ),
    "batch_size": (
        lambda s: zip_records((s, s.with_options(batch_size=2))),
        ValueError,
        "batch_size=4 and batch_size=2",
    ),
    "transform": (
        lambda s: concatenate([s, s.with_options(transform=abs)]),
        ValueError,
        "transform=None and transform=",
    ),
    "zipped transform": (lambda s: zip_records([s.with_options(transform=abs)]), ValueError, "Pass it to the result"),
    "dtypes": (
        lambda s: concatenate([s, ArraySource(np.ones(3), batch_size=4, epochs=1)]),
        SpecError,
        "concatenate(): the batch of source 1 is float64 [?], but int64 [?] in source 0. Cast it, or pad the result:",
    ),
    "ranks": (
        lambda s: concatenate([s, ArraySource(np.ones((3, 2), np.int64), batch_size=4, epochs=1)]),
        SpecError,
        "concatenate(): the batch of source 1 is int64 [?, 2], but int64 [?] in source 0.",
    ),
    "components": (
        lambda s: concatenate([s, ArraySource({"x": np.arange(3)}, batch_size=4, epochs=1)]),
        SpecError,
        "concatenate(): source 1 has the components 'x', but source 0 has ''.",
    ),
    "lengths": (
        lambda s: zip_records({"a": s, "b": s.take(5)}),
        SpecError,
        "zip_records() got sources of different lengths: 'a' has 10, 'b' has 5. Cut them: source.take(5).",
    ),
    "zip of one": (lambda s: zip_records(s), TypeError, "zip_records() got sources=ArraySource("),
    "zip of none": (lambda s: zip_records({}), TypeError, "zip_records() got sources={}, expected a dict, tuple or"),
    "options": (lambda s: s.with_options(batch_size=0), ValueError, "ArraySource.with_options() got batch_size=0"),
    "pad to": (lambda s: s.pad(-1), ValueError, "pad() got to=-1, expected a whole number from 0"),
    "pad of": (lambda s: s.pad({"x": 1}).spec, ValueError, "pad() names unknown component 'x', expected one of ['']"),
    "few lengths": (lambda s: s.by_length([1]), ValueError, "by_length() got 1 lengths, expected one integer for each"),
    "odd lengths": (lambda s: s.by_length(["a"] * 10), TypeError, "by_length() got lengths=['a', 'a'"),  # type: ignore[list-item]
    "no group": (lambda s: s.by_length(range(10), group=0), ValueError, "by_length() got group=0, expected a whole"),
    "no block": (lambda s: s.by_length(range(10), block=0), ValueError, "by_length() got block=0, expected a whole"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_what_cannot_be_is_refused_by_name(name: str) -> None:
    make, kind, message = REFUSED[name]
    with pytest.raises(kind) as caught:
        make(numbered())
    assert message in str(caught.value)


def test_shapes_that_differ_are_refused_before_the_first_batch() -> None:
    both = concatenate([ArraySource(np.ones((3, n)), batch_size=4, epochs=1) for n in (2, 3)])
    with pytest.raises(SpecError, match=r"is float64 \[\?, 3\], but float64 \[\?, 2\] in source 0"):
        both.spec  # noqa: B018
    assert both.pad().batch(0).shape == (4, 3)


def test_a_source_that_may_leave_out_records_cannot_be_a_part(tmp_path: Any) -> None:
    for make in (lambda s: concatenate([s]), lambda s: mix([s]), lambda s: zip_records([s])):
        with pytest.raises(ValueError, match="which may leave out records \\(skip_corrupt=True\\)"):
            make(dropping(tmp_path))
    assert dropping(tmp_path).skip(1).batch(0).tolist() == [b"2"]


def test_parts_that_the_graph_parses_differently_are_refused(tmp_path: Any) -> None:
    write_tfrecords([b"1", b"2"], str(tmp_path / "f.tfrecord"))
    make = functools.partial(TFRecordSource, str(tmp_path / "f.tfrecord"), batch_size=4, epochs=1)
    same = concatenate([make(features={"x": Feature("int64")})] * 2)
    assert same.features == {"x": Feature("int64")}
    with pytest.raises(ValueError, match="different features=, source 0 and 1"):
        concatenate([make(features={"x": Feature("int64")}), make()])
    with pytest.raises(ValueError, match="with features=, which the graph parses"):
        zip_records([make(features={"x": Feature("int64")})])
    with pytest.raises(ValueError, match="with features=, which the graph parses"):
        same.pad()
