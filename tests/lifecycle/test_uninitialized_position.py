"""Programs that initialize their own variables alone: the sessions that TensorFlow starts initialize the positions."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tensorflow.compat.v1 as tf

import staging_tf1 as staging
from staging_tf1.sources import ArraySource


def source() -> ArraySource:
    return ArraySource(np.arange(10), batch_size=1)


# What reads a batch.
PIPELINES: dict[str, Callable[[], Any]] = {
    "staged": lambda: staging.staged(source()),
    "towers": lambda: staging.staged(source(), devices=["/cpu:0"] * 2),
    "lockstep": lambda: staging.staged(source(), lockstep=True),
}


class Model:
    """A pipeline, variables that have initializers of their own, and a checkpoint saver that knows them all."""

    def __init__(self, pipeline: str) -> None:
        self.batch = PIPELINES[pipeline]()
        self.step = tf.train.get_or_create_global_step()
        self.weight = tf.get_variable("weight", initializer=2.0)
        self.local = tf.get_variable("local", initializer=3.0, collections=[tf.GraphKeys.LOCAL_VARIABLES])
        globals_, locals_ = [self.step, self.weight], [self.local]
        self.init = tf.variables_initializer(globals_)
        self.local_init = tf.variables_initializer(locals_)
        self.init_all = tf.group(self.init, self.local_init)
        self.ready = tf.report_uninitialized_variables([*globals_, *locals_])
        self.count = tf.group(self.step.assign_add(1))


# What the program says of its initialization.
SCAFFOLDS: dict[str, Callable[[Model], dict[str, Any]]] = {
    "init_op": lambda model: {"init_op": model.init},
    "init_op, by name": lambda model: {"init_op": model.init.name},
    "init_op, a list": lambda model: {"init_op": [model.init, [model.local_init]]},
    "init_op, all": lambda model: {"init_op": tf.global_variables_initializer()},
    "local_init_op": lambda model: {"local_init_op": model.local_init},
    "ready_op": lambda model: {"ready_op": model.ready},
    "init_op and local_init_op": lambda model: {"init_op": model.init, "local_init_op": model.local_init},
    "init_op and ready_op": lambda model: {"init_op": model.init, "ready_op": model.ready},
    "init_op and ready_for_local_init_op": lambda model: {
        "init_op": model.init,
        "ready_for_local_init_op": tf.report_uninitialized_variables([model.weight]),
    },
    "init_op and init_fn": lambda model: {
        "init_op": model.step.initializer,
        "init_fn": lambda scaffold, session: session.run(model.weight.initializer),
    },
}


@contextlib.contextmanager
def supervised(given: dict[str, Any], folder: str) -> Iterator[Any]:
    """A Supervisor's session, without its services: their threads fail on TensorFlow 2."""
    init_fn = given.pop("init_fn", None)
    if init_fn is not None:
        given["init_fn"] = lambda session: init_fn(None, session)
    supervisor = tf.train.Supervisor(logdir=folder, summary_writer=None, save_model_secs=0, **given)
    with supervisor.managed_session() as session:
        yield session
        supervisor.saver.save(session, supervisor.save_path)


def monitored(given: dict[str, Any], folder: str | None, **options: Any) -> Any:
    return tf.train.MonitoredTrainingSession(scaffold=tf.train.Scaffold(**given), checkpoint_dir=folder, **options)


WAYS: dict[str, Callable[..., Any]] = {
    "StagingSession": lambda given, folder: staging.StagingSession(
        scaffold=tf.train.Scaffold(**given), checkpoint_dir=folder
    ),
    "StagingHook": lambda given, folder: monitored(given, folder, hooks=[staging.StagingHook()]),
    "MonitoredTrainingSession": monitored,
    "Supervisor": supervised,
}


@pytest.mark.parametrize("pipeline", PIPELINES)
@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("scaffold", SCAFFOLDS)
@pytest.mark.thinned
def test_programs_may_initialize_their_own_variables_alone(
    tmp_path: Path, pipeline: str, way: str, scaffold: str
) -> None:
    if pipeline == "lockstep" and way in ("MonitoredTrainingSession", "Supervisor"):
        pytest.skip("lockstep needs a StagingSession or a StagingHook")
    seen: list[int] = []
    for _ in range(2):  # from the start, and from the checkpoint
        with tf.Graph().as_default():
            model = Model(pipeline)
            with WAYS[way](SCAFFOLDS[scaffold](model), str(tmp_path)) as session:
                seen += np.ravel(session.run((model.batch, model.count))[0]).tolist()
    assert seen == list(range(4 if pipeline == "towers" else 2))


def test_a_position_that_the_init_op_restores_stays(tmp_path: Path) -> None:
    with tf.Graph().as_default():
        model, saver, path = Model("staged"), tf.train.Saver(), str(tmp_path / "model.ckpt")
        names = saver.saver_def
        with staging.StagingSession() as session:
            assert session.run(model.batch) == 0
            session.run(names.save_tensor_name, {names.filename_tensor_name: path})
        scaffold = tf.train.Scaffold(
            init_op=[names.restore_op_name], init_feed_dict={names.filename_tensor_name: path}, saver=saver
        )
        with tf.train.MonitoredSession(tf.train.ChiefSessionCreator(scaffold)) as session:
            assert session.run(model.batch) == 1


def test_variables_of_the_program_are_still_missed(graph: Any) -> None:
    model = Model("staged")
    with pytest.raises(RuntimeError, match=r"Variables not initialized: weight\b"):
        staging.StagingSession(scaffold=tf.train.Scaffold(init_op=model.step.initializer))
