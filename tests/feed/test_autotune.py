"""`num_threads=AUTOTUNE`: the decision, the parked threads, and what no number of threads may change."""

from __future__ import annotations

import random
import threading
import time
from itertools import chain, pairwise
from pathlib import Path
from typing import Any

import hypothesis.strategies as st
import numpy as np
import pytest
import tensorflow.compat.v1 as tf
from hypothesis import given, settings
from running import feed_threads, runs_in

import staging_tf1 as staging
from staging_tf1.feed.autotune import Observation, State, decide, most_threads
from staging_tf1.feed.pipeline import pipelines_of
from staging_tf1.feed.pipeline_run import PipelineRun
from staging_tf1.feed.threads import PARKED
from staging_tf1.sources import ArraySource, GeneratorSource

LIMIT_SECS = 60.0
AUTOTUNE = tf.data.AUTOTUNE


# The decision.

WAITS, IDLE = dict(waited=0.5), dict(busy=1.0)


def observed(rate: float = 100.0, waited: float = 0.0, busy: float = 8.0) -> Observation:
    return Observation(rate, waited, busy)


TABLE = {
    "the input keeps up": (State(), observed(), 1),
    "steps wait": (State(), observed(**WAITS), 2),
    "steps wait still": (State(4), observed(**WAITS), 8),
    "no more than there are": (State(12), observed(**WAITS), 16),
    "between the thresholds": (State(3), observed(waited=0.03, **IDLE), 3),
    "an idle thread": (State(3), observed(**IDLE), 2),
    "not idle enough": (State(3), observed(busy=1.6), 3),
    "the last thread stays": (State(), observed(busy=0.0), 1),
    "more have failed": (State(2, failed=1, rest=9), observed(**WAITS), 2),
    "more have failed, and one is idle": (State(3, failed=1, rest=9), observed(**IDLE), 2),
    "fewer have failed": (State(3, failed=-1, rest=9), observed(**IDLE), 3),
    "fewer have failed, and steps wait": (State(3, failed=-1, rest=9), observed(**WAITS), 6),
    "the failure is forgotten": (State(2, failed=1, rest=1), observed(**WAITS), 4),
    "a trial that helped": (State(4, before=2, rate_before=90), observed(), 4),
    "a trial that helped, but not enough": (State(4, before=2, rate_before=90), observed(**WAITS), 8),
    "a trial that did not": (State(4, before=2, rate_before=98), observed(**WAITS), 2),
    "a removal that did no harm": (State(2, before=3, rate_before=125), observed(), 2),
    "a removal that did": (State(2, before=3, rate_before=125), observed(**WAITS), 3),
}


@pytest.mark.parametrize("case", TABLE)
def test_the_decision(case: str) -> None:
    state, now, expected = TABLE[case]
    assert decide(state, now, most=16).number == expected


def test_what_does_not_help_is_tried_ever_more_rarely() -> None:
    state, trials = State(), []
    for second in range(4000):
        before, state = state, decide(state, observed(**WAITS), most=16)
        assert state.number <= 2
        if state.number > before.number:
            trials.append(second)
    pauses = [after - before for before, after in pairwise(trials)]
    assert len(trials) < 20 and pauses == sorted(pauses) and pauses[0] >= 5 and pauses[-1] <= 302


@given(
    st.floats(0.2, 50),
    st.floats(0.01, 200),
    st.sampled_from([0.02, 1.0]),
    st.integers(1, 8),
    st.sampled_from([0.0, 0.2]),
    st.randoms(use_true_random=False),
)
def test_a_simulated_loop_settles_near_the_best(
    step_ms: float, source_ms: float, cpu: float, cores: int, passing: float, dice: random.Random
) -> None:
    """Threads share the cores; each takes longer by `passing` for each other one; every second is off by up to 3 %."""

    def batch_ms(number: int) -> float:
        return source_ms * (1 + passing * (number - 1)) * number / min(number, cores / cpu)

    def loop_ms(number: int) -> float:
        return max(step_ms, batch_ms(number) / number)

    state, times, numbers = State(), [], []
    for _ in range(60):
        took = loop_ms(state.number) * dice.uniform(0.97, 1.03)
        waited = max(0.0, 1 - step_ms / took) if source_ms > step_ms * 0.9 else 0.0
        busy = min(state.number, batch_ms(state.number) / took)
        state = decide(state, Observation(1e3 / took, waited, busy), most=16)
        times.append(loop_ms(state.number))
        numbers.append(state.number)
    best = min(loop_ms(2**power) for power in range(5))
    assert sorted(times[10:])[25] <= best / 0.9, "after 10 s, most of the time"
    assert sum(a != b for a, b in pairwise(numbers[10:])) < 20, "it does not swing"


def test_how_many_there_are() -> None:
    assert most_threads(source(), 1024) >= 16 and most_threads(source(), 4) == 4
    assert most_threads(GeneratorSource(lambda: iter([np.zeros(1)])), 1024) == 2


# The threads.


def source(count: int = 60, transform: Any = None, **options: Any) -> ArraySource:
    return ArraySource(np.arange(count), batch_size=1, transform=transform, **{"epochs": 1, **options})


def run_of(sess: Any) -> PipelineRun:
    """The run of the only pipeline of a StagingSession or a plain session."""
    raw = sess._hook.runtime.session if isinstance(sess, staging.StagingSession) else sess
    (run,) = runs_in(raw, pipelines_of(raw.graph))
    return run


def until(condition: Any) -> None:
    deadline = time.monotonic() + LIMIT_SECS
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.001)


def build(way: str, values: Any) -> list[Any]:
    """The batches of each tower."""
    if way == "queue":
        return [staging.CustomRunner(values, queue="fifo", num_threads=AUTOTUNE).get_inputs()]
    if way == "towers":
        return list(staging.staged(values, devices=["/cpu:0"] * 2, num_threads=AUTOTUNE))
    return [staging.staged(values, num_threads=AUTOTUNE, name="train")]


@pytest.mark.slow_cases("queue|towers")
@pytest.mark.parametrize("way", ["staged", "queue", "towers"])
@settings(max_examples=8)
@given(schedule=st.lists(st.integers(1, 16), min_size=1, max_size=12), jitter=st.integers(0, 3))
def test_any_schedule_of_numbers_delivers_the_same_batches(way: str, schedule: list[int], jitter: int) -> None:
    def transform(batch: Any) -> Any:
        # Makes threads overtake each other.
        sum(range(1000 * (int(batch[0]) * 7 % (jitter + 1))))
        return batch

    with tf.Graph().as_default():
        parts = build(way, source(transform=transform))
        got: list[list[int]] = []
        with staging.StagingSession() as sess:
            run = run_of(sess)
            while not sess.should_stop():
                for producer in run.producers:
                    producer.resize(schedule[len(got) % len(schedule)])
                got.append([int(value[0]) for value in sess.run(parts)])
    assert sorted(chain(*got)) == list(range(60))
    if way == "towers":
        assert [list(tower) for tower in zip(*got)] == [list(range(0, 60, 2)), list(range(1, 60, 2))]
    else:
        assert list(chain(*got)) == list(range(60))


@pytest.mark.slow  # test_resume.py resumes with threads
def test_a_checkpoint_with_autotune_resumes_with_a_number_and_back(tmp_path: Path) -> None:
    def part(count: int | None, num_threads: int) -> list[int]:
        got: list[int] = []
        with tf.Graph().as_default():
            x = staging.staged(source(40, shuffle=True, seed=3, epochs=2), num_threads=num_threads, name="train")
            train = tf.assign_add(tf.train.get_or_create_global_step(), 1)
            with staging.StagingSession(checkpoint_dir=str(tmp_path), save_checkpoint_steps=1) as sess:
                while not sess.should_stop() and (count is None or len(got) < count):
                    if num_threads == AUTOTUNE:
                        run_of(sess).producers[0].resize(1 + len(got) % 5)
                    got.append(int(sess.run([x, train])[0][0]))
        return got

    parts = part(7, AUTOTUNE) + part(9, 3) + part(11, AUTOTUNE) + part(None, 1)
    with tf.Graph().as_default():
        x = staging.staged(source(40, shuffle=True, seed=3, epochs=2))
        whole: list[int] = []
        with staging.StagingSession() as sess:
            while not sess.should_stop():
                whole.append(int(sess.run(x)[0]))
    assert parts == whole and len(whole) == 80


@pytest.mark.parametrize("deterministic", [False, True])
def test_steps_that_wait_get_threads(graph: Any, deterministic: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """And the summary shows their number. With deterministic ops, what the steps find tells that they wait."""
    monkeypatch.setattr("staging_tf1.graph.sink.deterministic_ops", lambda: deterministic)
    pause = threading.Event()
    waits = source(transform=lambda batch: (pause.wait(0.02), batch)[1], epochs=None)
    x = staging.staged(waits, num_threads=AUTOTUNE, name="train")
    with staging.StagingSession() as sess:
        deadline = time.monotonic() + LIMIT_SECS
        while sess.stats()[0].threads == 1 and time.monotonic() < deadline:
            sess.run(x)
        (stats,) = sess.stats()
    assert stats.autotune and 1 < stats.threads <= 16
    assert f"AUTOTUNE: {stats.threads} feed threads" in str(stats)


# The end, while threads are parked.


@pytest.mark.parametrize("way", ["close", "close beside the source", "session only", "data", "error"])
def test_parked_threads_end(way: str, graph: Any) -> None:
    let_go = threading.Event()

    def transform(batch: Any) -> Any:
        if way == "error" and batch[0] == 5:
            raise KeyError("five")
        if way == "close beside the source" and batch[0] == 1:
            let_go.wait(LIMIT_SECS)
        return batch

    x = staging.staged(source(8, transform, epochs=1 if way == "data" else None), num_threads=AUTOTUNE)
    sess = tf.Session()
    sess.run([tf.global_variables_initializer(), tf.local_variables_initializer()])
    coord = tf.train.Coordinator()
    threads = tf.train.start_queue_runners(sess, coord)
    assert len(threads) >= 16
    run = run_of(sess)
    until(lambda: sum(state.doing == PARKED for state in run.states) == len(run.states) - 1)
    if way in ("data", "error"):
        with pytest.raises(KeyError if way == "error" else tf.errors.OutOfRangeError):
            while True:
                sess.run(x)
    began = time.monotonic()
    if way.startswith("close"):
        coord.request_stop()
    if way == "close beside the source":
        until(lambda: [state.thread.is_alive() for state in run.states] == [True] + [False] * (len(run.states) - 1))
        let_go.set()
    if way == "session only":
        sess.close()
    if way == "error":
        with pytest.raises(KeyError, match="five"):
            coord.join(threads, stop_grace_period_secs=LIMIT_SECS)
    for state in run.states:
        state.thread.join(LIMIT_SECS)  # type: ignore[union-attr]
    assert time.monotonic() - began < LIMIT_SECS / 2
    coord.request_stop()
    if way != "error":
        coord.join(threads, stop_grace_period_secs=LIMIT_SECS)
    sess.close()
    until(lambda: not feed_threads())


# What is refused.


def refused(make: Any, *words: str) -> None:
    with tf.Graph().as_default() as graph:
        with pytest.raises(ValueError) as caught:
            make()
        assert not graph.get_operations() or "graph computes" in words[0]
    assert all(word in str(caught.value) for word in ("-1 (AUTOTUNE)", *words)), str(caught.value)


def test_where_the_order_would_change_it_is_refused() -> None:
    refused(
        lambda: staging.staged(tf.constant([1]), num_threads=AUTOTUNE, name="train"),
        "that the graph computes, whose order depends on the number of threads",
        "staged(name='train') got num_threads=",
        "Use num_threads=1",
    )
    refused(
        lambda: staging.staged(tf.data.Dataset.range(3), num_threads=AUTOTUNE),
        "that the graph computes",
        "num_parallel_calls=tf.data.AUTOTUNE",
    )
    refused(
        lambda: staging.CustomRunner(source(), seed=1, num_threads=AUTOTUNE),
        "seeded shuffle queue",
        "queue='fifo' with a source that shuffles",
    )


def test_where_there_are_no_threads_to_choose_it_is_refused() -> None:
    refused(lambda: staging.staged(source(), num_threads=AUTOTUNE, lockstep=True), "lockstep=True", "Drop one")
    refused(lambda: staging.staged(source(), num_threads=AUTOTUNE, num_processes=2), "Leave num_threads out")
    refused(
        lambda: staging.staged(source(), num_processes=AUTOTUNE),
        "Measure with some numbers",
        "use num_threads=AUTOTUNE",
    )
    refused(lambda: staging.CustomRunner(source(), num_processes=AUTOTUNE), "num_processes=")
    each = [lambda: iter([np.zeros(1)])] * 2
    refused(lambda: staging.CustomRunner(each, num_threads=AUTOTUNE), "Each generator has its own thread")


def test_it_is_the_number_of_tensorflow() -> None:
    assert staging.AUTOTUNE == tf.data.AUTOTUNE == tf.data.experimental.AUTOTUNE == -1
