"""Each method of TensorFlow that the package patches, called without us: the result or error of the method itself."""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tensorflow.compat.v1 as tf

import staging_tf1 as staging
from staging_tf1 import _tf
from staging_tf1._tf import eager_mode, wrap_runs
from staging_tf1.sources import ArraySource

SESSION_METHODS = ("_run", "partial_run_setup", "make_callable")
SESSIONS = tf.Session.__mro__[1]


class OnlyRuns:
    """What a saver restores with: it has no graph."""

    def __init__(self, session: Any) -> None:
        self.run = session.run


class World:
    """A graph without a pipeline: a variable, its saver and a session."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.path = folder, str(folder / "model")
        self.graph = tf.Graph()
        with self.graph.as_default():
            self.variable = tf.get_variable("v", initializer=tf.constant(1.0))
            self.step = tf.train.get_or_create_global_step()
            self.fed = tf.placeholder(tf.float32, [])
            self.sum = self.variable + self.fed
            self.init, self.saver = tf.global_variables_initializer(), tf.train.Saver()
        self.session = tf.Session(graph=self.graph)
        self.session.run(self.init)

    def saved(self) -> str:
        return self.saver.save(self.session, self.path)

    def manager(self) -> Any:
        return tf.train.SessionManager(graph=self.graph, ready_op=tf.report_uninitialized_variables())


def eager(call: Callable[[Any, Any, str], Any]) -> Callable[[World], Any]:
    """Call with a saver of an eager variable, that variable and a path."""

    def called(world: World) -> Any:
        with eager_mode():
            variable = tf.Variable(3.0, name="eager", use_resource=True)
            return call(tf.train.Saver([variable]), variable, world.path)

    return called


def restored_eagerly(saver: Any, variable: Any, path: str) -> float:
    saver.save(None, path)
    variable.assign(5.0)
    saver.restore(None, path)
    return float(variable.numpy())


def closed(world: World) -> Any:
    world.session.close()
    return world.saver.save(world.session, world.path)


def monitored(world: World) -> Any:
    with tf.train.MonitoredSession() as session:
        return world.saver.save(session, world.path)


def finalized(world: World) -> Any:
    scaffold = tf.train.Scaffold(saver=world.saver)
    return scaffold.finalize() is scaffold, scaffold.finalize().saver is world.saver, world.graph.finalized


def prepared(*args: Any, **kwargs: Any) -> Callable[[World], Any]:
    """Call `prepare_session`. A function among the arguments makes the argument out of the world."""

    def called(world: World) -> Any:
        made = [arg(world) if inspect.isfunction(arg) else arg for arg in args]
        named = {name: arg(world) if inspect.isfunction(arg) else arg for name, arg in kwargs.items()}
        session = world.manager().prepare_session(*made, **named)
        return float(session.run(world.variable))

    return called


def assigning(world: World) -> Any:
    assign = world.variable.assign(9.0)
    return lambda session: session.run(assign)


def partly_run(world: World) -> Any:
    handle = world.session.partial_run_setup([world.sum], [world.fed])
    return float(world.session.partial_run(handle, fetches=world.sum, feed_dict={world.fed: 2.0}))


CALLS: dict[str, Callable[[World], Any]] = {
    "save": lambda world: world.saver.save(world.session, world.path),
    "save, by name": lambda world: world.saver.save(sess=world.session, save_path=world.path, global_step=world.step),
    "save, all": lambda world: world.saver.save(world.session, world.path, 7, "latest", "graph", False, False, True),
    "save, step by position": lambda world: world.saver.save(world.session, world.path, 3),
    "save, no state": lambda world: world.saver.save(world.session, world.path, write_state=False),
    "save eagerly": eager(lambda saver, _, path: saver.save(None, path)),
    "save eagerly, by name": eager(lambda saver, _, path: saver.save(sess=None, save_path=path, global_step=2)),
    "save eagerly, another value": eager(lambda saver, _, path: saver.save("no session", path)),
    "save eagerly, no folder": eager(lambda saver, _, path: saver.save(None, path + "/none/model")),
    "save without a session": lambda world: world.saver.save(None, world.path),
    "save, another value": lambda world: world.saver.save("no session", world.path),
    "save in a MonitoredSession": monitored,
    "save without a path": lambda world: world.saver.save(world.session),
    "save, path of None": lambda world: world.saver.save(world.session, None),
    "save, unknown name": lambda world: world.saver.save(world.session, world.path, every=3),
    "save, closed session": closed,
    "save, no folder": lambda world: world.saver.save(world.session, world.path + "/none/model"),
    "restore": lambda world: world.saver.restore(world.session, world.saved()),
    "restore, by name": lambda world: world.saver.restore(save_path=world.saved(), sess=world.session),
    "restore eagerly": eager(restored_eagerly),
    "restore, no graph": lambda world: world.saver.restore(OnlyRuns(world.session), world.saved()),
    "restore without a session": lambda world: world.saver.restore(None, world.saved()),
    "restore, path of None": lambda world: world.saver.restore(world.session, None),
    "restore, no file": lambda world: world.saver.restore(world.session, world.path),
    "restore without a path": lambda world: world.saver.restore(world.session),
    "restore, too much": lambda world: world.saver.restore(world.session, world.path, 3),
    "finalize": finalized,
    "finalize, too much": lambda world: tf.train.Scaffold().finalize(1),
    "prepare": prepared("", lambda world: world.init),
    "prepare, by name": prepared(master="", init_op=lambda world: world.init, saver=lambda world: world.saver),
    "prepare, names of ops": prepared("", lambda world: world.init.name),
    "prepare, function": prepared("", lambda world: world.init, init_fn=assigning),
    "prepare, function only": prepared("", init_fn=lambda world: lambda session: session.run(world.init)),
    "prepare, checkpoint": prepared(
        "", lambda world: world.init, lambda world: world.saver, checkpoint_filename_with_path=World.saved
    ),
    "prepare, nothing": prepared(""),
    "prepare, no argument": prepared(),
    "prepare, unknown name": prepared("", init_operation=3),
    "run": lambda world: world.session.run(world.sum, {world.fed: 2.0}),
    "run, by name": lambda world: world.session.run(fetches=[world.sum], feed_dict={world.fed: 2.0}, options=None),
    "run, all": lambda world: world.session.run("add:0", {"Placeholder:0": 1}, tf.RunOptions(), tf.RunMetadata()),
    "run, unfed": lambda world: world.session.run(world.sum),
    "run, nothing": lambda world: world.session.run(),
    "partial_run": partly_run,
    "callable": lambda world: world.session.make_callable(world.variable)(),
    "callable, fed": lambda world: world.session.make_callable(world.sum, feed_list=[world.fed])(2.0),
    "callable, options": lambda world: world.session.make_callable(world.variable, accept_options=True)(
        options=tf.RunOptions()
    ),
    "callable, too much": lambda world: world.session.make_callable(world.variable)(1),
    "callable, nothing": lambda world: world.session.make_callable(),
}


def outcome(call: Callable[[World], Any], folder: Path) -> tuple[str, list[str]]:
    """Return the result or the error of a call, and the files that it has left."""
    folder.mkdir()
    world = World(folder)
    try:
        with world.graph.as_default():
            said = repr(call(world))
    except Exception as error:
        said = f"{type(error).__name__}: {error}"
    world.session.close()
    # TensorFlow adds the lines that have built an op, which differ.
    said = re.sub(r"0x[0-9a-f]+|\n +File .*, line .*(\n    .*)?", "", said.replace(str(folder), "FOLDER"))
    return said, sorted(file.name for file in folder.iterdir())


@contextmanager
def unpatched() -> Iterator[None]:
    methods = [(tf.train.Saver, "save"), (tf.train.Saver, "restore"), (tf.train.Scaffold, "finalize")]
    methods += [(tf.train.SessionManager, "prepare_session")]
    patched = [(owner, name, getattr(owner, name)) for owner, name in methods]
    assert all(hasattr(method, "__wrapped__") for _, _, method in patched)
    with pytest.MonkeyPatch.context() as patch:
        for owner, name, method in patched:
            patch.setattr(owner, name, inspect.unwrap(method))
        for name in SESSION_METHODS:
            # TensorFlow's own method may be wrapped, too.
            patch.setattr(SESSIONS, name, getattr(SESSIONS, name).__wrapped__)
        yield


@pytest.fixture(scope="module", autouse=True)
def patches(tmp_path_factory: Any) -> Iterator[None]:
    """A session of ours in another graph, which patches all of them."""
    with pytest.MonkeyPatch.context() as patch:
        # Put back at the end.
        patch.setattr(_tf, "_wrapper", None)
        wrap_runs(lambda session, fetches, feed_dict, call: call())
        with tf.Graph().as_default():
            batch = staging.staged(ArraySource(np.arange(4), batch_size=2))
            tf.train.get_or_create_global_step()
            with staging.StagingSession(checkpoint_dir=str(tmp_path_factory.mktemp("ours"))) as sess:
                sess.run(batch)
        yield


# The same methods with other arguments.
@pytest.mark.slow_cases(".*(by name|by position|too much|nothing|unknown name|no argument|another value)")
@pytest.mark.parametrize("name", CALLS)
def test_a_call_without_us_is_that_of_tensorflow(name: str, tmp_path: Path) -> None:
    with unpatched():
        wanted = outcome(CALLS[name], tmp_path / "unpatched")
    assert outcome(CALLS[name], tmp_path / "patched") == wanted
