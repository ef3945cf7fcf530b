"""Which batches went to failed steps, from what the gets counted and which steps succeeded."""

from __future__ import annotations

import threading
from typing import Any

import hypothesis.strategies as st
import numpy as np
import pytest
import tensorflow.compat.v1 as tf
from hypothesis import given, settings
from slow import examples

import staging_tf1 as staging
from staging_tf1._tf import run_unwrapped
from staging_tf1.feed.accounts import Accounts
from staging_tf1.feed.chain import Run, RunPlan
from staging_tf1.feed.pipeline import pipelines_of
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


def begun(accounts: Accounts, sinks: frozenset[Sink]) -> Run:
    """A step that takes from `sinks`, under way."""
    run = Run(RunPlan("step", sinks, (), ()), [], None, lambda puts, feeds: None)
    accounts.before(run)
    return run


def step_succeeded(accounts: Accounts, sinks: frozenset[Sink]) -> None:
    accounts.after(begun(accounts, sinks))


def step_failed(accounts: Accounts, sinks: frozenset[Sink]) -> None:
    accounts.failed(begun(accounts, sinks), RuntimeError())


def by_name(accounts: Accounts) -> dict[str, list[int]]:
    return {sink.name: numbers for sink, numbers in accounts.numbers.items() if numbers}


SOME = st.frozensets(st.sampled_from(sorted(EVERY)))
# What a step needs, and what it had taken when it failed; None where it succeeded.
STEPS = st.lists(st.tuples(SOME, st.none() | SOME), max_size=12)


@settings(max_examples=examples(20))
@given(STEPS)
def test_what_no_step_that_succeeded_took_went_to_failed_ones(steps: list[tuple[Any, Any]]) -> None:
    with tf.Graph().as_default() as graph, tf.Session() as sess:
        played = Steps(graph, sess)
        accounts = Accounts(sess)
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
                step_succeeded(accounts, sinks)
            else:
                step_failed(accounts, frozenset(played.sinks[tower] for tower in needed))
                accounts.settle()
        expected = {f"x/{tower}": numbers for tower, numbers in failed.items() if numbers}
        assert by_name(accounts) == expected
        accounts.settle()
        accounts.settle()
        assert by_name(accounts) == expected


class Played:
    """A step of a script: begins, takes its batches, ends well or not; or fails before it takes."""

    def __init__(self, towers: frozenset[int]) -> None:
        self.towers = towers
        self.run: Any = None
        self.numbers: dict[int, int] = {}
        self.has_failed = False
        # Another one that takes from the same tower was under way, or had failed and was not settled.
        self.beside: set[int] = set()


# In turn, which of three threads goes on, what its next step takes from, and whether that step fails where it can.
TOWERS_OF_STEP = st.sampled_from([frozenset([0]), frozenset([1]), EVERY])
SCRIPTS = st.lists(st.tuples(st.integers(0, 2), TOWERS_OF_STEP, st.booleans()), max_size=30)


@settings(max_examples=examples(30))
@given(SCRIPTS)
def test_only_a_step_that_was_alone_has_its_batch_named(script: list[tuple[int, frozenset[int], bool]]) -> None:
    with tf.Graph().as_default() as graph, tf.Session() as sess:
        played = Steps(graph, sess)
        accounts = Accounts(sess)
        threads: dict[int, Played] = {}
        steps: list[Played] = []
        taken = dict.fromkeys(EVERY, 0)

        def end(thread: int, fails: bool) -> None:
            step = threads.pop(thread)
            step.has_failed = fails
            if fails:
                accounts.failed(step.run, RuntimeError())
                accounts.settle()
            else:
                accounts.after(step.run)

        for thread, towers, fails in script:
            step = threads.get(thread)
            if step is None:
                step = threads[thread] = Played(towers)
                step.run = begun(accounts, frozenset(played.sinks[tower] for tower in towers))
                for other in threads.values():
                    if other is not step:
                        step.beside |= towers & other.towers
                        other.beside |= towers & other.towers
                steps.append(step)
            elif step.numbers or fails:
                end(thread, fails)
            else:
                played.take(step.towers)
                for tower in step.towers:
                    step.numbers[tower], taken[tower] = taken[tower], taken[tower] + 1
        for thread in list(threads):
            end(thread, fails=True)
        accounts.settle()
        for tower, sink in enumerate(played.sinks):
            failed = [step for step in steps if step.has_failed and tower in step.numbers]
            assert accounts.count_failed(sink) == len(failed), "the number is right"
            assert {*accounts.numbers[sink]} <= {step.numbers[tower] for step in failed}, "none that did not fail"
            alone = [step.numbers[tower] for step in failed if tower not in step.beside]
            assert {*alone} <= {*accounts.numbers[sink]}, "and each one that was alone"


def test_two_threads_and_one_fails_so_no_batch_is_named(graph: Any) -> None:
    x = staging.staged(ArraySource(np.arange(6), batch_size=1, epochs=1), name="p")
    took, go_on = threading.Event(), threading.Event()

    def fails_late(value: Any) -> Any:
        took.set()
        go_on.wait(20)
        raise ValueError("late")

    bad = tf.py_func(fails_late, [x], tf.int64)
    errors: list[BaseException] = []
    with staging.StagingSession() as sess:

        def run() -> None:
            with pytest.raises(tf.errors.OpError) as caught:
                sess.run(bad)
            errors.append(caught.value)

        thread = threading.Thread(target=run)
        thread.start()
        assert took.wait(20)
        assert sess.run(x).tolist() == [1]
        go_on.set()
        thread.join(20)
        (stats,) = sess.stats()
        assert (stats.failed, stats.failed_batches, stats.failed_numbers) == (1, (), ())
        assert str(stats).count("failed steps had 1 unknown batches") == 1
        assert not getattr(errors[0], "__notes__", ())
        with pytest.raises(tf.errors.OpError) as caught:
            sess.run(bad)
        (stats,) = sess.stats()
        assert (stats.failed, stats.failed_batches, stats.failed_numbers) == (2, (2,), (2,))
        assert caught.value.__notes__ == ["the failed step had batch 2 of 'p' (its records: source.record_ids(2))"]


def test_only_the_thread_of_the_last_step_hears_of_its_batch(graph: Any) -> None:
    staging.staged(ArraySource(np.arange(6), batch_size=1), name="p")
    with staging.StagingSession() as sess:
        accounts = sess._hook.runtime.feeding.accounts
        x = pipelines_of(graph)[0].sinks[0].get.batch
        assert sess.run(x).tolist() == [0]
        told: list[ValueError] = []

        def elsewhere() -> None:
            told.append(ValueError())
            accounts.note_last_step(told[0])

        thread = threading.Thread(target=elsewhere)
        thread.start()
        thread.join(20)
        accounts.note_last_step(own := ValueError())
    assert not getattr(told[0], "__notes__", ())
    assert own.__notes__ == ["the step had batch 0 of 'p' (its records: source.record_ids(0))"]


def test_a_late_error_does_not_get_the_batch_of_a_later_step(graph: Any) -> None:
    """Between the end of a failed step and the look at its batches, another step begins and fails."""
    x = staging.staged(ArraySource(np.arange(6), batch_size=1), name="p")
    with staging.StagingSession() as sess:
        accounts = sess._hook.runtime.feeding.accounts
        sinks = frozenset(pipelines_of(graph)[0].sinks)
        errors = [ValueError(), ValueError()]
        runs = []
        for number in range(2):
            runs.append(begun(accounts, sinks))
            assert run_unwrapped(sess._hook.session, x).tolist() == [number]
            accounts.failed(runs[-1], errors[number])
        accounts.settle_after(runs[0], errors[0], ())
        accounts.settle_after(runs[1], errors[1], ())
        assert sess.stats()[0].failed_batches == (0, 1)
    assert not getattr(errors[0], "__notes__", ())


def test_each_session_has_failed_batches_of_its_own(graph: Any) -> None:
    with tf.Session() as sess:
        played = Steps(graph, sess)
        played.take(EVERY)
        played.begin()
        accounts = Accounts(sess)
        step_succeeded(accounts, played.take(EVERY))
        step_failed(accounts, frozenset(played.sinks))
        accounts.settle()
        assert by_name(accounts) == {}


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
        accounts = Accounts(sess)
        step_failed(accounts, played.take(EVERY))
        accounts.settle()
        assert by_name(accounts) == {"x/0": [0], "x/1": [0]}
