"""Building ops where it would hang or leak is rejected by name and line; building many ops beforehand is not."""

from __future__ import annotations

import textwrap
import threading
import types
from collections.abc import Callable
from typing import Any

import pytest
import tensorflow as tf2
import tensorflow.compat.v1 as tf
from forked import ForkServer

import staging_tf1 as staging
from staging_tf1.errors import BuildError, StagingWarning
from staging_tf1.graph.area_base import areas_of
from staging_tf1.graph.areas import StagingArea
from staging_tf1.graph.guards import building, check_buildable
from staging_tf1.graph.map_area import MapStagingArea
from staging_tf1.legacy.contrib import staging as tf_contrib_staging

HERE = r"test_guards\.py:\d+"


@pytest.fixture(autouse=True)
def graph() -> Any:
    with tf.Graph().as_default() as graph:
        yield graph


def make() -> StagingArea:
    return StagingArea([tf.int32])


def line_of(function: Callable[..., Any], offset: int = 1) -> int:
    return int(function.__code__.co_firstlineno) + offset


def with_control_flow(v2: bool, build: Callable[[], Any]) -> None:
    was = tf.control_flow_v2_enabled()
    (tf.enable_control_flow_v2 if v2 else tf.disable_control_flow_v2)()
    try:
        build()
    finally:
        (tf.enable_control_flow_v2 if was else tf.disable_control_flow_v2)()


# ---- places


@pytest.mark.parametrize("v2", [False, True])
def test_in_a_branch(v2: bool) -> None:
    def branch() -> Any:
        make()
        return tf.constant(1)

    with pytest.raises(
        BuildError, match=rf"^StagingArea at {HERE} is built inside a branch of tf\.cond\. Build it once"
    ):
        with_control_flow(v2, lambda: tf.cond(tf.constant(True), branch, lambda: tf.constant(2)))


@pytest.mark.parametrize("v2", [False, True])
def test_in_a_while_loop(v2: bool) -> None:
    def body(i: Any) -> Any:
        make()
        return i + 1

    with pytest.raises(BuildError, match=rf"^StagingArea at {HERE} is built inside (the body of )?tf\.while_loop\. "):
        with_control_flow(v2, lambda: tf.while_loop(lambda i: i < 3, body, [tf.constant(0)]))


@pytest.mark.parametrize("v2", [False, True])
def test_in_a_branch_within_a_loop(v2: bool) -> None:
    def body(i: Any) -> Any:
        return tf.cond(i < 1, lambda: (make(), i + 1)[1], lambda: i + 2)

    with pytest.raises(BuildError, match=r"is built inside a branch of tf\.cond"):
        with_control_flow(v2, lambda: tf.while_loop(lambda i: i < 3, body, [tf.constant(0)]))


def test_in_a_function() -> None:
    @tf2.function
    def train_step() -> Any:
        make()
        return tf.constant(1)

    with pytest.raises(BuildError, match=r"is built inside the tf\.function 'train_step'\. Build it once, before the"):
        train_step()


def test_in_a_dataset_function_the_users_own_line_is_named() -> None:
    def parse(x: Any) -> Any:
        StagingArea([tf.int32])
        return x

    # AutoGraph runs a copy of `parse` from another file, which the message must not name.
    wanted = rf"StagingArea at test_guards\.py:{line_of(parse)} is built inside a Dataset\.map function"
    with pytest.raises(BuildError, match=wanted):
        tf.data.Dataset.range(3).map(parse)
    with pytest.raises(BuildError, match=r"inside a Dataset\.flat_map function"):
        tf.data.Dataset.range(3).flat_map(lambda x: (make(), tf.data.Dataset.range(2))[1])


def test_eagerly_and_in_a_thread_of_a_graph_mode_program(fork_server: ForkServer) -> None:
    # The mode of a process is global.
    program = textwrap.dedent(
        """
        import threading
        import tensorflow.compat.v1 as tf
        import staging_tf1 as staging

        def build():
            try:
                staging.StagingArea([tf.int32])
            except staging.errors.BuildError as error:
                print(error)

        build()
        tf.disable_v2_behavior()
        thread = threading.Thread(target=build, name="builder")
        thread.start()
        thread.join()
        build()
        """
    )
    child = fork_server.run("-c", program)
    assert child.returncode == 0, child.stderr
    lines = child.stdout.splitlines()
    assert "is called in eager mode, but an area belongs to a graph. Call tf.disable_v2_behavior() first" in lines[0]
    assert "is built in thread 'builder', which does not share your program's default graph." in lines[1]
    assert len(lines) == 2


def test_after_finalize(graph: Any) -> None:
    graph.finalize()
    with pytest.raises(
        BuildError, match=r"built after the graph was finalized \(by a MonitoredSession, .*Build it once"
    ):
        make()


def test_in_a_thread_without_a_default_graph() -> None:
    caught: list[BaseException] = []
    made: list[StagingArea] = []
    main_graph = tf.get_default_graph()

    def bare() -> None:
        try:
            make()
        except BuildError as error:
            caught.append(error)

    def entered() -> None:
        with main_graph.as_default():
            made.append(make())

    for target in (bare, entered):
        thread = threading.Thread(target=target, name="builder")
        thread.start()
        thread.join(30)
    assert "built in thread 'builder', which does not share your program's default graph" in str(caught[0])
    assert "within `with graph.as_default():` here" in str(caught[0])
    assert made[0].graph is main_graph


def test_a_refused_area_adds_nothing(graph: Any) -> None:
    with pytest.raises(BuildError):
        tf.while_loop(lambda i: i < 3, lambda i: (make(), i + 1)[1], [tf.constant(0)])
    assert areas_of(graph) == []


# ---- training loops


def test_again_from_the_same_line_after_a_run() -> None:
    def loop() -> None:
        sess = tf.Session()
        for _ in range(2):
            StagingArea([tf.int32])
            sess.run(tf.constant(1))
        sess.close()

    wanted = (
        rf"^StagingArea is built again at test_guards\.py:{line_of(loop, 3)}: that line built one in this "
        r"graph before, and the graph has been run since\. .*Build it once, before the training loop"
    )
    with pytest.raises(BuildError, match=wanted):
        loop()


def test_again_from_the_same_line_while_a_session_is_active() -> None:
    with tf.Session():
        make()
        with pytest.raises(BuildError, match="a session of this graph is active, so this looks like a"):
            make()


def test_many_before_training_are_silent() -> None:
    areas = [StagingArea([tf.int32]) for _ in range(4)]
    areas += [make() for _ in range(4)]
    for tower in range(2):
        with tf.device(f"/cpu:{tower}"):
            areas.append(MapStagingArea([tf.int32]))
    assert len({area.name for area in areas}) == 10


def test_another_line_and_another_graph_may_build_after_a_run() -> None:
    for _ in range(2):
        with tf.Graph().as_default():
            make()
            StagingArea([tf.int32])
            with tf.Session() as sess:
                sess.run(tf.constant(1))
                StagingArea([tf.int32])


def test_a_session_of_another_graph_does_not_count() -> None:
    with tf.Session(graph=tf.Graph()).as_default():
        make()
        make()


def test_making_a_callable_counts_as_a_run(graph: Any) -> None:
    make()
    sess = tf.Session()
    sess.make_callable(tf.constant(1))()
    sess.close()
    with pytest.raises(BuildError, match="the graph has been run"):
        make()


def test_only_graphs_with_areas_are_watched() -> None:
    plain, used = tf.Graph(), tf.get_default_graph()
    make()
    assert plain._session_run_lock == types.MethodType(tf.Graph._session_run_lock, plain)
    assert used._session_run_lock != types.MethodType(tf.Graph._session_run_lock, used)


# ---- functions of the package that build areas


def test_what_is_built_inside_counts_as_one_at_the_users_line(graph: Any) -> None:
    def staged() -> list[StagingArea]:
        with building("staged()") as site:
            areas = [StagingArea([tf.int32]) for _ in range(2)]
            assert {area.made_at for area in areas} == {site}
            return areas

    with tf.Session() as sess:
        staged()
        sess.run(tf.constant(1))
        with pytest.raises(BuildError, match=r"^staged\(\) is built again"):
            staged()
    assert len(areas_of(graph)) == 2


def test_what_is_built_inside_is_still_kept_out_of_functions() -> None:
    def staged() -> None:
        with building("staged()"):
            tf.data.Dataset.range(3).map(lambda x: (make(), x)[1])

    with pytest.raises(BuildError, match=r"inside a Dataset\.map function"):
        staged()


def test_a_construction_that_failed_does_not_count() -> None:
    def fails() -> None:
        with pytest.raises(ValueError, match="capacity"):
            StagingArea([tf.int32], capacity=-1)

    fails()
    with tf.Session() as sess:
        sess.run(tf.constant(1))
    fails()
    assert check_buildable("CustomRunner").function == "test_a_construction_that_failed_does_not_count"


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
    with pytest.warns(
        StagingWarning, match=rf"^{kind} is built again at test_guards.py:.*the graph has been run since"
    ):
        assert measure(2) == [2, 2]
    assert isinstance(getattr(tf_contrib_staging, kind)([tf.int32]), getattr(staging, kind))
