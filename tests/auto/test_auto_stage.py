"""`auto_stage()`: the same numbers with and without, ends of data and initializers."""

from __future__ import annotations

from typing import Any

import auto_graphs
import pytest
import tensorflow.compat.v1 as tf
from auto_graphs import KINDS, Counted, epoch, equal, run

import staging_tf1 as staging


@pytest.fixture(autouse=True)
def graph() -> Any:
    tf.disable_control_flow_v2()
    with tf.Graph().as_default() as graph:
        tf.set_random_seed(1)
        yield graph


@pytest.mark.parametrize("kind", KINDS)
def test_losses_labels_and_summaries_are_the_same_bits(kind: str) -> None:
    plain, staged = run(KINDS[kind], auto=False), run(KINDS[kind], auto=True)
    assert len(plain) == 100
    assert equal(plain, staged)


@pytest.mark.parametrize("kind", ["images", "text", "towers", "python"])
def test_the_data_end_after_as_many_steps_as_before(kind: str) -> None:
    plain = run(KINDS[kind], auto=False, batches=7)
    assert len(plain) == 7
    assert equal(plain, run(KINDS[kind], auto=True, batches=7))


def test_what_depends_on_no_variable_moves(graph: Any) -> None:
    model = auto_graphs.images()
    report = staging.auto_stage()
    kinds = {graph.get_operation_by_name(name).type for name in report.moved}
    assert {"IteratorGetNext", "DecodeJpeg", "ResizeBilinear"} <= kinds
    assert not any("Gradient" in name or "dropout" in name for name in report.moved)
    assert [each.reason for each in report.boundary].count("the step uses it") >= 2
    assert "run ahead of the step" in str(report) and report.to_dot().startswith("digraph")
    assert model.train.name not in report.moved


def test_an_iterator_may_be_initialized_again_for_each_epoch() -> None:
    model = Counted(5)
    staging.auto_stage()
    with tf.Session() as sess:
        sess.run(tf.global_variables_initializer())
        for _ in range(3):
            sess.run(model.iterator.initializer)
            assert [x[0].tolist() for x in epoch(sess, [model.x, model.train])] == [
                [4.0 * i, 4.0 * i + 2] for i in range(5)
            ]
            with pytest.raises(tf.errors.OutOfRangeError):
                sess.run(model.train)


def test_an_iterator_initialized_in_the_middle_begins_again() -> None:
    model = Counted(50)
    staging.auto_stage()
    with tf.Session() as sess:
        model.init(sess)
        for steps in (3, 1, 7):
            seen = [sess.run([model.raw, model.train])[0][0] for _ in range(steps)]
            assert seen == list(range(0, 2 * steps, 2))
            sess.run(model.iterator.initializer)


def test_an_iterator_switches_between_training_and_validation() -> None:
    training, validation = tf.data.Dataset.range(10).batch(2), tf.data.Dataset.range(100, 106).batch(2)
    iterator = tf.data.Iterator.from_structure(tf.data.get_output_types(training), tf.data.get_output_shapes(training))
    inits = iterator.make_initializer(training), iterator.make_initializer(validation)
    x = tf.cast(iterator.get_next(), tf.float32)
    w = tf.get_variable("w", initializer=1.0, use_resource=True)
    loss = tf.reduce_sum(w * x)
    train = tf.train.GradientDescentOptimizer(0.0).minimize(loss)
    staging.auto_stage()
    with tf.Session() as sess:
        sess.run(tf.global_variables_initializer())
        for _ in range(2):
            sess.run(inits[0])
            assert [each[0] for each in epoch(sess, [loss, train])] == [1, 5, 9, 13, 17]
            sess.run(inits[1])
            assert epoch(sess, loss) == [201, 205, 209]


def test_the_last_partial_batch_comes() -> None:
    data = tf.data.Dataset.range(5).batch(2)
    x = tf.cast(tf.data.make_one_shot_iterator(data).get_next(), tf.float32)
    w = tf.get_variable("w", initializer=1.0, use_resource=True)
    train = tf.train.GradientDescentOptimizer(0.0).minimize(tf.reduce_sum(w * x))
    staging.auto_stage()
    with tf.Session() as sess:
        sess.run(tf.global_variables_initializer())
        assert [each[0].tolist() for each in epoch(sess, [x, train])] == [[0, 1], [2, 3], [4]]


def test_an_iterator_that_is_not_initialized_fails_the_step_and_then_not() -> None:
    model = Counted(3)
    staging.auto_stage()
    with tf.Session() as sess:
        sess.run(tf.global_variables_initializer())
        with pytest.raises(staging.errors.UninitializedError):
            sess.run(model.train)
        sess.run(model.iterator.initializer)
        assert len(epoch(sess, model.train)) == 3


def test_a_bad_record_fails_its_own_step_and_the_next_goes_on() -> None:
    raw = tf.data.make_one_shot_iterator(tf.data.Dataset.range(6)).get_next()
    with tf.control_dependencies([tf.assert_none_equal(raw, tf.constant(3, tf.int64))]):
        x = tf.cast(tf.identity(raw), tf.float32)
    w = tf.get_variable("w", initializer=1.0, use_resource=True)
    loss = w * x
    train = tf.train.GradientDescentOptimizer(0.0).minimize(loss)
    staging.auto_stage()
    seen: list[Any] = []
    with tf.Session() as sess:
        sess.run(tf.global_variables_initializer())
        for _ in range(6):
            try:
                seen.append(float(sess.run([loss, train])[0]))
            except tf.errors.InvalidArgumentError:
                seen.append("bad")
    assert seen == [0, 1, 2, "bad", 4, 5]


def test_a_loop_and_a_cond_move_whole() -> None:
    raw = tf.cast(tf.data.make_one_shot_iterator(tf.data.Dataset.range(6)).get_next(), tf.float32)
    looped = tf.while_loop(lambda x: x < 100, lambda x: x * 3 + 1, [raw])
    chosen = tf.cond(looped > 150, lambda: looped, lambda: raw - 1)
    w = tf.get_variable("w", initializer=1.0, use_resource=True)
    loss = w * chosen + looped
    train = tf.train.GradientDescentOptimizer(0.0).minimize(loss)
    report = staging.auto_stage()
    assert {"Exit", "Merge"} <= set(report.kinds)
    with tf.Session() as sess:
        sess.run(tf.global_variables_initializer())
        seen = [sess.run([loss, train])[0] for _ in range(4)]
    expected = []
    for number in range(4):
        end = number
        while end < 100:
            end = 3 * end + 1
        expected.append((end if end > 150 else number - 1) + end)
    assert seen == expected
