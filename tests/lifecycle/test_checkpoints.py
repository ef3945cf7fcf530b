"""A checkpoint that cannot be restored raises an error with its file and a fix, and never ends the data."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tensorflow.compat.v1 as tf
from running import feed_threads
from slow import with_slow

import staging_tf1 as staging
from staging_tf1.errors import CheckpointError
from staging_tf1.sources import ArraySource

pytestmark = pytest.mark.usefixtures("quick_graphs")

QUIET: dict[str, Any] = dict(log_step_count_steps=0, save_summaries_steps=0, save_graph_def=False)


def build(count: int = 20, width: int = 64, **options: Any) -> Any:
    x = staging.staged(ArraySource(np.arange(count), batch_size=1, epochs=1), **options)
    weights = tf.get_variable("weights", [width], use_resource=True, initializer=tf.ones_initializer())
    step = tf.train.get_or_create_global_step()
    return x, tf.group(weights.assign_add(tf.ones([width])), step.assign_add(1), x)


def session(way: str, folder: Any, hooks: Any = (), **options: Any) -> Any:
    options = {**QUIET, "checkpoint_dir": str(folder), **options}
    if way == "session":
        return staging.StagingSession(hooks=[*hooks], **options)
    own = [staging.StagingHook()] if way == "hook" else []
    return tf.train.MonitoredTrainingSession(hooks=[*own, *hooks], **options)


@pytest.fixture(scope="module")
def saved(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with two checkpoints, of steps 3 and 6."""
    folder = tmp_path_factory.mktemp("saved")
    with tf.Graph().as_default():
        _, train = build()
        with session("session", folder, save_checkpoint_steps=3) as sess:
            for _ in range(6):
                sess.run(train)
    assert tf.train.latest_checkpoint(str(folder)) == str(folder / "model.ckpt-6")
    assert tf.train.checkpoint_exists(str(folder / "model.ckpt-3"))
    return folder


def data(folder: Path, shard: int = 0) -> Path:
    return folder / f"model.ckpt-6.data-{shard:05}-of-00002"


def index(folder: Path) -> Path:
    return folder / "model.ckpt-6.index"


def cut(path: Path, size: int) -> None:
    os.truncate(path, size)


def flip(path: Path, place: int) -> None:
    content = bytearray(path.read_bytes())
    content[place] ^= 0x10
    path.write_bytes(content)


DAMAGES: dict[str, Callable[[Path], Any]] = {
    "the data are empty": lambda folder: cut(data(folder), 0),
    "the last byte of the data": lambda folder: cut(data(folder), data(folder).stat().st_size - 1),
    "no second shard": lambda folder: data(folder, 1).unlink(),
    "no data": lambda folder: data(folder).unlink(),
    "a bit of the first data": lambda folder: flip(data(folder), 0),
    "a bit of the last data": lambda folder: flip(data(folder), -1),
    "an empty index": lambda folder: cut(index(folder), 0),
    "no index": lambda folder: index(folder).unlink(),
    "garbage for an index": lambda folder: index(folder).write_bytes(os.urandom(500)),
    "a folder for data": lambda folder: (data(folder).unlink(), data(folder).mkdir()),
}


# Those after which the default run tries the fix, which is the same for all of them: in the data, and in the index.
CURED = ("no data", "an empty index")


def copy(saved: Path, tmp_path: Path) -> Path:
    folder = tmp_path / "copy"
    shutil.copytree(saved, folder)
    (folder / "checkpoint").write_text((folder / "checkpoint").read_text().replace(str(saved), str(folder)))
    return folder


def checkpoints(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in folder.iterdir() if path.is_file() and "tfevents" not in path.name}


def first_error(way: str, folder: Path, build: Callable[[], Any] = build) -> BaseException | None:
    """Return what a plain training loop sees, which takes OutOfRangeError for the end of the data."""
    with tf.Graph().as_default():
        _, train = build()
        try:
            with session(way, folder) as sess:
                while not sess.should_stop():
                    sess.run(train)
        except Exception as error:
            return error
    return None


@pytest.mark.thinned
@pytest.mark.parametrize("way", ["session", "hook", "no hook"])
@pytest.mark.parametrize("damage", DAMAGES)
def test_a_damaged_checkpoint(saved: Path, tmp_path: Path, damage: str, way: str) -> None:
    folder = copy(saved, tmp_path)
    DAMAGES[damage](folder)
    before = checkpoints(folder)
    error = first_error(way, folder)
    assert isinstance(error, CheckpointError) and not isinstance(error, tf.errors.OpError)
    assert str(folder / "model.ckpt-6") in str(error) and "is damaged or incomplete" in str(error)
    # The suggested fix works: after it, the loop runs.
    cure = f"tf.train.update_checkpoint_state('{folder}', '{folder / 'model.ckpt-3'}')"
    assert cure in str(error)
    assert checkpoints(folder) == before, "nothing is saved over what may be rescued"
    assert feed_threads() == []
    if not with_slow() and damage not in CURED:
        return
    eval(cure)
    with tf.Graph().as_default():
        x, _ = build()
        with session(way, folder) as sess:
            assert sess.run(x).tolist() == [3]


FOLDERS = ["run[1]", "run[", "a\\b"]
PATTERN = "TensorFlow reads '[' and '\\' in its path as a pattern"


@pytest.mark.parametrize("name", FOLDERS)
def test_nothing_is_saved_where_tensorflow_finds_no_checkpoint(tmp_path: Path, name: str) -> None:
    folder = tmp_path / name
    error = first_error("session", folder)
    assert isinstance(error, CheckpointError) and PATTERN in str(error) and str(folder) in str(error)
    assert list(folder.glob("model.ckpt*")) == [] and feed_threads() == []


@pytest.mark.parametrize("way", ["session", "hook"])
@pytest.mark.parametrize("name", FOLDERS)
def test_a_checkpoint_that_tensorflow_does_not_find(saved: Path, tmp_path: Path, name: str, way: str) -> None:
    folder = copy(saved, tmp_path).rename(tmp_path / name)
    (folder / "checkpoint").write_text('model_checkpoint_path: "model.ckpt-6"')
    error = first_error(way, folder)
    assert isinstance(error, CheckpointError) and PATTERN in str(error)
    # The suggested fix works.
    folder.rename(tmp_path / "renamed")
    tf.train.update_checkpoint_state(str(tmp_path / "renamed"), str(tmp_path / "renamed" / "model.ckpt-6"))
    assert first_error(way, tmp_path / "renamed") is None


@pytest.mark.parametrize("name", ["a*b", "a?b", "{a,b}", "%s", "ü \n"])
def test_other_names_of_folders_resume(tmp_path: Path, name: str) -> None:
    seen = []
    for _ in range(2):
        with tf.Graph().as_default():
            x, train = build(count=2)
            with session("session", tmp_path / name) as sess:
                seen.append(int(sess.run([x, train])[0][0]))
    assert seen == [0, 1]


def test_every_bit_of_an_index(saved: Path, tmp_path: Path) -> None:
    folder = copy(saved, tmp_path)
    content = index(folder).read_bytes()
    with tf.Graph().as_default():
        build()
        with session("session", folder) as sess:
            saver = tf.get_collection(tf.GraphKeys.SAVERS)[0]
            wanted = sess.run(tf.global_variables())
        with tf.Session() as sess:
            for place in range(len(content)):
                index(folder).write_bytes(content[:place] + bytes([content[place] ^ 0x04]) + content[place + 1 :])
                try:
                    saver.restore(sess, str(folder / "model.ckpt-6"))
                except CheckpointError:
                    continue
                for got, want in zip(sess.run(tf.global_variables()), wanted, strict=True):
                    np.testing.assert_array_equal(got, want)


STATE_FILES = {
    "empty": b"",
    "text": b"this is no checkpoint state",
    "cut": b'model_checkpoint_path: "model.ck',
    "zeros": bytes(300),
    "bytes": bytes(range(128, 256)),
    "other fields": b'model_path: "model.ckpt-6"',
}


# The same damage at another place of the file.
@pytest.mark.slow_cases("cut|zeros|other fields")
@pytest.mark.parametrize("content", STATE_FILES)
def test_a_damaged_file_that_names_the_latest_checkpoint(saved: Path, tmp_path: Path, content: str) -> None:
    folder = copy(saved, tmp_path)
    (folder / "checkpoint").write_bytes(STATE_FILES[content])
    before = checkpoints(folder)
    error = first_error("session", folder)
    assert isinstance(error, CheckpointError), "TensorFlow begins again at step 0"
    assert f"'{folder / 'checkpoint'}'" in str(error) and "'model.ckpt-3', 'model.ckpt-6'" in str(error)
    assert checkpoints(folder) == before
    tf.train.update_checkpoint_state(str(folder), str(folder / "model.ckpt-6"))
    with tf.Graph().as_default():
        x, _ = build()
        with session("session", folder) as sess:
            assert sess.run(x).tolist() == [6]


def renamed() -> Any:
    x, train = build()
    tf.get_variable("bias", [2], use_resource=True)
    return x, train


def retyped() -> Any:
    x = staging.staged(ArraySource(np.arange(20), batch_size=1, epochs=1))
    weights = tf.get_variable("weights", [64], tf.int32, use_resource=True, initializer=tf.zeros_initializer())
    step = tf.train.get_or_create_global_step()
    return x, tf.group(weights.assign_add(tf.ones([64], tf.int32)), step.assign_add(1), x)


OTHERS: dict[str, tuple[Callable[[], Any], str]] = {
    "a variable more": (renamed, "has no variable 'bias', which this graph has"),
    "another shape": (lambda: build(width=65), "does not fit this graph"),
    "another dtype": (retyped, "does not fit this graph"),
}


@pytest.mark.thinned
@pytest.mark.parametrize("way", ["session", "hook"])
@pytest.mark.parametrize("other", OTHERS)
def test_the_checkpoint_of_another_program(saved: Path, tmp_path: Path, other: str, way: str) -> None:
    folder = copy(saved, tmp_path)
    built, words = OTHERS[other]
    error = first_error(way, folder, built)
    assert isinstance(error, CheckpointError)
    assert str(folder / "model.ckpt-6") in str(error) and words in str(error)
    assert "Set checkpoint_dir to an empty folder or one with checkpoints of this program" in str(error)
    assert feed_threads() == []


# The same start as with a session.
@pytest.mark.slow_cases("hook")
@pytest.mark.parametrize("way", ["session", "hook"])
def test_no_checkpoint_at_all_is_no_error(tmp_path: Path, way: str) -> None:
    for folder in (tmp_path / "not there", tmp_path):
        with tf.Graph().as_default():
            x, _ = build()
            with session(way, folder) as sess:
                assert sess.run(x).tolist() == [0]


class Lost(tf.train.SessionRunHook):  # type: ignore[misc]
    """Damages the latest checkpoint and then loses the session, once, at the third run."""

    def __init__(self, damage: Callable[[], Any]) -> None:
        self._damage, self.runs = damage, 0

    def after_run(self, context: Any, values: Any) -> None:
        self.runs += 1
        if self.runs == 3:
            self._damage()
            raise tf.errors.AbortedError(None, None, "preempted")


@pytest.mark.thinned
@pytest.mark.parametrize("way", ["session", "hook"])
@pytest.mark.parametrize("damage", ["the data are empty", "garbage for an index", "no data"])
def test_a_recovery_from_a_damaged_checkpoint(saved: Path, tmp_path: Path, damage: str, way: str) -> None:
    # A MonitoredSession restores within run(), and takes an OutOfRangeError from the restore for the end of the data.
    folder = copy(saved, tmp_path)
    hook = Lost(lambda: DAMAGES[damage](folder))
    with tf.Graph().as_default():
        _, train = build()
        with pytest.raises(CheckpointError, match="is damaged or incomplete"):
            with session(way, folder, [hook], save_checkpoint_steps=100) as sess:
                while not sess.should_stop():
                    sess.run(train)
    assert hook.runs == 3
    assert feed_threads() == []


def test_a_recovery_from_a_damaged_file_that_names_the_latest(saved: Path, tmp_path: Path) -> None:
    folder = copy(saved, tmp_path)
    hook = Lost(lambda: cut(folder / "checkpoint", 5))
    with tf.Graph().as_default():
        _, train = build()
        with pytest.raises(CheckpointError, match="which names the latest checkpoint of its folder, is damaged"):
            with session("session", folder, [hook], save_checkpoint_steps=100) as sess:
                while not sess.should_stop():
                    sess.run(train)
    assert hook.runs == 3


def test_a_lost_session_is_still_recovered(saved: Path, tmp_path: Path) -> None:
    folder = copy(saved, tmp_path)
    hook = Lost(lambda: None)
    with tf.Graph().as_default():
        _, train = build()
        with session("session", folder, [hook]) as sess:
            while not sess.should_stop():
                sess.run(train)
    assert hook.runs == 3 + 14


# More of them in tests/feed/test_first_batches.py.
POSITIONS: dict[str, tuple[str, Any]] = {
    "a matrix": ("position", np.array([[3], [4]])),
    "negative": ("position", np.array([-3])),
    "another dtype": ("position", np.array([3.0])),
    "no JSON": ("fingerprint", np.array(b"{nonsense", object)),
}


@pytest.mark.thinned
@pytest.mark.parametrize("lockstep", [False, True])
@pytest.mark.parametrize("kind", POSITIONS)
def test_a_position_that_no_run_has_saved(saved: Path, tmp_path: Path, kind: str, lockstep: bool) -> None:
    name, value = POSITIONS[kind]
    reader = tf.train.load_checkpoint(str(saved / "model.ckpt-6"))
    values = {key: reader.get_tensor(key) for key in reader.get_variable_to_shape_map()}
    values[f"staged/{name}"] = value
    with tf.Graph().as_default(), tf.Session() as sess:
        for key, each in values.items():
            dtype = tf.string if np.asarray(each).dtype == object else tf.as_dtype(np.asarray(each).dtype)
            tf.Variable(each, dtype=dtype, name=key, use_resource=True)
        sess.run(tf.global_variables_initializer())
        tf.train.Saver().save(sess, str(tmp_path / "model.ckpt"), global_step=6)

    with tf.Graph().as_default():
        build(lockstep=lockstep)
        with pytest.raises(CheckpointError, match=r"staged/(position|fingerprint)") as caught:
            session("session", tmp_path)
        assert "resume='restart'" in str(caught.value) or "does not fit this graph" in str(caught.value)
    if "resume='restart'" in str(caught.value) and (with_slow() or kind in ("negative", "no JSON")):
        with tf.Graph().as_default():
            x, _ = build(lockstep=lockstep, resume="restart")
            with session("session", tmp_path) as sess:
                assert sess.run(x).tolist() == [0]
    assert feed_threads() == []


def test_a_saver_of_the_users(saved: Path, tmp_path: Path) -> None:
    folder = copy(saved, tmp_path)
    cut(data(folder), 3)
    with tf.Graph().as_default():
        build()
        with pytest.raises(CheckpointError, match="is damaged or incomplete"):
            session("session", folder, scaffold=tf.train.Scaffold(saver=tf.train.Saver(sharded=True)))
    for way, collected in (("hook", True), ("hook", False), ("no hook", False)):
        with tf.Graph().as_default():
            build()
            saver = tf.train.Saver(sharded=True)
            if collected:
                tf.add_to_collection(tf.GraphKeys.SAVERS, saver)
            with pytest.raises(CheckpointError, match="is damaged or incomplete"):
                session(way, folder, scaffold=tf.train.Scaffold(saver=saver))


def with_saveable(make: Callable[[Any], Any]) -> tuple[Any, Any, Any]:
    """Return the iterator of a dataset, its elements, and a train op. Checkpoints hold the state of the iterator."""
    iterator = make(tf.data.Dataset.range(20))
    saveable = tf.data.experimental.make_saveable_from_iterator(iterator)
    tf.add_to_collection(tf.GraphKeys.SAVEABLE_OBJECTS, saveable)
    x = iterator.get_next(name="element")
    step = tf.train.get_or_create_global_step()
    return iterator, x, tf.group(step.assign_add(1), x)


@pytest.mark.parametrize("way", ["session", "hook"])
def test_an_iterator_that_is_restored_before_it_is_initialized(tmp_path: Path, way: str) -> None:
    one_shot, initializable = tf.data.make_one_shot_iterator, tf.data.make_initializable_iterator
    with tf.Graph().as_default():
        iterator, _, train = with_saveable(initializable)
        tf.add_to_collection(tf.GraphKeys.TABLE_INITIALIZERS, iterator.initializer)
        with session(way, tmp_path, save_checkpoint_steps=1) as sess:
            for _ in range(3):
                sess.run(train)
    before = checkpoints(tmp_path)
    with tf.Graph().as_default():
        iterator, _, _ = with_saveable(initializable)
        tf.add_to_collection(tf.GraphKeys.TABLE_INITIALIZERS, iterator.initializer)
        with pytest.raises(CheckpointError) as caught:
            session(way, tmp_path)
    name = iterator.initializer.inputs[1].op.name
    assert str(caught.value) == (
        f"checkpoint '{tmp_path / 'model.ckpt-3'}' has the state of the iterator '{name}', which cannot be restored "
        f"before it is initialized, and a session initializes after it has restored. Save no state of the iterator, "
        f"and pass the dataset to staged(), which saves its own position; this checkpoint then needs "
        f"resume='restart'. Or use tf.data.make_one_shot_iterator(dataset), which needs no initializer, in a new "
        f"checkpoint_dir."
    )
    assert checkpoints(tmp_path) == before
    # Both cures work.
    for begin in (0, 3):
        with tf.Graph().as_default():
            _, x, train = with_saveable(one_shot)
            with session(way, tmp_path / "new", save_checkpoint_steps=1) as sess:
                assert sess.run([x, train])[0] == begin
                for _ in range(2):
                    sess.run(train)
    with tf.Graph().as_default():
        x = staging.staged(tf.data.Dataset.range(20), resume="restart")
        tf.train.get_or_create_global_step()
        with session(way, tmp_path) as sess:
            assert sess.run(x) == 0


def test_a_plain_session_that_initializes_the_iterator_first(tmp_path: Path) -> None:
    with tf.Graph().as_default(), tf.Session() as sess:
        iterator, x, _ = with_saveable(tf.data.make_initializable_iterator)
        staging.staged(tf.constant(1))
        saver = tf.train.Saver()
        sess.run([tf.global_variables_initializer(), iterator.initializer])
        sess.run(x)
        path = saver.save(sess, str(tmp_path / "model"))
    with tf.Session(graph=x.graph) as sess:
        with pytest.raises(tf.errors.FailedPreconditionError, match="run the initializer operation for this iterator"):
            saver.restore(sess, path)
        sess.run(iterator.initializer)
        saver.restore(sess, path)
        assert sess.run(x) == 1
