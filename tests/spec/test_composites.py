"""Sparse and ragged values: which are known, how they are inferred and checked, and what a malformed one says."""

from __future__ import annotations

import collections
import itertools
import re
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import tensorflow as tf2
import tensorflow.compat.v1 as tf
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp
from slow import examples

from staging_tf1 import testing
from staging_tf1.errors import SpecError
from staging_tf1.sources import ArraySource, GeneratorSource, MapSource, RaggedValue, SparseValue
from staging_tf1.spec import (
    ArraySpec,
    bytes_per_batch,
    flatten_with_paths,
    infer_spec,
    is_structure,
    with_batch_dim,
)
from staging_tf1.spec.composite import arrays_of, as_composite, is_composite
from staging_tf1.spec.conform import Conformer, conform
from staging_tf1.spec.ragged import RaggedSpec
from staging_tf1.spec.sparse import SparseSpec

RAGGED = RaggedSpec((None, None), np.int64)
SPARSE = SparseSpec((None, None), np.float32)
DEEP = RaggedSpec((None, None, None, 2), np.float32, ragged_rank=2)


def ragged(flat: Any, *splits: Any) -> RaggedValue:
    return RaggedValue(np.array(flat), [np.array(each) for each in splits])


def sparse(indices: Any, values: Any, shape: Any) -> SparseValue:
    return SparseValue(np.array(indices, np.int64), np.array(values, np.float32), np.array(shape))


def lists(value: Any) -> Any:
    """The content of a checked component."""
    return [array.tolist() for array in arrays_of(value)]


def test_rows_become_a_ragged_value_and_come_back() -> None:
    value = RaggedValue.from_rows([[3, 1], [], [2]])
    assert len(value) == 3 and value.to_list() == [[3, 1], [], [2]]
    assert repr(value) == "RaggedValue(int64 [3, ?], ragged_rank=1)"
    deep = RaggedValue.from_rows([[[1.0], []], [], [[2.0, 3.0]]], ragged_rank=2, dtype=np.float32)
    assert deep.to_list() == [[[1.0], []], [], [[2.0, 3.0]]] and deep.flat_values.dtype == np.float32
    assert [row.to_list() for row in deep] == deep.to_list(), "rows are ragged values"
    vectors = RaggedValue.from_rows([np.ones((2, 5)), np.zeros((0, 5))])
    assert vectors.flat_values.shape == (2, 5) and [row.shape for row in vectors] == [(2, 5), (0, 5)]
    assert RaggedValue.from_rows([["a", "bc"], []]).to_list() == [[b"a", b"bc"], []]
    assert RaggedValue.from_rows([], dtype=np.int32).to_list() == []
    assert RaggedValue.from_rows([[], [5]]).flat_values.dtype == np.int64, "an empty list has no dtype"
    three = [[[[1], []]], [], [[[2]], []]]
    assert RaggedValue.from_rows(three, ragged_rank=3).to_list() == three


@pytest.mark.parametrize(
    ("arguments", "error", "said"),
    [
        (dict(rows=3), TypeError, "from_rows() got rows=3, expected a list with an array or list for each row."),
        (dict(rows="ab"), TypeError, "got rows='ab'"),
        (dict(rows=[[1]], ragged_rank=0), ValueError, "ragged_rank=0, expected a whole number from 1 to 31"),
        (dict(rows=[1, 2]), SpecError, "got an int as a row, expected a list or array. Lower ragged_rank"),
        (dict(rows=[[1], [2]], ragged_rank=2), SpecError, "got an int as a row"),
        (dict(rows=[np.zeros(2), np.zeros(2, int)]), SpecError, "a row that is int64 [2], expected float64 [?]."),
        (dict(rows=[np.zeros((1, 2)), np.zeros((1, 3))]), SpecError, "float64 [1, 3], expected float64 [?, 2]"),
        (dict(rows=[[1], [1.5]]), SpecError, "1.5 does not fit"),
        (dict(rows=["ab"]), SpecError, "a row that is string []"),
    ],
)
def test_rows_that_are_none_are_refused(arguments: dict[str, Any], error: type[Exception], said: str) -> None:
    with pytest.raises(error, match=re.escape(said)):
        RaggedValue.from_rows(**arguments)


Triple = collections.namedtuple("Triple", "indices values dense_shape")
Other = collections.namedtuple("Other", "values indices dense_shape")


def known_values() -> dict[str, tuple[Any, Any]]:
    """Values of other libraries, each with the arrays that it stands for."""
    scipy = pytest.importorskip("scipy.sparse")
    rows, cells = [[1, 2, 3], [0, 2, 3]], [[[0, 1], [1, 0]], [1.0, 2.0], [2, 3]]
    dense = np.array([[0, 1, 0], [2, 0, 0]], np.float32)
    twice = scipy.coo_matrix(([1.5, 0.5, 1.0], ([1, 1, 0], [0, 0, 1])), shape=(2, 3), dtype=np.float32)
    return {
        "RaggedTensorValue": (tf.ragged.RaggedTensorValue(np.array(rows[0]), np.array(rows[1])), rows),
        "RaggedTensor": (tf2.RaggedTensor.from_row_splits(rows[0], np.array(rows[1])), rows),
        "SparseTensorValue": (tf.SparseTensorValue(*map(np.array, cells)), cells),
        "lists": (tf.SparseTensorValue(*cells), cells),
        "SparseTensor": (tf2.SparseTensor(*cells), cells),
        "a namedtuple like it": (Triple(*map(np.array, cells)), cells),
        "scipy, csr": (scipy.csr_matrix(dense), cells),
        "scipy, csc": (scipy.csc_array(dense), cells),
        "scipy, repeated": (twice, cells),
    }


def test_the_values_of_other_libraries_are_known() -> None:
    for name, (value, arrays) in known_values().items():
        assert is_composite(value) and not is_structure(value), name
        assert lists(as_composite(value)._checked(name)) == arrays, name
        assert flatten_with_paths({"x": value})[0][0] == "x", name
    for other in (Other(1, 2, 3), np.zeros(2), (1, 2, 3), [1], {"indices": 1}, "text", RaggedValue):
        assert not is_composite(other)
    assert is_structure(Other(1, 2, 3)), "the fields of IndexedSlicesValue"


def test_a_value_of_scipy_is_left_as_it_is() -> None:
    scipy = pytest.importorskip("scipy.sparse")
    matrix = scipy.csr_matrix((np.array([1.0, 2.0]), np.array([1, 1]), np.array([0, 2])), shape=(1, 3))
    assert lists(as_composite(matrix)._checked("x")) == [[[0, 1]], [3.0], [1, 3]]
    assert matrix.data.tolist() == [1.0, 2.0]


def test_a_spec_is_inferred() -> None:
    batch = {
        "words": tf.ragged.RaggedTensorValue(np.array([1, 2]), np.array([0, 1, 2], np.int32)),
        "deep": ragged(np.zeros((3, 2), np.float32), [0, 1, 2], [0, 3, 3]),
        "cells": tf.SparseTensorValue([[0, 1]], ["a"], [2, 9]),
        "label": [0, 1],
    }
    assert infer_spec(batch) == {
        "words": RaggedSpec((None, None), np.int64, 1, np.int32, "words"),
        "deep": RaggedSpec((None, None, None, 2), np.float32, 2, np.int64, "deep"),
        "cells": SparseSpec((None, None), np.object_, "cells"),
        "label": ArraySpec((None,), np.int64, "label"),
    }
    assert repr(infer_spec(batch["deep"])) == "RaggedSpec(float32 [?, ?, ?, 2], ragged_rank=2)"
    assert with_batch_dim(SparseSpec((None, 3), np.float32), 8) == SparseSpec((8, 3), np.float32)
    assert bytes_per_batch(SparseSpec((4, 3), np.float32), 4) is None


@pytest.mark.parametrize(
    ("make", "said"),
    [
        (lambda: RaggedSpec((None,), np.int64), "expected at least two dimensions. Use an ArraySpec."),
        (lambda: RaggedSpec((None, None), np.int64, 2), "ragged_rank=2, expected a whole number from 1 to 1"),
        (lambda: RaggedSpec(None, np.int64, 0), "ragged_rank=0"),
        (lambda: RaggedSpec((None, None), np.int64, 1, np.uint8), "row_splits_dtype=uint8, expected int64 or int32."),
        (lambda: SparseSpec((), np.int64), "expected at least one dimension. Use an ArraySpec."),
        (
            lambda: GeneratorSource([], spec={"x": tf.RaggedTensorSpec([None, 3], tf.int64, ragged_rank=0)}),
            "generator 'list': spec: RaggedSpec got ragged_rank=0",
        ),
    ],
)
def test_a_spec_that_is_none_is_refused(make: Callable[[], Any], said: str) -> None:
    with pytest.raises(ValueError) as caught:
        make()
    assert said in str(caught.value)


def rows(length: int | None) -> RaggedSpec:
    return RaggedSpec((None, length), int)


# A declared spec, a malformed or misfitting value, and the words of the message.
MALFORMED: dict[str, tuple[Any, Any, str]] = {
    "splits of floats": (RAGGED, ragged([1], [0.0, 1.0]), "row_splits that are float64 [2], expected int64 [rows + 1]"),
    "splits in two dimensions": (RAGGED, ragged([1], [[0, 1]]), "row_splits that are int64 [1, 2]"),
    "no splits": (RAGGED, RaggedValue([1], []), "a ragged value without row_splits"),
    "empty splits": (RAGGED, ragged([], np.empty(0, int)), "row_splits that are int64 [0], expected"),
    "unsigned splits": (RAGGED, ragged([1], np.array([0, 1], np.uint8)), "row_splits that are uint8 [2]"),
    "splits that begin late": (RAGGED, ragged([1, 2], [1, 2]), "row_splits that start at 1, expected 0. Row k holds"),
    "falling splits": (RAGGED, ragged([1, 2, 3], [0, 3, 2, 3]), "row_splits that fall from 3 to 2 at row 1"),
    "splits too short": (RAGGED, ragged([1, 2, 3], [0, 2]), "that end at 2, expected 3, the number of values"),
    "inner splits that disagree": (DEEP, ragged(np.zeros((1, 2), "f4"), [0, 2], [0, 1]), "that end at 2, expected 1"),
    "one value": (RAGGED, ragged(3, [0, 1]), "flat_values that are one value, expected an array"),
    "another ragged_rank": (RAGGED, ragged([1], [0, 1], [0, 1]), "ragged int64 [?, ?, ?] (ragged_rank=2), expected"),
    "another dtype": (RAGGED, ragged([1.5], [0, 1]), "got ragged float64 [?, ?], expected ragged int64 [?, ?]. Cast"),
    "another inner size": (DEEP, ragged(np.zeros((1, 3), "f4"), [0, 1], [0, 1]), "got ragged float32 [1, 1, 1, 3], ex"),
    "rows of another length": (rows(2), ragged([1, 2, 3], [0, 2, 3]), "got ragged int64 [2, ?], exp"),
    "too many rows": (RaggedSpec((1, None), int), ragged([1, 2], [0, 1, 2]), "int64 [2, 1], expected ragged int64 [1,"),
    "an array": (RAGGED, np.zeros((2, 3), int), "got one array, int64 [2, 3], expected ragged int64 [?, ?]. Pass a li"),
    "a sparse value": (RAGGED, sparse([[0, 1]], [1], [2, 2]), "got sparse float32 [?, ?], expected ragged int64 [?, ?"),
    "a row that is none": (RAGGED, [[1], 2], "batch: the batch got an int as a row"),
    "splits beyond int32": (
        RaggedSpec((None, None), np.int8, 1, np.int32),
        RaggedValue(np.broadcast_to(np.int8(0), 2**31), np.array([0, 2**31])),
        "row_splits up to 2147483648, expected int32. Declare row_splits_dtype=tf.int64.",
    ),
    "indices of floats": (SPARSE, SparseValue(np.zeros((1, 2)), [1.0], [1, 1]), "indices as float64 [1, 2], exp"),
    "indices in one dimension": (SPARSE, SparseValue([1, 2], [1.0], [1, 1]), "indices as int64 [2], expected"),
    "indices of another rank": (SPARSE, sparse([[0]], [1], [1, 1]), "indices [1, 1] and dense_shape=[1, 1], expected"),
    "fewer values": (SPARSE, sparse([[0, 0], [0, 1]], [1], [1, 2]), "2 indices and values that are float32 [1], exp"),
    "values in two dimensions": (SPARSE, sparse([[0, 0]], [[1]], [1, 2]), "values that are float32 [1, 1], expected o"),
    "an index outside": (SPARSE, sparse([[0, 0], [0, 2]], [1, 2], [1, 2]), "index [0, 2] for value 1, expected an ind"),
    "a negative index": (SPARSE, sparse([[-1, 0]], [1], [1, 2]), "index [-1, 0] for value 0"),
    "out of order": (SPARSE, sparse([[1, 0], [0, 1]], [1, 2], [2, 2]), "index [0, 1] after [1, 0], expected indices i"),
    "columns out of order": (SPARSE, sparse([[0, 1], [0, 0]], [1, 2], [2, 2]), "index [0, 0] after [0, 1]"),
    "an index twice": (SPARSE, sparse([[0, 1], [0, 1]], [1, 2], [2, 2]), "index [0, 1] twice, expected"),
    "a negative size": (SPARSE, sparse(np.empty((0, 2)), [], [1, -1]), "dense_shape=[1, -1], expected a size of 0"),
    "no dimensions": (SPARSE, sparse(np.empty((0, 0)), [], np.empty(0, int)), "dense_shape=[], expected a size"),
    "floats as shape": (SPARSE, SparseValue(np.zeros((0, 2), int), [], [1.5, 2.0]), "1.5 does not fit"),
    "another rank": (SPARSE, sparse([[0, 0, 0]], [1], [1, 1, 1]), "dense_shape=[1, 1, 1], expected sparse float32 [?,"),
    "another size": (SparseSpec((None, 4), "f4"), sparse([[0, 0]], [1], [1, 5]), "dense_shape=[1, 5], expected sparse"),
    "another dtype of values": (
        SPARSE,
        SparseValue([[0, 0]], np.ones(1), [1, 1]),
        "sparse float64 [1, 1], expected spars",
    ),
    "a ragged value": (SPARSE, ragged([1], [0, 1]), "got ragged int64 [?, ?], expected sparse float32 [?, ?]. Declare"),
    "lists": (SPARSE, [[1.0]], "got a list of 1, expected sparse float32 [?, ?]. Pass a tf.compat.v1.SparseTensorValu"),
    "ragged for an array": (ArraySpec((None, 3), int), ragged([1], [0, 1]), "got ragged int64 [?, ?], expected int64"),
    "sparse for an array": (
        ArraySpec((None, 3), "f4"),
        sparse([[0, 0]], [1], [1, 3]),
        "Make it dense, or declare it as a tf",
    ),
}


@pytest.mark.parametrize("case", MALFORMED)
def test_a_malformed_or_misfitting_value_is_refused(case: str) -> None:
    spec, value, said = MALFORMED[case]
    for check in (conform, lambda spec, batch: Conformer(spec)(batch, "batch")):
        with pytest.raises(SpecError) as caught:
            check(spec, value)
        assert said in str(caught.value) and str(caught.value).startswith("batch: the batch")
    with pytest.raises(SpecError, match="batch: component 'text.x'"):
        conform({"text": {"x": spec}}, {"text": {"x": value}})


def test_malformed_values_of_tensorflow_are_refused_too() -> None:
    with pytest.raises(SpecError, match="row_splits that end at 9, expected 1"):
        infer_spec(tf.ragged.RaggedTensorValue(np.array([1]), np.array([0, 9])))
    with pytest.raises(
        SpecError, match="component 'x': indices got a tensorflow.[A-Za-z]*Tensor, expected an array. A graph"
    ):
        with tf.Graph().as_default():
            infer_spec({"x": tf.SparseTensor([[0]], [1.0], [2])})


def test_components_with_different_numbers_of_rows_are_refused() -> None:
    spec = {"label": ArraySpec((None,), np.int64), "words": RAGGED, "size": ArraySpec((), np.int64)}
    batch = {"label": np.arange(2), "words": RaggedValue.from_rows([[1], [2]]), "size": 7}
    conform(spec, batch)
    with pytest.raises(SpecError) as caught:
        conform(spec, {**batch, "label": np.arange(3)}, "generator 'text': batch 3")
    assert str(caught.value).startswith(
        "generator 'text': batch 3: the components have different numbers of rows: component 'label' has 3, component "
        "'words' has 2. Give each one row for each record. If a first dimension counts something else, declare its size"
    )
    conform({**spec, "label": ArraySpec((3,), np.int64)}, {**batch, "label": np.arange(3)})
    dense = {"a": ArraySpec((None,), np.int64), "b": ArraySpec((None,), np.int64)}
    conform(dense, {"a": np.arange(2), "b": np.arange(3)}), "TensorFlow sees that of arrays"


def test_what_can_be_converted_is() -> None:
    (value,) = conform(RaggedSpec((None, None), np.float32, 1, np.int32), [[1, 2], [], [0.5]])
    assert value.to_list() == [[1.0, 2.0], [], [0.5]] and value.nested_row_splits[0].dtype == np.int32
    mixed = RaggedValue(np.arange(3), (np.array([0, 2], np.int32), np.array([0, 1, 3], np.int64)))
    assert infer_spec(mixed).row_splits_dtype == np.int64
    (value,) = conform(SPARSE, SparseValue([[0, 1]], [1], [1, 2]))
    assert value.values.dtype == np.float32 and value.indices.dtype == np.int64
    (value,) = conform(SPARSE, SparseValue(np.zeros((1, 2), np.int32), np.ones(1, ">f4"), np.array([1, 2], np.uint8)))
    assert [array.dtype for array in value._arrays] == [np.int64, np.float32, np.int64]
    (value,) = conform(SPARSE, SparseValue(np.zeros((0, 2), int), np.zeros(0, "f4"), (3, 4)))
    assert len(value) == 3, "rows without values"
    (value,) = conform(RAGGED, ragged(np.empty(0, int), [0]))
    assert len(value) == 0 and value.to_list() == []
    arrays = Conformer({"b": RAGGED, "a": SPARSE})(
        {"a": sparse([[0, 0]], [1], [1, 1]), "b": RaggedValue.from_rows([[5]])}, ""
    )
    assert [array.tolist() for array in arrays] == [[[0, 0]], [1.0], [1, 1], [5], [0, 1]]


def test_a_declared_spec_of_tensorflow_is_understood() -> None:
    spec = {
        "a": tf.SparseTensorSpec([None, 7], tf.float32),
        "b": tf.RaggedTensorSpec([None, None, 2], tf.int32, row_splits_dtype=tf.int32, ragged_rank=1),
        "c": RAGGED,
        "d": tf.RaggedTensorSpec(None, tf.string, ragged_rank=2),
    }
    assert GeneratorSource([], spec=spec).spec == {
        "a": SparseSpec((None, 7), np.float32, "a"),
        "b": RaggedSpec((None, None, 2), np.int32, 1, np.int32, "b"),
        "c": RaggedSpec((None, None), np.int64, 1, np.int64, "c"),
        "d": RaggedSpec(None, np.object_, 2, np.int64, "d"),
    }
    conform(RaggedSpec(None, np.object_, 2), [[["a"], []]])


@pytest.mark.parametrize(
    "make", [lambda value: ArraySource(value, batch_size=1), lambda value: MapSource([value], batch_size=1)]
)
def test_a_source_of_records_refuses_them_with_a_cure(make: Callable[[Any], Any]) -> None:
    for value, cure in (
        (ragged([1], [0, 1]), "see MapSource.ragged()"),
        (sparse([[0, 0]], [1], [1, 1]), "Make it dense"),
    ):
        with pytest.raises(SpecError, match=re.escape(cure)):
            print(make({"x": value}).spec)


@settings(max_examples=examples(150))
@given(
    splits=hnp.arrays(np.int64, st.integers(1, 5), elements=st.integers(-1, 4)),
    count=st.integers(0, 4),
    sort=st.booleans(),
)
def test_splits_are_taken_if_and_only_if_they_cut_the_values_in_order(splits: Any, count: int, sort: bool) -> None:
    splits = np.sort(splits) if sort else splits
    value = RaggedValue(np.arange(count), splits)
    pieces = [np.arange(count)[begin:end] for begin, end in itertools.pairwise(splits) if 0 <= begin <= end <= count]
    good = (
        len(pieces) == len(splits) - 1
        and splits[0] == 0
        and np.array_equal(np.concatenate([[], *pieces]), np.arange(count))
    )
    try:
        value._checked("x")
    except SpecError:
        assert not good
    else:
        assert good


@settings(max_examples=examples(150))
@given(
    indices=st.lists(st.tuples(st.integers(-1, 3), st.integers(-1, 3)), max_size=5),
    shape=st.tuples(st.integers(-1, 3), st.integers(0, 4)),
    sort=st.booleans(),
)
def test_indices_are_taken_if_and_only_if_each_place_comes_once_in_order(indices: Any, shape: Any, sort: bool) -> None:
    indices = sorted(set(indices)) if sort else indices
    within = all(0 <= row < shape[0] and 0 <= column < shape[1] for row, column in indices)
    good = min(shape) >= 0 and within and indices == sorted(set(indices))
    value = SparseValue(np.array(indices, np.int64).reshape(-1, 2), np.arange(len(indices)), np.array(shape))
    try:
        value._checked("x")
    except SpecError:
        assert not good
    else:
        assert good


ROWS = st.lists(st.lists(st.integers(-9, 9), max_size=4), max_size=5)


@settings(max_examples=examples(60))
@given(rows=st.lists(ROWS, max_size=4))
def test_any_rows_come_back_from_a_ragged_value(rows: Any) -> None:
    value = RaggedValue.from_rows(rows, ragged_rank=2, dtype=np.int64)._checked("x")
    assert value.to_list() == rows and len(value) == len(rows)
    assert [[np.asarray(inner).tolist() for inner in row] for row in value] == rows
    theirs = tf2.ragged.constant(rows, dtype=tf.int64, ragged_rank=2)
    assert lists(value) == [
        theirs.flat_values.numpy().tolist(),
        *(each.numpy().tolist() for each in theirs.nested_row_splits),
    ]


def test_a_source_of_sparse_batches_can_be_tested_for_its_shards() -> None:
    def cells(numbers: list[int]) -> Any:
        rows = np.arange(len(numbers))
        return SparseValue(np.stack([rows, numbers], 1), np.array(numbers), np.array([len(numbers), 10]))

    testing.assert_shards_partition(MapSource(range(10), batch_size=3, epochs=1, collate=cells), 3)
