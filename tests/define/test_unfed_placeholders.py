"""Batches that depend on a placeholder, in every way: the error names pipeline, placeholder and cure."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest
import tensorflow.compat.v1 as tf

import staging_tf1 as staging
from staging_tf1.errors import BuildError


def fed(dtype: Any = tf.int64, shape: Any = ()) -> Any:
    return tf.placeholder(dtype, shape, name="fed")


def numbers() -> Any:
    return tf.data.Dataset.range(4)


def by_handle(dataset: Any) -> Any:
    return tf.data.Iterator.from_string_handle(
        fed(tf.string), tf.data.get_output_types(dataset), tf.data.get_output_shapes(dataset)
    ).get_next()


def behind_control() -> Any:
    with tf.control_dependencies([fed() + 1]):
        return tf.identity(1)


def one_shot() -> Any:
    return tf.data.make_one_shot_iterator(numbers()).get_next()


def in_branch() -> Any:
    value = fed()
    return tf.cond(tf.random.uniform([]) < 2, lambda: value + 1, lambda: value)


def made_in_branch() -> Any:
    return tf.cond(tf.random.uniform([]) < 2, lambda: fed() + 1, lambda: tf.constant(2, tf.int64))


def in_loop() -> Any:
    limit = fed()
    return tf.while_loop(lambda i: i < limit, lambda i: i + 1, [tf.constant(0, tf.int64)])


def in_map() -> Any:
    scale = fed()
    return numbers().map(lambda x: x + scale)


HANDLE = "It is the handle of an iterator. Pass the dataset itself to staged()"
DATASET = r"Make the iterator yourself: .*staged\(iterator.get_next\(\)\), and feed its initializer"
TENSOR = r"Apply the placeholder to the staged tensors instead, or replace it by a variable or a tf.placeholder_with"

# What is staged, and the cure.
CASES: dict[str, tuple[Callable[[], Any], str]] = {
    "itself": (fed, TENSOR),
    "one component": (lambda: {"a": tf.constant(1), "b": fed() + 1}, TENSOR),
    "a transform": (lambda: tf.random.uniform([], 0, 9, tf.int64) * fed(), TENSOR),
    "after an iterator": (lambda: one_shot() + fed(), TENSOR),
    "a sparse tensor": (lambda: tf.sparse_placeholder(tf.float32, [2, 2], name="fed"), TENSOR),
    "a control dependency": (behind_control, TENSOR),
    "a condition": (lambda: tf.cond(fed(tf.bool), lambda: 1, lambda: 2), TENSOR),
    "a branch": (in_branch, TENSOR),
    "made in a branch": (made_in_branch, TENSOR),
    "a case": (lambda: tf.switch_case(fed(tf.int32), [lambda: 1, lambda: 2]), TENSOR),
    "a loop": (in_loop, TENSOR),
    "a py_func": (lambda: tf.py_func(lambda x: x, [fed()], tf.int64), TENSOR),
    "a handle": (lambda: by_handle(numbers()), HANDLE),
    "a handle, transformed": (lambda: tf.cast(by_handle(numbers()), tf.float32) / 2, HANDLE),
    "a dataset of it": (lambda: tf.data.Dataset.from_tensors(fed()).repeat(), DATASET),
    "a dataset's length": (lambda: tf.data.Dataset.range(fed()), DATASET),
    "a dataset's function": (in_map, DATASET),
    "a dataset's files": (lambda: tf.data.TextLineDataset(fed(tf.string)), DATASET),
}
OPTIONS: dict[str, dict[str, Any]] = {
    "a thread": {},
    "threads": {"num_threads": 3},
    "lockstep": {"lockstep": True},
    "towers": {"devices": ["/cpu:0"] * 2},
    "skipping": {"ignored_exception_types": (tf.errors.InvalidArgumentError,)},
    "skipping, in lockstep": {"ignored_exception_types": (tf.errors.InvalidArgumentError,), "lockstep": True},
}


@pytest.fixture(params=["ops", "functions"])
def control_flow(request: pytest.FixtureRequest) -> Iterator[str]:
    """What tf.cond and its like make: ops of the graph, or functions, as after tf.enable_control_flow_v2()."""
    before = tf.control_flow_v2_enabled()
    (tf.enable_control_flow_v2 if request.param == "functions" else tf.disable_control_flow_v2)()
    yield request.param
    (tf.enable_control_flow_v2 if before else tf.disable_control_flow_v2)()


@pytest.mark.usefixtures("control_flow", "quick_graphs")
@pytest.mark.parametrize("options", OPTIONS)
@pytest.mark.parametrize("case", CASES)
@pytest.mark.thinned
def test_an_unfed_placeholder_is_named(graph: Any, case: str, options: str) -> None:
    make, cure = CASES[case]
    staged = staging.staged(make(), name="train", **OPTIONS[options])
    with pytest.raises(BuildError, match=cure) as raised, staging.StagingSession() as session:
        session.run(staged)
    text = str(raised.value)
    assert text.startswith("'train' (made at test_unfed_placeholders.py:")
    placeholder = re.search(r"its batches depend on placeholder '(.+?)'(.*), which nothing feeds", text)
    assert placeholder is not None and "fed" in placeholder[1]
    # One in a function of the graph is no op of the graph.
    if case != "made in a branch":
        assert placeholder[2].startswith(" (made at test_unfed_placeholders.py:")
    assert isinstance(raised.value.__cause__, tf.errors.InvalidArgumentError)


def test_the_pipeline_is_named_that_depends_on_it(graph: Any) -> None:
    for name, values in {
        "good": tf.data.Dataset.range(4),
        "bad": tf.data.Dataset.range(fed()),
        "last": tf.constant(1),
    }.items():
        staging.staged(values, name=name)
    with pytest.raises(BuildError, match="^'bad' .* depend on placeholder 'fed'"), staging.StagingSession():
        pass


def test_a_plain_session_names_it_too(graph: Any) -> None:
    batch = staging.staged(by_handle(numbers()), name="train")
    coord = tf.train.Coordinator()
    with tf.Session() as session:
        session.run(tf.global_variables_initializer())
        threads = staging.start(session, coord)
        for raises in (lambda: session.run(batch), lambda: coord.join(threads)):
            with pytest.raises(BuildError, match=f"^'train' .* depend on placeholder 'fed' .*{HANDLE}"):
                raises()


def test_what_the_cures_say_works(graph: Any) -> None:
    count = fed()
    iterator = tf.data.make_initializable_iterator(tf.data.Dataset.range(count))
    own = staging.staged(iterator.get_next(), name="own")
    default = staging.staged(tf.placeholder_with_default(np.int64(3), []) + 1, name="default")
    scale = tf.placeholder(tf.int64, [])
    behind = staging.staged(numbers(), name="behind") * scale
    scaffold = tf.train.Scaffold(init_fn=lambda scaffold, session: session.run(iterator.initializer, {count: 2}))
    with staging.StagingSession(scaffold=scaffold) as session:
        assert session.run([own, default, behind], {scale: 5}) == [0, 4, 0]
        assert session.run([own, default, behind], {scale: 5}) == [1, 4, 5]
