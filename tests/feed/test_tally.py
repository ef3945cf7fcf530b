"""Which batches went to failed steps, from what the gets counted and which steps succeeded."""

from __future__ import annotations

from typing import Any

import hypothesis.strategies as st
import numpy as np
import pytest
import tensorflow.compat.v1 as tf
from hypothesis import given, settings
from slow import examples

import staging_tf1 as staging
from staging_tf1.feed.chain import Run, RunPlan
from staging_tf1.feed.pipeline import pipelines_of
from staging_tf1.feed.tally import Tally
from staging_tf1.graph.sink import Sink
from staging_tf1.sources import ArraySource

pytestmark = pytest.mark.usefixtures("quick_graphs")

TOWERS = 2
EVERY = frozenset(range(TOWERS))


class Steps:
    """Steps over areas that nothing feeds, each of which takes one batch from some of the towers."""

    def __init__(self, graph: Any, sess: Any) -> None:
        # In lockstep each put lets its element be taken.
        source = ArraySource(np.arange(100), batch_size=1)
        self._taken = staging.staged(source, devices=["/cpu:0"] * TOWERS, lockstep=True, name="x")
        (pipeline,) = pipelines_of(graph)
        self.sinks = pipeline.sinks
        self._sess = sess
        self.begin()

    def begin(self) -> None:
        self._sess.run(tf.global_variables_initializer())
        self._sess.run([sink.reset for sink in self.sinks])

    def take(self, towers: frozenset[int]) -> frozenset[Sink]:
        """Run a step; return the sinks that it takes from."""
        for tower in towers:
            sink = self.sinks[tower]
            self._sess.run(sink.put.op, {sink.put.placeholders[0]: [0]})
        self._sess.run([self._taken[tower] for tower in towers])
        return frozenset(self.sinks[tower] for tower in towers)


def begun(batches: Tally, sinks: frozenset[Sink]) -> Run:
    """A step that takes from `sinks`, under way."""
    run = Run(RunPlan("step", sinks, (), ()), [], None, lambda puts, feeds: None)
    batches.before(run)
    return run


def step_succeeded(batches: Tally, sinks: frozenset[Sink]) -> None:
    batches.after(begun(batches, sinks))


def step_failed(batches: Tally, sinks: frozenset[Sink]) -> None:
    batches.failed(begun(batches, sinks), RuntimeError())


def by_name(batches: Tally) -> dict[str, list[int]]:
    return {sink.name: numbers for sink, numbers in batches.numbers.items()}


SOME = st.frozensets(st.sampled_from(sorted(EVERY)))
# What a step needs, and what it had taken when it failed; None where it succeeded.
STEPS = st.lists(st.tuples(SOME, st.none() | SOME), max_size=12)


@settings(max_examples=examples(20))
@given(STEPS)
def test_what_no_step_that_succeeded_took_went_to_failed_ones(steps: list[tuple[Any, Any]]) -> None:
    with tf.Graph().as_default() as graph, tf.Session() as sess:
        played = Steps(graph, sess)
        batches = Tally(sess, played.sinks)
        taken = dict.fromkeys(EVERY, 0)
        failed: dict[int, list[int]] = {tower: [] for tower in EVERY}
        for needed, had in steps:
            had = had if had is None else had & needed
            for tower in needed if had is None else had:
                if had is not None:
                    failed[tower].append(taken[tower])
                taken[tower] += 1
            sinks = played.take(needed if had is None else had)
            if had is None:
                step_succeeded(batches, sinks)
            else:
                step_failed(batches, frozenset(played.sinks[tower] for tower in needed))
                batches.settle()
        assert batches.numbers == {played.sinks[tower]: numbers for tower, numbers in failed.items()}
        batches.settle()
        batches.settle()
        assert by_name(batches) == {f"x/{tower}": numbers for tower, numbers in failed.items()}


def test_a_step_that_fails_before_it_takes_costs_no_batch(graph: Any) -> None:
    with tf.Session() as sess:
        played = Steps(graph, sess)
        batches = Tally(sess, played.sinks)
        step_succeeded(batches, played.take(EVERY))
        for _ in range(3):
            step_failed(batches, frozenset(played.sinks))
            batches.settle()
        step_succeeded(batches, played.take(EVERY))
        batches.settle()
        assert by_name(batches) == {"x/0": [], "x/1": []}


def test_batches_of_several_failed_steps_may_be_found_at_once(graph: Any) -> None:
    with tf.Session() as sess:
        played = Steps(graph, sess)
        batches = Tally(sess, played.sinks)
        step_succeeded(batches, played.take(EVERY))
        under_way = [begun(batches, frozenset(played.sinks[1:])), begun(batches, frozenset(played.sinks))]
        played.take(frozenset([1]))
        played.take(EVERY)
        for run in under_way:
            batches.failed(run, RuntimeError())
        batches.settle()
        assert by_name(batches) == {"x/0": [1], "x/1": [1, 2]}


def test_each_session_has_failed_batches_of_its_own(graph: Any) -> None:
    with tf.Session() as sess:
        played = Steps(graph, sess)
        played.take(EVERY)
        played.begin()
        batches = Tally(sess, played.sinks)
        step_succeeded(batches, played.take(EVERY))
        step_failed(batches, frozenset(played.sinks))
        batches.settle()
        assert by_name(batches) == {"x/0": [], "x/1": []}


def test_without_areas_there_is_nothing_to_settle(graph: Any) -> None:
    tf.no_op()
    with tf.Session() as sess:
        batches = Tally(sess, ())
        step_succeeded(batches, frozenset())
        batches.settle()
        assert batches.numbers == {}


@pytest.mark.parametrize("lockstep", [False, True])
def test_what_a_put_takes_from_another_pipeline_did_not_fail(graph: Any, lockstep: bool) -> None:
    first = staging.staged(ArraySource(np.arange(100), batch_size=1), name="first")
    second = staging.staged(first * 2, lockstep=lockstep, name="second")
    fails = tf.placeholder_with_default(False, [])
    with tf.control_dependencies([second]):
        # The step fails after it has its batch.
        check = tf.debugging.Assert(tf.logical_not(fails), ["asked to"])
    with staging.StagingSession() as sess:
        for _ in range(3):
            sess.run([second, check])
        with pytest.raises(tf.errors.InvalidArgumentError):
            sess.run([second, check], {fails: True})
        found = {stats.name: stats.failed_batches for stats in sess.stats()}
    assert found == {"first": (), "second": (3,)}


def test_a_pipeline_that_has_not_started_hides_no_batch_of_another() -> None:
    with tf.Graph().as_default() as graph, tf.Session() as sess:
        played = Steps(graph, sess)
        staging.staged(ArraySource(np.arange(9), batch_size=1), lockstep=True, name="later")
        batches = Tally(sess, [sink for pipeline in pipelines_of(graph) for sink in pipeline.sinks])
        step_failed(batches, played.take(EVERY))
        batches.settle()
        assert {sink: numbers for sink, numbers in batches.numbers.items() if numbers} == {
            sink: [0] for sink in played.sinks
        }
