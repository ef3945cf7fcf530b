"""Datasets, iterators, tensors and variables that were made eagerly or in another graph, given to what takes data."""

from __future__ import annotations

from collections.abc import Callable
from itertools import product
from pathlib import Path
from typing import Any

import pytest
import tensorflow as tf2
import tensorflow.compat.v1 as tf

import staging_tf1 as staging
from staging_tf1 import sources
from staging_tf1.errors import SpecError


def of_another_graph(make: Callable[[], Any]) -> Callable[[], Any]:
    def made() -> Any:
        with tf.Graph().as_default():
            return make()

    return made


def dataset() -> Any:
    return tf2.data.Dataset.range(12).batch(4)


def one_shot() -> Any:
    return tf.data.make_one_shot_iterator(dataset())


MADE: dict[str, Callable[[], Any]] = {
    "eager dataset": dataset,
    "eager iterator": lambda: iter(dataset()),
    "eager tensor": lambda: tf.constant([[1, 2]]),
    "eager variable": lambda: tf2.Variable([[1, 2]]),
    "dataset": of_another_graph(dataset),
    "dataset of version 1": of_another_graph(lambda: tf.data.Dataset.range(12).batch(4)),
    "iterator": of_another_graph(one_shot),
    "element": of_another_graph(lambda: one_shot().get_next()),
    "tensor": of_another_graph(lambda: tf.constant([[1, 2]])),
    "variable": of_another_graph(lambda: tf.get_variable("v", [1, 2])),
}
TAKES: dict[str, Callable[[Any], Any]] = {
    "staged": staging.staged,
    "towers": lambda data: staging.staged(data, devices=["/cpu:0"] * 2),
    "lockstep": lambda data: staging.staged(data, lockstep=True),
    "map_fn": lambda data: staging.staged(data, map_fn=lambda batch: batch),
    "CustomRunner": lambda data: staging.CustomRunner(data, queue="fifo"),
    "CustomRunner, function": lambda data: staging.CustomRunner(lambda: data, queue="fifo"),
    "GeneratorSource": lambda data: staging.staged(sources.GeneratorSource(data)),
}
# SpecError is a ValueError.
ERRORS = (ValueError, TypeError)


@pytest.mark.parametrize(("made", "takes"), [*product(MADE, TAKES)])
def test_it_is_refused_before_any_op_is_made(made: str, takes: str) -> None:
    data = MADE[made]()
    with tf.Graph().as_default() as graph:
        with pytest.raises(ERRORS) as caught:
            TAKES[takes](data)
        assert not graph.get_operations()
    # An error of the package, not one of TensorFlow.
    assert "staging_tf1" in str(caught.traceback[-1].path)


@pytest.mark.parametrize("made", ["eager dataset", "dataset", "dataset of version 1"])
def test_a_cache_stores_the_records_of_a_dataset(tmp_path: Path, made: str) -> None:
    data = MADE[made]()
    with tf.Graph().as_default() as graph:
        source = sources.cached(data, tmp_path / "cache", batched=True, batch_size=2, epochs=1)
        assert not graph.get_operations()
        batch = staging.staged(source)
        with staging.StagingSession() as sess:
            assert sess.run(batch).tolist() == [0, 1]


@pytest.mark.parametrize(
    ("made", "problem"),
    [("eager dataset", "was made eagerly"), ("dataset", "belongs to a different graph than the default one")],
)
def test_the_message_names_the_cure(made: str, problem: str) -> None:
    data = MADE[made]()
    with tf.Graph().as_default():
        with pytest.raises(SpecError) as caught:
            staging.staged(data, name="train")
        assert str(caught.value) == (
            f"staged(name='train') got a tf.data.Dataset that {problem}. Build it within the same `with "
            f"graph.as_default():`, or store its records: staging_tf1.sources.cached(dataset, path, batch_size=...)."
        )
        with pytest.raises(
            SpecError, match="whose elements have no values while a graph is built. Pass tensors, or a "
        ):
            staging.CustomRunner(data, queue="fifo")


def test_a_dataset_of_this_graph_is_staged() -> None:
    with tf.Graph().as_default():
        batch = staging.staged(dataset())
        with staging.StagingSession() as sess:
            assert sess.run(batch).tolist() == [0, 1, 2, 3]
