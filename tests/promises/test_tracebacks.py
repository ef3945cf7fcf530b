"""Errors show the lines of the user's program, not those of this package, and keep their causes."""

from __future__ import annotations

import traceback
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tensorflow.compat.v1 as tf

import staging_tf1 as staging
from staging_tf1._tf import PACKAGE, TENSORFLOW
from staging_tf1.errors import BuildError, SpecError, StagingError, UninitializedError

pytestmark = pytest.mark.usefixtures("graph")


def records(**options: Any) -> Any:
    return staging.sources.ArraySource({"x": np.arange(6.0)}, batch_size=2, epochs=1, **options)


def changing() -> Iterator[Any]:
    yield {"x": np.zeros(3)}
    yield {"x": np.zeros(3, np.float32)}


def failing() -> Iterator[Any]:
    yield {"x": np.zeros(3)}
    raise KeyError("mine")


def train(source: Any, **options: Any) -> None:
    batch = staging.staged(source, **options)
    with staging.StagingSession() as sess:
        while not sess.should_stop():
            sess.run(batch)


def train_plainly(source: Any) -> None:
    batch = staging.staged(source)
    with tf.Session() as sess:
        coord = tf.train.Coordinator()
        staging.start(sess, coord)
        while True:
            sess.run(batch)


def put() -> None:
    staging.StagingArea([tf.int64]).put([tf.zeros([2])])


def start_too_early() -> None:
    tf.get_variable("v", [])
    staging.staged(records())
    with tf.Session() as sess:
        staging.start(sess)


def random_map() -> None:
    staging.staged(records(), map_fn=lambda batch: tf.random.uniform([2]))


def decode() -> None:
    train(records(), map_fn=lambda batch: tf.io.decode_jpeg(tf.as_string(batch["x"])[0]))


CASES: dict[str, tuple[Callable[[], Any], type[Exception], list[str]]] = {
    "spec": (lambda: staging.staged(records(), spec={"x": tf.TensorSpec([2])}), SpecError, ["<lambda>"]),
    "put": (put, SpecError, ["put"]),
    "map_fn": (random_map, BuildError, ["random_map"]),
    "start": (start_too_early, UninitializedError, ["start_too_early"]),
    "SpecError": (lambda: train(changing), SpecError, ["<lambda>", "train"]),
    "of the source": (lambda: train(failing), KeyError, ["<lambda>", "train", "failing"]),
    "of the source, plainly": (lambda: train_plainly(failing), KeyError, ["<lambda>", "train_plainly", "failing"]),
    "of an op": (decode, tf.errors.InvalidArgumentError, ["decode", "train"]),
}


def raised_by(call: Callable[[], Any]) -> Exception:
    try:
        call()
    except Exception as error:
        return error
    raise AssertionError("no error")


def frames(error: BaseException) -> list[tuple[str, str]]:
    """Return the (file, function) frames of a traceback, without those of pytest and of `raised_by`."""
    listed = traceback.extract_tb(error.__traceback__)
    names = [(frame.filename, frame.name) for frame in listed]
    return names[names.index((__file__, "raised_by")) + 1 :]


def own(shown: list[tuple[str, str]]) -> list[tuple[str, str]]:
    return [frame for frame in shown if frame[0].startswith((PACKAGE, TENSORFLOW))]


@pytest.mark.parametrize("case", CASES)
def test_an_error_has_the_users_frames_and_the_call_of_this_package(case: str) -> None:
    call, kind, names = CASES[case]
    error = raised_by(call)
    assert isinstance(error, kind)
    shown = frames(error)
    assert [name for file, name in shown if file == __file__] == names
    # `run` of a plain session is TensorFlow's, and calls this package.
    within = [("session.py", "run"), ("_tf.py", "entered_run")] if "plainly" in case else []
    assert [(Path(file).name, name) for file, name in own(shown)] == [*within, ("errors.py", "call")]


def test_the_cause_is_kept_and_shortened() -> None:
    error = raised_by(decode)
    assert isinstance(error.__cause__, tf.errors.InvalidArgumentError)
    assert "Unknown image file format" in str(error.__cause__)
    assert error.__cause__.__traceback__ is None


def test_the_cause_of_an_error_of_this_package_is_kept() -> None:
    assert isinstance(raised_by(lambda: train(changing)).__cause__, StagingError)


def test_a_refused_argument_and_a_mistake_of_this_package_keep_their_frames() -> None:
    assert frames(raised_by(lambda: staging.staged(records(), capacity=0)))[-1][1] == "refuse"


def test_all_frames_are_shown_if_tensorflow_shows_its_own() -> None:
    tf.debugging.disable_traceback_filtering()
    try:
        assert len(own(frames(raised_by(put)))) > 2
        staging.staged(records())
        (op,) = [op for op in tf.get_default_graph().get_operations() if op.name == "staged/is_started"]
        assert any(frame.filename.startswith(PACKAGE) for frame in op.traceback)
    finally:
        tf.debugging.enable_traceback_filtering()


def test_what_tensorflow_prints_of_an_op_has_no_frame_of_this_package() -> None:
    batch = staging.staged(records())
    runner = staging.CustomRunner(records(), queue="fifo").get_inputs()
    area = staging.StagingArea([tf.float32])
    put, got = area.put([tf.zeros([2])]), area.get()
    with tf.Session() as sess, pytest.raises(tf.errors.InvalidArgumentError) as caught:
        sess.run(batch)
    assert __file__ in str(caught.value) and PACKAGE not in str(caught.value)
    assert "is not started in this session" in str(caught.value)
    for made in (batch["x"].op, runner["x"].op, put, got[0].op):
        files = [frame.filename for frame in made.traceback]
        assert __file__ in files and not any(file.startswith(PACKAGE) for file in files)
