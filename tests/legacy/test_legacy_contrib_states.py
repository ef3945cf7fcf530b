"""`tf.contrib.training.batch_sequences_with_states`: arguments that do not fit, and the end of the input."""

from __future__ import annotations

from typing import Any

import pytest
import tensorflow.compat.v1 as tf

from staging_tf1.contrib import training


def _batch(**changed: Any) -> training.NextQueuedSequenceBatch:
    arguments: dict[str, Any] = {
        "input_key": "key",
        "input_sequences": {"x": tf.zeros([4, 2])},
        "input_context": {"label": tf.constant(1)},
        "input_length": None,
        "initial_states": {"h": tf.zeros([3])},
        "num_unroll": 2,
        "batch_size": 1,
    }
    return training.batch_sequences_with_states(**{**arguments, **changed})


def _of_unknown_shape(shape: Any = None) -> Any:
    return tf.placeholder(tf.float32, shape)


@pytest.mark.parametrize(
    ("changed", "kind", "message"),
    [
        ({"input_key": 7}, TypeError, "input_key is int32, expected string"),
        ({"input_key": ["a", "b"]}, ValueError, "input_key has the shape (2,), expected a scalar"),
        ({"input_length": 1.5}, TypeError, "input_length is float32, expected int32"),
        ({"input_length": [1]}, ValueError, "input_length has the shape (1,), expected a scalar"),
        (
            {"input_length": None, "pad": False},
            ValueError,
            "input_length is None: pass the length of the sequences, or pad=True",
        ),
        ({"input_sequences": [1]}, TypeError, "input_sequences must be a dict of tensors, got [1]"),
        ({"input_sequences": {}}, ValueError, "input_sequences is empty, expected at least one tensor"),
        ({"input_sequences": {1: [1]}}, TypeError, "input_sequences must have strings as keys, got 1"),
        (
            {"input_sequences": {"x": 1}},
            ValueError,
            "input_sequences['x'] is a scalar, expected time steps in its first dimension",
        ),
        (
            {"input_sequences": {"x": lambda: _of_unknown_shape([None, None])}},
            ValueError,
            "input_sequences['x'] has the shape (None, None), expected a fully defined shape after its first dimension",
        ),
        (
            {"input_sequences": {"x": lambda: tf.SparseTensor([[0]], [1.0], [1])}},
            TypeError,
            "input_sequences['x'] is sparse: convert it with tf.sparse.to_dense()",
        ),
        (
            {"input_context": {"c": lambda: _of_unknown_shape()}},
            ValueError,
            "input_context['c'] has the shape <unknown>, expected a fully defined shape",
        ),
        ({"initial_states": {}}, ValueError, "initial_states is empty, expected at least one tensor"),
        (
            {"initial_states": {"h": lambda: _of_unknown_shape([None])}},
            ValueError,
            "initial_states['h'] has the shape (None,), expected a fully defined shape",
        ),
        ({"num_unroll": 2.5}, ValueError, "num_unroll must be a positive integer, got 2.5"),
        ({"num_unroll": 0}, ValueError, "num_unroll must be a positive integer, got 0"),
        ({"capacity": 1, "batch_size": 2}, ValueError, "capacity is 1, expected at least the batch_size, 2"),
    ],
)
def test_arguments_that_do_not_fit(changed: Any, kind: type[Exception], message: str, graph: Any) -> None:
    made = {
        key: {name: each() if callable(each) else each for name, each in value.items()}
        if isinstance(value, dict)
        else value
        for key, value in changed.items()
    }
    with pytest.raises(kind) as caught:
        _batch(**made)
    assert str(caught.value) == message


def test_values_that_are_not_the_declared_states(graph: Any) -> None:
    batch = _batch()
    with pytest.raises(KeyError, match="initial_states has no 'c', only 'h'"):
        batch.state("c")
    with pytest.raises(KeyError, match="initial_states has no 'c', only 'h'"):
        batch.save_state("c", tf.zeros([1, 3]))
    with pytest.raises(TypeError, match="state 'h' is float32, got a value of float64"):
        batch.save_state("h", tf.zeros([1, 3], tf.float64))
    with pytest.raises(ValueError, match=r"state 'h' has the shape \(None, 3\), got a value of \(1, 4\)"):
        batch.save_state("h", tf.zeros([1, 4]))


@pytest.mark.parametrize(
    ("lengths", "pad", "message"),
    [
        ((3, 3), False, "must be a positive multiple of num_unroll"),
        ((0, 0), True, "must be a positive multiple of num_unroll"),
        ((4, 2), True, "x and y have different lengths"),
        ((4, 2), False, "x and y have different lengths"),
    ],
)
def test_lengths_that_do_not_fit_fail_when_they_are_known(
    lengths: tuple[int, int], pad: bool, message: str, graph: Any
) -> None:
    x, y = _of_unknown_shape([None]), _of_unknown_shape([None])
    _batch(input_sequences={"x": x, "y": y}, input_length=None if pad else 1, pad=pad)
    assert _failure(_prefetch(), {x: [0.0] * lengths[0], y: [0.0] * lengths[1]}).count(message)


def test_length_of_more_than_the_sequence(graph: Any) -> None:
    length = tf.placeholder(tf.int32, [])
    _batch(input_length=length)
    assert "input_length is greater than the length of input_sequences" in _failure(_prefetch(), {length: 5})


def test_saving_another_number_of_states(graph: Any) -> None:
    batch = _batch()
    value = _of_unknown_shape()
    save = batch.save_state("h", value)
    with tf.Session() as sess:
        sess.run(_prefetch())
        with pytest.raises(tf.errors.InvalidArgumentError, match="state h and its new value differ in shape"):
            sess.run(save, {value: [[0.0] * 3] * 2})


def test_capacity_below_a_batch_size_that_is_a_tensor(graph: Any) -> None:
    size = tf.placeholder(tf.int32, [])
    _batch(batch_size=size, capacity=2)
    assert "capacity is below batch_size" in _failure(_prefetch(), {size: 3})


@pytest.mark.parametrize(
    ("steps", "allow_small_batch", "keys"),
    [
        # Of one segment each: the barrier is complete when the input ends.
        ([1, 2, 2], True, ["00000_of_00001:0", "00000_of_00001:1", "00000_of_00001:2"]),
        ([1, 2, 2], False, ["00000_of_00001:0", "00000_of_00001:1"]),
        ([2, 3, 1], True, ["00000_of_00001:0", "00000_of_00002:1", "00001_of_00002:1", "00000_of_00001:2"]),
        ([5], True, ["00000_of_00003:0", "00001_of_00003:0", "00002_of_00003:0"]),
    ],
)
def test_coordinator_stops_after_the_input_has_ended(
    steps: list[int], allow_small_batch: bool, keys: list[str], graph: Any
) -> None:
    number = tf.train.input_producer(tf.range(len(steps)), num_epochs=1, shuffle=False).dequeue()
    batch = _batch(
        input_key=tf.as_string(number),
        input_sequences={"n": tf.fill([tf.gather(steps, number)], number)},
        batch_size=2,
        num_threads=1,
        allow_small_batch=allow_small_batch,
    )
    save = batch.save_state("h", batch.state("h") + 1.0)
    seen = []
    with tf.Session() as sess:
        sess.run(tf.local_variables_initializer())
        coord = tf.train.Coordinator()
        threads = tf.train.start_queue_runners(sess, coord)
        for thread in threads:
            if "close_on_stop" not in thread.name:
                thread.join()  # all examples are in the queue
        with pytest.raises(tf.errors.OutOfRangeError):
            while True:
                got, states, _ = sess.run([batch.key, batch.state("h"), save])
                seen.extend(got.tolist())
                assert [int(key[:5]) for key in got] == states[:, 0].tolist()
        coord.request_stop()
        coord.join(threads, stop_grace_period_secs=20)
    assert [key.decode() for key in seen] == keys


def test_coordinator_stops_while_a_queue_waits_for_a_batch(graph: Any) -> None:
    batch = _batch(batch_size=2, num_threads=1)
    queue = tf.FIFOQueue(4, [tf.string])
    tf.train.add_queue_runner(tf.train.QueueRunner(queue, [queue.enqueue_many([batch.key])]))
    with tf.Session() as sess:
        coord = tf.train.Coordinator()
        threads = tf.train.start_queue_runners(sess, coord)
        # The second example has the key of the first, which is an error in the thread that inserts it.
        with pytest.raises(tf.errors.InvalidArgumentError):
            coord.join(threads, stop_grace_period_secs=20)


def _prefetch() -> Any:
    (runner,) = tf.get_collection(tf.GraphKeys.QUEUE_RUNNERS)
    return runner.enqueue_ops[0]


def _failure(op: Any, feeds: dict[Any, Any]) -> str:
    with tf.Session() as sess, pytest.raises(tf.errors.InvalidArgumentError) as caught:
        sess.run(op, feeds)
    return str(caught.value)
