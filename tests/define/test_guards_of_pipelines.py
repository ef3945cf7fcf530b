"""The guards of `staged()` and `CustomRunner`: every place where building is rejected, by name and line."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import tensorflow as tf2
import tensorflow.compat.v1 as tf

import staging_tf1 as staging
from staging_tf1.errors import BuildError
from staging_tf1.sources import ArraySource

pytestmark = pytest.mark.usefixtures("quick_graphs")

BUILDERS: dict[str, Callable[[], Any]] = {
    "staged()": lambda: staging.staged(ArraySource(np.arange(4), batch_size=2)),
    "CustomRunner": lambda: staging.CustomRunner(ArraySource(np.arange(4), batch_size=2)).get_inputs(),
}


def in_a_loop(build: Callable[[], Any]) -> None:
    def body(i: Any) -> Any:
        build()
        return i + 1

    tf.while_loop(lambda i: i < 3, body, [tf.constant(0)])


def in_a_branch(build: Callable[[], Any]) -> None:
    def branch() -> Any:
        build()
        return tf.constant(1)

    tf.cond(tf.constant(True), branch, lambda: tf.constant(0))


def in_a_function(build: Callable[[], Any]) -> None:
    @tf2.function(autograph=False)
    def step() -> Any:
        build()
        return tf.constant(0)

    step()


def in_a_map(build: Callable[[], Any]) -> None:
    def parse(x: Any) -> Any:
        build()
        return x

    tf.data.Dataset.range(3).map(parse)


def finalized(build: Callable[[], Any]) -> None:
    tf.get_default_graph().finalize()
    build()


PLACES = {
    "tf.while_loop": in_a_loop,
    "a branch of tf.cond": in_a_branch,
    "the tf.function": in_a_function,
    "a Dataset.map function": in_a_map,
    "the graph was finalized": finalized,
}


USED = {"staged()": "the tensors that it returns", "CustomRunner": "the tensors of its get_inputs()"}


@pytest.mark.parametrize("place", PLACES)
@pytest.mark.parametrize("what", BUILDERS)
def test_building_in_the_wrong_place(graph: Any, what: str, place: str) -> None:
    with pytest.raises(BuildError) as caught:
        PLACES[place](BUILDERS[what])
    text = str(caught.value)
    assert text.startswith(f"{what} at test_guards_of_pipelines.py:") and place in text and "Build it once" in text
    assert f"and use only {USED[what]}" in text


@pytest.mark.parametrize("what", BUILDERS)
def test_building_again_in_a_training_loop(graph: Any, what: str) -> None:
    build = BUILDERS[what]
    constant = tf.constant(1)
    with tf.Session() as sess, pytest.raises(BuildError) as caught:
        for _ in range(3):
            build()
            sess.run(constant)
    assert str(caught.value).startswith(f"{what} is built again at test_guards_of_pipelines.py:")
    assert "that line built one in this graph before, and the graph has been run" in str(caught.value)


@pytest.mark.parametrize("what", BUILDERS)
def test_building_in_bulk_before_training_is_fine(graph: Any, what: str) -> None:
    for _ in range(4):
        BUILDERS[what]()


@pytest.mark.parametrize("what", BUILDERS)
def test_building_eagerly(what: str) -> None:
    with tf2.init_scope(), pytest.raises(BuildError, match="is called in eager mode, but an area belongs to a graph"):
        BUILDERS[what]()


@pytest.mark.parametrize("what", BUILDERS)
def test_building_in_another_thread(graph: Any, what: str) -> None:
    raised: list[BaseException] = []

    def work() -> None:
        try:
            BUILDERS[what]()
        except BuildError as error:
            raised.append(error)

    thread = threading.Thread(target=work, name="worker")
    thread.start()
    thread.join()
    assert "is built in thread 'worker'" in str(raised[0])


def test_a_staged_pipeline_survives_export_and_import(graph: Any, tmp_path: Any) -> None:
    x = staging.staged(ArraySource(np.arange(4), batch_size=2, epochs=1), name="train")
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
