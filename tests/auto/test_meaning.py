"""`auto_stage()`: what fetches and feeds mean afterwards."""

from __future__ import annotations

from typing import Any

import pytest
import tensorflow.compat.v1 as tf
from auto_graphs import Counted

import staging_tf1 as staging
from staging_tf1.errors import AutoStageError


@pytest.fixture(autouse=True)
def graph() -> Any:
    tf.disable_control_flow_v2()
    with tf.Graph().as_default() as graph:
        tf.set_random_seed(1)
        yield graph


def test_fetches_of_staged_tensors_are_of_the_same_step() -> None:
    model = Counted(8)
    staging.auto_stage(keep=[model.double])
    with tf.Session() as sess:
        model.init(sess)
        got = sess.run(
            {"raw": model.raw, "by name": "IteratorGetNext:0", "rest": (model.double, [model.x], model.train)}
        )
        assert got["raw"].tolist() == got["by name"].tolist() == [0, 1]
        assert got["rest"][0].tolist() == [0, 2] and got["rest"][1][0].tolist() == [0, 2]
        step = sess.make_callable([model.raw, model.train])
        assert step()[0].tolist() == [2, 3]
        # One that trains nothing takes a batch, as before.
        assert sess.run(model.raw).tolist() == [4, 5]
        assert sess.run([model.x, model.train])[0].tolist() == [12, 14]


def test_a_fetch_of_what_runs_ahead_says_what_to_keep() -> None:
    model = Counted(8)
    staging.auto_stage()
    with tf.Session() as sess:
        model.init(sess)
        with pytest.raises(AutoStageError, match=r"'double:0' runs ahead of the step.*keep=\['double:0'\]"):
            sess.run([model.double, model.train])
        assert sess.run(model.raw).tolist() == [0, 1]


def test_a_feed_of_a_boundary_tensor_bypasses_the_area() -> None:
    model = Counted(8)
    staging.auto_stage()
    with tf.Session() as sess:
        model.init(sess)
        assert sess.run([model.loss, model.train], {model.x: [5.0]})[0] == 5
        assert sess.run(model.raw).tolist() == [0, 1]


def test_a_feed_further_upstream_is_computed_first() -> None:
    model = Counted(8)
    staging.auto_stage()
    with tf.Session() as sess:
        model.init(sess)
        assert sess.run([model.loss, model.train], {model.raw: [5]})[0] == 10
        assert sess.run([model.loss, model.train], {model.double: [5]})[0] == 5
        assert sess.run(model.raw).tolist() == [0, 1]


def test_partial_runs_and_options_of_callables_are_refused() -> None:
    model = Counted(8)
    staging.auto_stage()
    with tf.Session() as sess:
        model.init(sess)
        with pytest.raises(AutoStageError, match="partial_run_setup"):
            sess.partial_run_setup([model.loss], [])
        with pytest.raises(AutoStageError, match="accept_options"):
            sess.make_callable(model.loss, accept_options=True)


def test_an_op_that_is_added_later_cannot_read_what_runs_ahead() -> None:
    model = Counted(8)
    staging.auto_stage()
    later = tf.reduce_sum(model.double)
    with tf.Session() as sess:
        model.init(sess)
        with pytest.raises(AutoStageError, match="added after auto_stage"):
            sess.run([later, model.train])


def test_a_run_of_one_of_two_joined_sources_is_refused() -> None:
    one, other = (tf.data.make_one_shot_iterator(tf.data.Dataset.range(n)).get_next() for n in (10, 20))
    both = tf.cast(one + other, tf.float32)
    w = tf.get_variable("w", initializer=1.0, use_resource=True)
    train = tf.train.GradientDescentOptimizer(0.0).minimize(w * both)
    staging.auto_stage()
    with tf.Session() as sess:
        sess.run(tf.global_variables_initializer())
        assert sess.run([one, other, train])[:2] == [0, 0]
        with pytest.raises(AutoStageError, match="which auto_stage.. has joined"):
            sess.run(one)


def test_a_check_by_a_control_edge_runs_before_its_batch() -> None:
    raw = tf.data.make_one_shot_iterator(tf.data.Dataset.range(6)).get_next()
    x = tf.cast(raw, tf.float32)
    w = tf.get_variable("w", initializer=1.0, use_resource=True)
    with tf.control_dependencies([tf.assert_less(raw, tf.constant(2, tf.int64))]):
        loss = w * x
    train = tf.train.GradientDescentOptimizer(0.0).minimize(loss)
    report = staging.auto_stage()
    assert any("Assert" in name for name in report.moved)
    with tf.Session() as sess:
        sess.run(tf.global_variables_initializer())
        assert [sess.run([raw, train])[0] for _ in range(2)] == [0, 1]
        with pytest.raises(tf.errors.InvalidArgumentError):
            sess.run(train)
