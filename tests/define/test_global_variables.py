"""What programs do with all of `tf.global_variables()` in a graph that has a pipeline.

What they compute is what they compute without the pipeline. What they save and restore includes its position.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pytest
import tensorflow.compat.v1 as tf
from resuming import Counting

import staging_tf1 as staging
from staging_tf1.errors import SpecError
from staging_tf1.sources import ArraySource

STEPS = 3


def source() -> ArraySource:
    return ArraySource(np.arange(20), batch_size=1)


def weights() -> Any:
    return tf.get_variable("weights", [3], initializer=tf.constant_initializer([1.0, 2.0, 2.0]))


def averaged() -> Any:
    averages = tf.train.ExponentialMovingAverage(0.9)
    variables = tf.global_variables()
    with tf.control_dependencies([averages.apply(variables)]):
        return [tf.identity(averages.average(variable)) for variable in variables]


# What a program computes of all variables: a number, a tensor, or a tensor for each variable.
IDIOMS: dict[str, Callable[[], Any]] = {
    "count parameters": lambda: sum(int(np.prod(v.shape.as_list())) for v in tf.global_variables()),
    "count elements": lambda: sum(v.get_shape().num_elements() for v in tf.global_variables()),
    "bytes": lambda: sum(v.dtype.size * v.shape.num_elements() for v in tf.global_variables()),
    "histograms": lambda: [tf.summary.histogram(v.op.name, v) for v in tf.global_variables()],
    "averages": averaged,
    "norm": lambda: tf.global_norm([tf.cast(v, tf.float32) for v in tf.global_variables()]),
    "l2 losses": lambda: tf.add_n([tf.nn.l2_loss(v) for v in tf.global_variables()]),
    "one vector": lambda: tf.concat([tf.reshape(v, [-1]) for v in tf.global_variables()], 0),
    "all finite": lambda: tf.reduce_all([tf.reduce_all(tf.is_finite(v)) for v in tf.global_variables()]),
    "zeros": lambda: [tf.zeros_like(v) for v in tf.global_variables()],
}


def computed(idiom: str, *fetches: Any) -> Any:
    """Return what an idiom computes; of a list, what belongs to the model."""
    weights()
    found = IDIOMS[idiom]()
    if isinstance(found, int):
        found = tf.constant(found)
    with staging.StagingSession() as sess:
        result = sess.run([found, *fetches])[0]
    return result[-1] if isinstance(result, list) else np.asarray(result).tolist()


@pytest.mark.thinned
@pytest.mark.parametrize("kind", ["source", "state", "towers"])
@pytest.mark.parametrize("idiom", IDIOMS)
def test_an_idiom_computes_what_it_does_without_a_pipeline(idiom: str, kind: str) -> None:
    with tf.Graph().as_default():
        expected = computed(idiom)
    with tf.Graph().as_default():
        if kind == "towers":
            batches = staging.staged(source(), devices=["/cpu:0"] * 2)
        else:
            batches = [staging.staged(source() if kind == "source" else Counting())]
        np.testing.assert_array_equal(computed(idiom, batches), expected)


class Way(NamedTuple):
    """How a program saves in a session to a path, and how another one restores that, before the start."""

    save: Callable[[Any, str], Any]
    restore: Callable[[Any, str], Any]


def by(make: Callable[[], Any]) -> Way:
    return Way(lambda session, path: make().save(session, path), lambda session, path: make().restore(session, path))


def keep_arrays(session: Any, path: str) -> None:
    np.save(f"{path}.npy", {v.op.name: session.run(v) for v in tf.global_variables()}, allow_pickle=True)


def kept_arrays(path: str) -> list[tuple[Any, Any]]:
    arrays = np.load(f"{path}.npy", allow_pickle=True).item()
    return [(v, arrays[v.op.name]) for v in tf.global_variables()]


def initialize_from(session: Any, path: str, initialize: Callable[[str], Any]) -> None:
    initialize(path)
    session.run(tf.global_variables_initializer())


def save_imported(session: Any, path: str, make: Callable[[Any], Any]) -> None:
    """Restore a checkpoint in a session of its imported graph, and save it from there."""
    tf.train.Saver().save(session, f"{path}-own")
    with tf.Graph().as_default(), tf.Session() as sess:
        imported = tf.train.import_meta_graph(f"{path}-own.meta", clear_devices=True)
        sess.run(tf.global_variables_initializer())
        imported.restore(sess, f"{path}-own")
        make(imported).save(sess, path)


def by_name() -> dict[str, Any]:
    return {v.op.name: v for v in tf.global_variables()}


ALL = by(tf.train.Saver)
WAYS = {
    "Saver()": ALL,
    "Saver of a list": by(lambda: tf.train.Saver(tf.global_variables())),
    "Saver of a dict": by(lambda: tf.train.Saver({f"other/{name}": v for name, v in by_name().items()})),
    "Saver of scopes": by(lambda: tf.train.Saver([*tf.trainable_variables(), *tf.global_variables("train/")])),
    "Saver, sharded": by(lambda: tf.train.Saver(sharded=True)),
    "Saver, reshaping": by(lambda: tf.train.Saver(tf.global_variables(), reshape=True)),
    "load": Way(keep_arrays, lambda session, path: [v.load(each, session) for v, each in kept_arrays(path)]),
    "assign": Way(keep_arrays, lambda session, path: session.run([v.assign(each) for v, each in kept_arrays(path)])),
    "init_from_checkpoint": ALL._replace(
        restore=lambda session, path: initialize_from(
            session, path, lambda path: tf.train.init_from_checkpoint(path, by_name())
        )
    ),
    "init_from_checkpoint of pairs": ALL._replace(
        restore=lambda session, path: initialize_from(
            session, path, lambda path: tf.train.init_from_checkpoint(path, [*by_name().items()])
        )
    ),
    "warm_start": ALL._replace(
        restore=lambda session, path: initialize_from(session, path, lambda path: tf.train.warm_start(path, [".*"]))
    ),
    "imported graph": ALL._replace(save=lambda session, path: save_imported(session, path, lambda saver: saver)),
    "imported graph, new Saver": ALL._replace(
        save=lambda session, path: save_imported(session, path, lambda saver: tf.train.Saver())
    ),
}


def begun(session: Any, batch: Any, steps: int) -> list[int]:
    """Start, and return what the first steps get."""
    coord = tf.train.Coordinator()
    threads = staging.start(session, coord)
    got = [int(session.run(batch)[0]) for _ in range(steps)]
    coord.request_stop()
    coord.join(threads)
    return got


@pytest.mark.thinned
@pytest.mark.parametrize("stream", [False, True], ids=["source", "state"])
@pytest.mark.parametrize("way", WAYS)
def test_a_way_to_save_and_restore_keeps_the_position(tmp_path: Path, way: str, stream: bool) -> None:
    path = str(tmp_path / "model")
    for first in (0, STEPS):
        with tf.Graph().as_default(), tf.Session() as session:
            read = Counting()
            batch = staging.staged(read if stream else source(), name="train")
            weights()
            session.run(tf.global_variables_initializer())
            if first:
                WAYS[way].restore(session, path)
            assert not session.run(tf.report_uninitialized_variables()).size
            assert begun(session, batch, STEPS) == list(range(first, first + STEPS))
            assert not stream or read.read[0] == first, "the stream reads nothing again"
            WAYS[way].save(session, path)


def test_the_checkpoint_holds_what_its_variables_hold(tmp_path: Path) -> None:
    """A program without `staged()` that has such variables writes a checkpoint that resumes, and restores ours."""
    paths = [str(tmp_path / name) for name in ("staged", "plain")]
    with tf.Graph().as_default(), tf.Session() as session:
        batch = staging.staged(source(), name="train")
        saver = tf.train.Saver()
        session.run(tf.global_variables_initializer())
        begun(session, batch, STEPS)
        saver.save(session, paths[0])
    with tf.Graph().as_default(), tf.Session() as session:
        with tf.variable_scope("train"):
            position = tf.get_variable("position", initializer=np.zeros(1, np.int64))
            tf.get_variable("fingerprint", initializer="", dtype=tf.string)
        saver = tf.train.Saver()
        saver.restore(session, paths[0])
        assert session.run(position).tolist() == [STEPS]
        saver.save(session, paths[1])
    assert tf.train.list_variables(paths[0]) == tf.train.list_variables(paths[1])
    with tf.Graph().as_default(), tf.Session() as session:
        batch = staging.staged(source(), name="train")
        tf.train.Saver().restore(session, paths[1])
        assert begun(session, batch, 1) == [STEPS]


def test_an_initializer_sets_back_a_position_that_a_server_has_kept() -> None:
    """A variable on a server outlives its session: it is as new as the model beside it."""
    target = tf.train.Server.create_local_server().target
    for initializes, first in ((True, 0), (True, 0), (False, STEPS)):
        with tf.Graph().as_default(), tf.Session(target) as session:
            batch = staging.staged(source(), name="kept")
            weights()
            missing = tf.report_uninitialized_variables()
            if initializes:
                session.run(tf.global_variables_initializer())
            assert not session.run(missing).size
            assert begun(session, batch, STEPS) == list(range(first, first + STEPS))


def test_a_position_without_a_value_is_reported(graph: Any) -> None:
    staging.staged(source(), name="train")
    weights()
    missing = tf.report_uninitialized_variables()
    with tf.Session() as session:
        assert session.run(missing).tolist() == [b"train/position", b"train/fingerprint", b"weights"]
        session.run(tf.variables_initializer(tf.global_variables("train/")))
        assert session.run(missing).tolist() == [b"weights"]


def test_a_tensor_of_what_programs_compute_with_is_not_assigned(graph: Any) -> None:
    """A restore by placeholders that are made after each variable: an error by name, and no lost position."""
    staging.staged(source(), name="train")
    for variable, wanted in zip(tf.global_variables(), ("int64", "string"), strict=True):
        match = rf"'{variable.op.name}'.assign\(\) got a tensor of float32, expected {wanted}\. .*variable\.load\(array"
        with pytest.raises(SpecError, match=match):
            tf.assign(variable, tf.placeholder(variable.dtype, variable.shape))


# Scopes that make other variables leave ours alone: the positions and the meters.


def creator(make: Callable[..., Any]) -> AbstractContextManager[Any]:
    return tf.variable_creator_scope(make)


class Wrapped:
    """A variable in something else that is none for TensorFlow."""

    def __init__(self, variable: Any) -> None:
        self.variable = variable


SCOPES: dict[str, Callable[[], AbstractContextManager[Any]]] = {
    "a reference variable": lambda: creator(lambda following, **given: following(**{**given, "use_resource": False})),
    "another class": lambda: creator(lambda following, **given: Wrapped(following(**given))),
    "none": lambda: creator(lambda following, **given: None),
    "another dtype": lambda: creator(lambda following, **given: following(**{**given, "dtype": tf.float32})),
    "MirroredStrategy of one": lambda: tf.distribute.MirroredStrategy(["/cpu:0"]).scope(),
    "MirroredStrategy of two": lambda: tf.distribute.MirroredStrategy(["/cpu:0", "/cpu:1"]).scope(),
    "OneDeviceStrategy": lambda: tf.distribute.OneDeviceStrategy("/cpu:0").scope(),
    "CentralStorageStrategy": lambda: tf.distribute.experimental.CentralStorageStrategy(["/cpu:0"]).scope(),
}


@pytest.mark.parametrize("scope", SCOPES)
def test_staged_works_and_resumes_within_a_scope_of_other_variables(tmp_path: Path, scope: str) -> None:
    def part(steps: int) -> list[list[int]]:
        with tf.Graph().as_default():
            with SCOPES[scope]():
                batch = staging.staged(ArraySource(np.arange(8), batch_size=2, epochs=1))
            step = tf.train.get_or_create_global_step().assign_add(1)
            config = tf.ConfigProto(device_count={"CPU": 2})
            with staging.StagingSession(checkpoint_dir=tmp_path, config=config) as sess:
                return [sess.run([batch, step])[0].tolist() for _ in range(steps)]

    assert part(1) + part(3) == [[0, 1], [2, 3], [4, 5], [6, 7]]
