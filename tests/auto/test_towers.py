"""`auto_stage()`: towers on devices of their own, each with its part of a batch there."""

from __future__ import annotations

from typing import Any

import pytest
import tensorflow.compat.v1 as tf
from auto_graphs import epoch

import staging_tf1 as staging

CPUS = tf.ConfigProto(device_count={"CPU": 2})


@pytest.fixture(autouse=True)
def graph() -> Any:
    tf.disable_control_flow_v2()
    with tf.Graph().as_default() as graph:
        yield graph


class Towers:
    """Two towers that take half of each batch, and fail where a number of the second half is in `bad`."""

    def __init__(self, batches: int = 6, bad: int = -1) -> None:
        self.iterator = tf.data.make_initializable_iterator(tf.data.Dataset.range(4 * batches).batch(4))
        self.numbers = self.iterator.get_next()
        halves = tf.split(tf.cast(self.numbers, tf.float32), [2, 2])
        optimizer = tf.train.GradientDescentOptimizer(0.0)
        self.sums, gradients = [], []
        for tower, half in enumerate(halves):
            with tf.device(f"/cpu:{tower}"), tf.variable_scope("model", reuse=tf.AUTO_REUSE):
                w = tf.get_variable("w", initializer=1.0, use_resource=True)
                checked = tf.debugging.assert_none_equal(half, float(bad), message="bad")
                with tf.control_dependencies([checked] if tower else []):
                    self.sums.append(tf.reduce_sum(w * half))
                gradients += optimizer.compute_gradients(self.sums[-1], [w])
        self.train = optimizer.apply_gradients(gradients)

    def init(self, sess: Any) -> None:
        sess.run([tf.global_variables_initializer(), self.iterator.initializer])


EXPECTED = [[8 * i + 1.0, 8 * i + 5.0] for i in range(6)]


def test_one_put_fills_an_area_on_each_device(graph: Any) -> None:
    model = Towers()
    report = staging.auto_stage(model.train)
    assert len(report.pipelines) == 1
    stores = {op.type: op.device for op in graph.get_operations() if op.type in ("Stage", "MapStage")}
    assert stores == {"Stage": "/device:CPU:0", "MapStage": "/device:CPU:1"}
    second = [user for user in model.sums[1].op.inputs[0].op.inputs if "auto_stage" in user.name]
    assert second and all(tensor.device == "/device:CPU:1" for tensor in second)
    with tf.Session(config=CPUS) as sess:
        for _ in range(2):
            model.init(sess)
            assert [each[0] for each in epoch(sess, [model.sums, model.train])] == EXPECTED


def test_a_step_of_one_tower_takes_the_batch_of_both() -> None:
    model = Towers()
    staging.auto_stage(model.train)
    with tf.Session(config=CPUS) as sess:
        model.init(sess)
        assert [sess.run(model.sums[i % 2]) for i in range(5)] == [EXPECTED[i][i % 2] for i in range(5)]
        assert sess.run([model.numbers, model.sums])[1] == EXPECTED[5]


@pytest.mark.parametrize("bad", [2, 3, 10, 18])
def test_the_parts_of_a_batch_stay_together_after_a_failed_step(bad: int) -> None:
    model = Towers(bad=bad)
    staging.auto_stage(model.train)
    seen: list[Any] = []
    with tf.Session(config=CPUS) as sess:
        model.init(sess)
        for _ in range(6):
            try:
                seen.append(sess.run([model.sums, model.train])[0])
            except tf.errors.InvalidArgumentError:
                seen.append("bad")
        with pytest.raises(tf.errors.OutOfRangeError):
            sess.run(model.train)
    assert seen == [*EXPECTED[: bad // 4], "bad", *EXPECTED[bad // 4 + 1 :]]


def test_a_chosen_device_holds_all(graph: Any) -> None:
    model = Towers()
    staging.auto_stage(model.train, device="/device:CPU:1")
    assert {op.device for op in graph.get_operations() if op.type in ("Stage", "MapStage")} == {"/device:CPU:1"}
    with tf.Session(config=CPUS) as sess:
        model.init(sess)
        assert [each[0] for each in epoch(sess, [model.sums, model.train])] == EXPECTED
