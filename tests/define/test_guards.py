"""Building ops where it would hang or leak is rejected by name and line, for everything that builds an area."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
import pytest
import tensorflow as tf2
import tensorflow.compat.v1 as tf

import staging_tf1 as staging
from staging_tf1.errors import BuildError, StagingWarning
from staging_tf1.legacy.contrib import staging as tf_contrib_staging
from staging_tf1.sources import ArraySource

pytestmark = pytest.mark.usefixtures("quick_graphs")

HERE = r"test_guards\.py:\d+"


def source() -> ArraySource:
    return ArraySource(np.arange(4), batch_size=2, epochs=1)


# What is built, and what the message says to use in its place.
BUILDERS: dict[str, tuple[Callable[[], Any], str]] = {
    "StagingArea": (lambda: staging.StagingArea([tf.int32]), "Build it once"),
    "MapStagingArea": (lambda: staging.MapStagingArea([tf.int32]), "Build it once"),
    "staged()": (lambda: staging.staged(source()), "and use only the tensors that it returns"),
    "CustomRunner": (
        lambda: staging.CustomRunner(source()).get_inputs(),
        r"and use only the tensors of its get_inputs\(\)",
    ),
}


@pytest.fixture(params=BUILDERS)
def what(request: pytest.FixtureRequest, graph: Any) -> str:
    """The name of a builder, in a new graph."""
    return str(request.param)


def refused(what: str, message: str) -> Any:
    return pytest.raises(BuildError, match=rf"^{what.replace('()', '..')} {message}")


@contextmanager
def control_flow(v2: bool) -> Iterator[None]:
    was = tf.control_flow_v2_enabled()
    (tf.enable_control_flow_v2 if v2 else tf.disable_control_flow_v2)()
    yield
    (tf.enable_control_flow_v2 if was else tf.disable_control_flow_v2)()


# Each calls `build` where it must not be called.


def in_a_loop(build: Callable[[], Any]) -> None:
    tf.while_loop(lambda i: i < 3, lambda i: (build(), i + 1)[1], [tf.constant(0)])


def in_a_branch(build: Callable[[], Any]) -> None:
    tf.cond(tf.constant(True), lambda: (build(), tf.constant(1))[1], lambda: tf.constant(0))


def in_a_branch_of_a_loop(build: Callable[[], Any]) -> None:
    def body(i: Any) -> Any:
        return tf.cond(i < 1, lambda: (build(), i + 1)[1], lambda: i + 2)

    tf.while_loop(lambda i: i < 3, body, [tf.constant(0)])


def in_a_function(build: Callable[[], Any]) -> None:
    @tf2.function(autograph=False)
    def train_step() -> Any:
        build()
        return tf.constant(0)

    train_step()


def in_a_map(build: Callable[[], Any]) -> None:
    tf.data.Dataset.range(3).map(lambda x: (build(), x)[1])


def in_a_flat_map(build: Callable[[], Any]) -> None:
    tf.data.Dataset.range(3).flat_map(lambda x: (build(), tf.data.Dataset.range(2))[1])


def after_finalize(build: Callable[[], Any]) -> None:
    tf.get_default_graph().finalize()
    build()


PLACES: dict[Callable[[Callable[[], Any]], None], str] = {
    in_a_loop: r"inside (the body of )?tf\.while_loop\. ",
    in_a_branch: r"inside a branch of tf\.cond\. ",
    in_a_branch_of_a_loop: r"inside a branch of tf\.cond\. ",
    in_a_function: r"inside the tf\.function 'train_step'\. ",
    in_a_map: r"inside a Dataset\.map function\. ",
    in_a_flat_map: r"inside a Dataset\.flat_map function\. ",
    after_finalize: r"after the graph was finalized \(by a MonitoredSession, .*",
}


@pytest.mark.parametrize("v2", [False, True])
@pytest.mark.parametrize("place", PLACES, ids=lambda place: place.__name__)
@pytest.mark.thinned
def test_building_in_the_wrong_place(what: str, place: Any, v2: bool) -> None:
    build, cure = BUILDERS[what]
    with control_flow(v2), refused(what, rf"at {HERE} is built {PLACES[place]}.*{cure}"):
        place(build)
    assert tf.get_default_graph().finalized or build() is not None, "the refused one was not built"


def test_the_users_own_line_is_named(graph: Any) -> None:
    def parse(x: Any) -> Any:
        staging.StagingArea([tf.int32])
        return x

    # AutoGraph runs a copy of `parse` from another file, which the message must not name.
    line = parse.__code__.co_firstlineno + 1
    with pytest.raises(
        BuildError, match=rf"StagingArea at test_guards\.py:{line} is built inside a Dataset\.map funct"
    ):
        tf.data.Dataset.range(3).map(parse)


@pytest.mark.parametrize("what", BUILDERS)
def test_building_eagerly(what: str) -> None:
    message = rf"at {HERE} is called in eager mode, but an area belongs to a graph\. Call tf\.disable_v2_behavior"
    with tf2.init_scope(), refused(what, message):
        BUILDERS[what][0]()


def test_building_in_another_thread(what: str) -> None:
    raised: list[str] = []
    graph = tf.get_default_graph()

    def work() -> None:
        try:
            BUILDERS[what][0]()
        except BuildError as error:
            raised.append(str(error))
        with graph.as_default():
            BUILDERS[what][0]()
            raised.append("built")

    thread = threading.Thread(target=work, name="worker")
    thread.start()
    thread.join()
    assert "built in thread 'worker', which does not share your program's default graph" in raised[0]
    assert "within `with graph.as_default():` here" in raised[0] and raised[1:] == ["built"]


# Training loops.


def ran(sess: Any) -> None:
    sess.run(tf.constant(1))


def made_a_callable(sess: Any) -> None:
    sess.make_callable(tf.constant(1))()


@pytest.mark.parametrize("run", [ran, made_a_callable])
def test_building_again_in_a_training_loop(what: str, run: Callable[[Any], None]) -> None:
    sess = tf.Session()
    message = (
        rf"is built again at {HERE}: that line built one in this graph before, and the graph has been run since\. "
    )
    with refused(what, rf"{message}.*Build it once, before the training loop"):
        for _ in range(2):
            BUILDERS[what][0]()
            run(sess)
    sess.close()


def test_building_again_while_a_session_is_active(what: str) -> None:
    with tf.Session(), refused(what, ".*a session of this graph is active, so this looks like a"):
        for _ in range(2):
            BUILDERS[what][0]()


def test_building_in_bulk_before_training_and_elsewhere_is_fine(what: str) -> None:
    build, _ = BUILDERS[what]
    with tf.Session(graph=tf.Graph()).as_default():  # of another graph
        for tower in range(4):
            with tf.device(f"/cpu:{tower}"):
                build()
    for _ in range(2):
        with tf.Graph().as_default(), tf.Session() as sess:
            build()
            sess.run(tf.constant(1))
            staging.StagingArea([tf.int32])  # at another line


def test_a_construction_that_failed_does_not_count(graph: Any) -> None:
    for _ in range(2):
        with pytest.raises(ValueError, match="capacity"):
            staging.StagingArea([tf.int32], capacity=-1)
        with tf.Session() as sess:
            sess.run(tf.constant(1))


@pytest.mark.parametrize("kind", ["StagingArea", "MapStagingArea"])
def test_the_names_of_tf_contrib_warn_of_an_area_for_each_setting(graph: Any, kind: str) -> None:
    # As a benchmark of TensorFlow 1 does; 1.15.5 runs it.
    def measure(size: int) -> Any:
        area = getattr(tf_contrib_staging, kind)([tf.int32], [[size]], capacity=1)
        values = [tf.fill([size], size)]
        put, got = (area.put(values), area.get()) if kind == "StagingArea" else (area.put(1, values), area.get()[1])
        with tf.Session() as sess:
            sess.run(put)
            return sess.run(got)[0].tolist()

    assert measure(1) == [1]
    with pytest.warns(StagingWarning, match=rf"^{kind} is built again at {HERE}:.*the graph has been run since"):
        assert measure(2) == [2, 2]
    assert isinstance(getattr(tf_contrib_staging, kind)([tf.int32]), getattr(staging, kind))


def test_a_staged_pipeline_survives_export_and_import(graph: Any, tmp_path: Any) -> None:
    x = staging.staged(source(), name="train")
    tf.add_to_collection("x", x)
    meta = tf.train.export_meta_graph(str(tmp_path / "graph.meta"))
    assert [runner for runner in meta.collection_def if "staging" in runner] == []
    with tf.Graph().as_default() as other:
        tf.train.import_meta_graph(meta)
        (imported,) = tf.get_collection("x")
        with tf.Session(graph=other) as sess:  # when fed, the imported tensor takes nothing from an area
            assert sess.run(imported * 2, {imported: np.array([1, 2])}).tolist() == [2, 4]
    with staging.StagingSession() as sess:
        assert sess.run(x).tolist() == [0, 1]
