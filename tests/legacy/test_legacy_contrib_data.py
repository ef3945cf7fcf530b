"""`tf.contrib.training.bucket` and the transformations of `tf.contrib.data`: arguments and data that do not fit."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import tensorflow.compat.v1 as tf

from staging_tf1.contrib import data, training


def _first(dataset: Any) -> Any:
    with tf.Session() as sess:
        return sess.run(tf.data.make_one_shot_iterator(dataset).get_next())


@pytest.mark.parametrize(
    ("boundaries", "kind", "message"),
    [
        ([], ValueError, "bucket_boundaries must increase and not be empty, got []"),
        ([3, 3], ValueError, "bucket_boundaries must increase and not be empty, got [3, 3]"),
        ([1.5], TypeError, "bucket_boundaries must be a list of integers, got [1.5]"),
        (7, TypeError, "bucket_boundaries must be a list of integers, got 7"),
    ],
)
def test_boundaries_that_make_no_sense(boundaries: Any, kind: type[Exception], message: str, graph: Any) -> None:
    with pytest.raises(kind) as caught:
        training.bucket_by_sequence_length(1, [tf.zeros([])], 2, boundaries)
    assert str(caught.value) == message


def test_lists_need_one_element_for_each_bucket(graph: Any) -> None:
    with pytest.raises(ValueError, match="batch_size has 3 elements, expected one for each of the 2 buckets"):
        training.bucket([tf.zeros([])], 0, [1, 2, 3], 2)
    with pytest.raises(ValueError, match="bucket_capacities has 1 elements, expected one for each of the 2 buckets"):
        training.bucket([tf.zeros([])], 0, 4, 2, bucket_capacities=[9])
    sparse = tf.SparseTensor([[0]], [1.0], [1])
    with pytest.raises(TypeError, match=r"takes no SparseTensor: convert it with tf.sparse.to_dense\(\)"):
        training.bucket([sparse], 0, 4, 2)


def test_sizes_differ_between_buckets_and_the_rest_is_dropped(graph: Any) -> None:
    number = tf.train.input_producer(tf.range(10), num_epochs=1, shuffle=False).dequeue()
    which, batch = training.bucket({"n": number}, number % 2, [2, 3], 2, num_threads=1)
    assert batch["n"].shape.as_list() == [None]
    found: dict[int, list[list[int]]] = {0: [], 1: []}
    with tf.Session() as sess:
        sess.run(tf.local_variables_initializer())
        coord = tf.train.Coordinator()
        threads = tf.train.start_queue_runners(sess, coord)
        with pytest.raises(tf.errors.OutOfRangeError):
            while True:
                bucket, numbers = sess.run([which, batch["n"]])
                found[int(bucket)].append(numbers.tolist())
        coord.request_stop()
        coord.join(threads)
    assert found == {0: [[0, 2], [4, 6]], 1: [[1, 3, 5]]}


def test_sliding_windows_of_structures(graph: Any) -> None:
    dataset = tf.data.Dataset.range(9).map(lambda x: {"a": x, "b": -x})
    window = _first(dataset.apply(data.sliding_window_batch(3, window_stride=2)))
    assert (window["a"].tolist(), window["b"].tolist()) == ([0, 2, 4], [0, -2, -4])
    with pytest.raises(ValueError, match="got stride and window_shift, expected one of them"):
        data.sliding_window_batch(2, stride=1, window_shift=1)


def test_padded_batches_and_sloppy_interleaving(graph: Any) -> None:
    lengths = tf.data.Dataset.range(1, 6).map(tf.range)
    assert _first(lengths.apply(data.padded_batch_and_drop_remainder(2, [None], np.int64(7)))).tolist() == [
        [0, 7],
        [0, 1],
    ]
    made = tf.data.Dataset.range(3).apply(data.sloppy_interleave(lambda x: tf.data.Dataset.from_tensors(x), 2))
    assert _first(made.batch(3)).tolist() in ([0, 1, 2], [1, 0, 2], [0, 2, 1], [1, 2, 0], [2, 0, 1], [2, 1, 0])


def test_elements_of_another_shape_are_an_error(graph: Any) -> None:
    lengths = tf.data.Dataset.range(2, 4).map(tf.range).apply(data.assert_element_shape(tf.TensorShape([2])))
    get = tf.data.make_one_shot_iterator(lengths).get_next()
    assert get.shape.as_list() == [2]
    with tf.Session() as sess:
        assert sess.run(get).tolist() == [0, 1]
        with pytest.raises(tf.errors.InvalidArgumentError):
            sess.run(get)
