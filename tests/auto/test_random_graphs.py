"""`auto_stage()` on random graphs: every fetch of every step is the same bits, and the step computes nothing twice."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import tensorflow.compat.v1 as tf
from auto_graphs import KINDS, new_graph
from hypothesis import given, settings
from hypothesis import strategies as st
from slow import examples

import staging_tf1 as staging
from staging_tf1.auto.rewire import check_disjoint
from staging_tf1.errors import NothingToStageError
from staging_tf1.graph.dependencies import ancestors

STEPS = 5


@pytest.fixture(autouse=True)
def v1_control_flow() -> None:
    tf.disable_control_flow_v2()


def build(seed: int) -> tuple[Any, list[Any], list[Any]]:
    """Add a random graph. Return its train op, what to fetch, and the initializers of its iterators.

    It has one or two iterators and 15 values. Some depend on a variable, so that they belong to the step. Some run
    after another by a control edge alone.
    """
    draw = random.Random(seed)
    iterators = [
        tf.data.make_initializable_iterator(tf.data.Dataset.range(100 * i, 100 * i + 20).batch(4))
        for i in range(draw.randint(1, 2))
    ]
    values = [tf.cast(each.get_next(), tf.float32) / 100.0 for each in iterators]
    values = [tf.ensure_shape(each, [4]) for each in values]
    # Read once: another read may come before or after the update of the same step.
    w = tf.get_variable("w", initializer=0.5, use_resource=True).read_value()

    def one() -> Any:
        return draw.choice(values)

    makers: list[Callable[[], Any]] = [
        lambda: one() + one(),
        lambda: tf.tanh(one()) * one(),
        lambda: one() + tf.random_uniform([4], seed=draw.randint(1, 99)),
        lambda: tf.reverse(one(), [0]),
        lambda: one() * w,
        lambda: tf.nn.dropout(one() * w, rate=0.5, seed=3),
        lambda: tf.while_loop(lambda x: tf.reduce_sum(x) < 9.0, lambda x: x + tf.abs(x) + 1.0, [one()]),
        lambda: tf.cond(tf.reduce_sum(one()) > 1.0, one, lambda: -one()),
        lambda: tf.map_fn(tf.sin, one(), parallel_iterations=1),
        lambda: tf.cast(tf.strings.to_number(tf.as_string(one())), tf.float32),
    ]
    for _ in range(15):
        with tf.control_dependencies([one()] if draw.random() < 0.2 else []):
            values.append(tf.ensure_shape(draw.choice(makers)(), [4]))
    loss = tf.reduce_sum(tf.square(w * tf.add_n(draw.sample(values, 3)) + values[0]))
    train = tf.train.GradientDescentOptimizer(1e-3).minimize(loss, var_list=tf.trainable_variables())
    # Every input, so that each step takes a batch of all.
    fetches = [loss, *values[: len(iterators)], *draw.sample(values, 2)]
    return train, fetches, [each.initializer for each in iterators]


def losses(seed: int, *, auto: bool) -> list[Any]:
    """What the steps give. Staged, the tensors that are fetched are kept."""
    with new_graph().as_default():
        train, fetches, inits = build(seed)
        if auto:
            try:
                report = staging.auto_stage(keep=fetches)
            except NothingToStageError:
                return losses(seed, auto=False)
            assert {op.name for op in ancestors([train])}.isdisjoint(report.moved)
        # Grappler rewrites sums, and the two parts of a graph otherwise than the whole: the last bit would differ.
        config = tf.ConfigProto()
        config.graph_options.rewrite_options.disable_meta_optimizer = True
        with tf.Session(config=config) as sess:
            sess.run([tf.global_variables_initializer(), *inits])
            return [sess.run([*fetches, train])[:-1] for _ in range(STEPS)]


@settings(max_examples=examples(5))
@given(st.integers(0, 2**32))
def test_a_random_graph_gives_the_same_values(seed: int) -> None:
    # Not the same bits: the last one also differs from one run to the next, likely with the alignment of the memory.
    plain, staged = losses(seed, auto=False), losses(seed, auto=True)
    for step, same in zip(plain, staged, strict=True):
        for one, other in zip(tf.nest.flatten(step), tf.nest.flatten(same), strict=True):
            np.testing.assert_allclose(one, other, rtol=1e-5)


@pytest.mark.parametrize("kind", KINDS)
def test_the_step_computes_nothing_that_runs_ahead(kind: str) -> None:
    with new_graph().as_default():
        model = KINDS[kind]()
        report = staging.auto_stage()
        assert report.moved
        assert {op.name for op in ancestors([model.train])}.isdisjoint(report.moved)


def test_a_step_that_computed_it_twice_would_be_refused() -> None:
    with tf.Graph().as_default():
        x = tf.add(1, 2, name="x")
        with pytest.raises(AssertionError, match=r"\['x'\] run ahead, and the step still depends on them"):
            check_disjoint([x + 1], {"x"})
