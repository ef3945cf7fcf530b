"""`StagingHook(auto_stage=True)` and `StagingSession(auto_stage=True)`: checkpoints, recovery, the same numbers."""

from __future__ import annotations

from typing import Any

import auto_graphs
import pytest
import tensorflow.compat.v1 as tf
from auto_graphs import Counted, equal, new_graph

import staging_tf1 as staging


@pytest.fixture(autouse=True)
def graph() -> Any:
    tf.disable_control_flow_v2()
    with tf.Graph().as_default() as graph:
        tf.set_random_seed(1)
        yield graph


def monitored(auto: str, checkpoint_dir: Any = None, steps: int = 100) -> list[Any]:
    with new_graph().as_default():
        model = auto_graphs.images(20)
        tf.train.get_or_create_global_step()
        tf.add_to_collection(tf.GraphKeys.LOCAL_INIT_OP, tf.group(tf.local_variables_initializer(), *model.inits))
        make: Any = {
            "no": lambda: tf.train.MonitoredTrainingSession(checkpoint_dir=checkpoint_dir),
            "hook": lambda: tf.train.MonitoredTrainingSession(
                checkpoint_dir=checkpoint_dir, hooks=[staging.StagingHook(auto_stage=True)]
            ),
            "session": lambda: staging.StagingSession(auto_stage=True, checkpoint_dir=checkpoint_dir),
        }
        seen = []
        with make[auto]() as sess:
            while not sess.should_stop() and len(seen) < steps:
                seen.append(sess.run([*model.fetches, model.train])[:-1])
        return seen


@pytest.mark.parametrize("auto", ["hook", "session"])
def test_a_monitored_session_gives_the_same(auto: str) -> None:
    plain = monitored("no")
    assert len(plain) == 20 and equal(plain, monitored(auto))


def test_checkpoints_of_the_plain_and_the_staged_program_fit_each_other(tmp_path: Any) -> None:
    monitored("no", str(tmp_path / "plain"), 3)
    monitored("hook", str(tmp_path / "staged"), 3)
    expected = monitored("no", str(tmp_path / "plain"), 5)
    assert equal(expected, monitored("hook", str(tmp_path / "staged"), 5))
    names = [
        sorted(name for name, _ in tf.train.list_variables(str(tmp_path / folder))) for folder in ("plain", "staged")
    ]
    assert names[0] == names[1]


def test_a_recovery_goes_on_with_the_new_session() -> None:
    model = Counted(10, iterator="one_shot")
    tf.train.get_or_create_global_step()

    class Aborts(tf.train.SessionRunHook):  # type: ignore[misc]
        runs = 0

        def after_run(self, *_: Any) -> None:
            Aborts.runs += 1
            if Aborts.runs == 3:
                raise tf.errors.AbortedError(None, None, "for the test")

    with tf.train.MonitoredTrainingSession(hooks=[staging.StagingHook(auto_stage=True), Aborts()]) as sess:
        seen = []
        while not sess.should_stop():
            seen.append(sess.run([model.raw, model.train])[0][0])
    assert seen == [0, 2, *range(0, 20, 2)]
