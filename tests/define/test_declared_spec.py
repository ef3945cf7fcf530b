"""`staged(spec=)`: values are compared with their declaration before anything runs; all cases in one table."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import tensorflow.compat.v1 as tf

import staging_tf1 as staging
from staging_tf1.errors import SpecError
from staging_tf1.sources import ArraySource, GeneratorSource
from staging_tf1.spec import ArraySpec

ARRAYS = {"image": np.zeros((8, 3), np.uint8), "label": np.arange(8), "extra": np.zeros(8, np.float32)}

DECLARED = {
    "image": tf.TensorSpec([None, 4], tf.float32),
    "label": tf.TensorSpec([None], tf.int64),
    "weight": tf.TensorSpec([None], tf.float32),
}

TABLE = """\
staged(name='train') got values that do not match spec=:
  component  got           declared         conflict
  extra      float32 [?]   -                not declared
  image      uint8 [?, 3]  float32 [?, 4]   dtype and shape
  label      int64 [?]     int64 [?]
  weight     -             float32 [?]      missing
Declare the values as they are, or convert them first (map, tf.cast); staged(cast=) stages a component in another \
dtype."""


def as_dataset() -> Any:
    return tf.data.Dataset.from_tensor_slices(ARRAYS).batch(3)


def as_tensors() -> Any:
    return {
        name: tf.placeholder_with_default(array, [None, *array.shape[1:]], name=name) for name, array in ARRAYS.items()
    }


@pytest.mark.parametrize("make", [as_dataset, as_tensors, lambda: ArraySource(ARRAYS, batch_size=3)])
def test_all_conflicts_are_in_one_table_and_no_op_is_added(graph: Any, make: Any) -> None:
    values = make()
    before = len(graph.get_operations())
    with pytest.raises(SpecError) as caught:
        staging.staged(values, spec=DECLARED, name="train")
    assert " ".join(str(caught.value).split()) == " ".join(TABLE.split())
    rows = str(caught.value).splitlines()[1:6]
    assert len({row.find(word) for row, word in zip(rows, ("got", "float32", "uint8", "int64", "-"))}) == 1, "aligned"
    assert len(graph.get_operations()) == before


def test_a_dataset_gets_the_shapes_that_are_declared(graph: Any) -> None:
    dataset = tf.data.Dataset.from_tensor_slices(np.arange(8.0, dtype=np.float32)).batch(4)
    x = staging.staged(dataset, spec=tf.TensorSpec([4], tf.float32), memory_limit=100, capacity=50, cast=tf.float16)
    assert x.shape.as_list() == [4] and x.dtype == tf.float16
    with staging.StagingSession() as sess:
        assert [sess.run(x).tolist() for _ in range(2)] == [[0, 1, 2, 3], [4, 5, 6, 7]]


def test_tensors_of_unknown_shape_get_one(graph: Any) -> None:
    unknown = tf.py_func(lambda: np.ones([2, 3], np.float32), [], tf.float32)
    x, same = staging.staged((unknown, tf.zeros([2])), spec=(ArraySpec((None, 3), np.float32), tf.TensorSpec([2])))
    assert x.shape.as_list() == [None, 3] and same.shape.as_list() == [2]
    assert unknown.shape.rank is None, "the tensor that was given stays as it was"
    with staging.StagingSession() as sess:
        assert sess.run(x).tolist() == [[1, 1, 1], [1, 1, 1]]


def test_a_batch_of_another_shape_than_declared_ends_the_run(graph: Any) -> None:
    x = staging.staged(tf.data.Dataset.range(6).batch(4), spec=tf.TensorSpec([4], tf.int64))
    got = []
    with pytest.raises(tf.errors.InvalidArgumentError, match=r"\[2\] is not compatible with expected shape \[4\]"):
        with staging.StagingSession() as sess:
            while not sess.should_stop():
                got.append(sess.run(x).tolist())
    assert got == [[0, 1, 2, 3]] or not got, "the thread's error may come before the first step"


def test_sparse_components_are_compared_too(graph: Any) -> None:
    dataset = tf.data.Dataset.range(3).map(lambda n: tf.SparseTensor([[0]], [n], [4]))
    staged = staging.staged(dataset, spec=tf.SparseTensorSpec([4], tf.int64))
    assert isinstance(staged, tf.SparseTensor)
    with pytest.raises(SpecError, match=r"\(the only one\)  SparseTensor int64 \[4\]  float32 \[4\]  *kind"):
        staging.staged(dataset, spec=tf.TensorSpec([4], tf.float32))
    with pytest.raises(SpecError, match=r"SparseTensor int64 \[4\]  SparseTensor float32 \[5\]  dtype and shape"):
        staging.staged(dataset, spec=tf.SparseTensorSpec([5], tf.float32))


def test_what_is_no_spec_is_refused(graph: Any) -> None:
    with pytest.raises(TypeError) as caught:
        staging.staged(tf.data.Dataset.range(3), spec={"x": 3})
    assert str(caught.value) == (
        "staged() got spec= with 3 as component 'x', expected a nest of tf.TensorSpec, such as "
        "tf.TensorSpec([None, 784], tf.float32)."
    )


def test_a_generator_that_is_declared_is_not_read_when_the_graph_is_built(graph: Any) -> None:
    reads: list[int] = []

    def batches() -> Any:
        for n in range(3):
            reads.append(n)
            yield {"x": np.full([2, n + 1], n, np.int32)}

    x = staging.staged(batches, spec={"x": tf.TensorSpec([2, None], tf.int32)})["x"]
    assert reads == [] and x.shape.as_list() == [2, None] and x.dtype == tf.int32
    with staging.StagingSession() as sess:
        assert [sess.run(x).shape for _ in range(3)] == [(2, 1), (2, 2), (2, 3)], "the declaration, not the first batch"


def test_a_generator_that_is_not_as_declared_ends_the_run(graph: Any) -> None:
    x = staging.staged(GeneratorSource(lambda: iter([np.zeros(2)]), name="g"), spec=tf.TensorSpec([None], tf.float32))
    with pytest.raises(
        SpecError, match=r"^generator 'g': batch 0: the batch got float64 \[2\], expected float32 \[\?\]"
    ):
        with staging.StagingSession() as sess:
            sess.run(x)
