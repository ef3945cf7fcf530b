"""Steps that do not return because of an area, a queue, a feeder or a tower; and runs that are not stalled."""

from __future__ import annotations

import re
import threading
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import tensorflow.compat.v1 as tf
from stalls import LIMIT_SECS, SECS, Reports, cause_in, numbers_source, stall, watched_session
from tensorflow.python.ops import data_flow_ops

import staging_tf1 as staging
from staging_tf1.arguments import stall_secs_or_default
from staging_tf1.errors import StallError

MADE = r"area 'StagingArea' \(made at test_stall_stores.py:\d+\) "
PUTS = "is full (2 of 2), and this run puts into it, but "
WARM_UP = (
    "is empty: this run gets from it, and nothing puts into it. Run its put once before the first step (the warm-up), "
    "then fetch put and get in every step."
)


def put_but_never_got() -> tuple[list[Any], Any]:
    put = staging.StagingArea([tf.int64], [[]], capacity=2).put([7])
    return [put, put], put


def get_is_never_run() -> tuple[list[Any], Any]:
    area = staging.StagingArea([tf.int64], [[]], capacity=2)
    put, _ = area.put([7]), area.get()
    return [put, put], put


def got_but_never_put() -> tuple[list[Any], Any]:
    return [], staging.StagingArea([tf.int64], [[]]).get()


def without_a_warm_up() -> tuple[list[Any], Any]:
    area = staging.StagingArea([tf.int64], [[]])
    area.put([7])
    return [], area.get()


def by_key(take: Callable[[Any], Any]) -> Callable[[], tuple[list[Any], Any]]:
    def make() -> tuple[list[Any], Any]:
        area = staging.MapStagingArea([tf.int64, tf.string], [[], []])
        area.put(1, [7, "a"])
        return [], take(area)

    return make


def fewer_than_must_stay() -> tuple[list[Any], Any]:
    shuffled = tf.RandomShuffleQueue(200, 100, tf.int64, [], name="shuffled")
    return [shuffled.enqueue_many([np.arange(10)])], shuffled.dequeue_many(4)


def drained_after_the_end() -> tuple[list[Any], Any]:
    numbers = tf.FIFOQueue(4, tf.int64, [[]], name="numbers")
    area = staging.StagingArea([tf.int64], [[]], capacity=2)
    put, got = area.put(numbers.dequeue()), area.get()
    return [numbers.enqueue(7), numbers.close(), put, got], got


def runner_in_no_collection() -> tuple[list[Any], Any]:
    numbers = tf.FIFOQueue(4, tf.int64, [], name="numbers")
    tf.train.QueueRunner(numbers, [numbers.enqueue(7)])
    return [], numbers.dequeue()


def runner_of_no_queue() -> tuple[list[Any], Any]:
    barrier = data_flow_ops.Barrier([tf.int64], name="states")
    insert = barrier.insert_many(0, ["key"], tf.constant([1], tf.int64))
    tf.train.add_queue_runner(tf.train.QueueRunner(barrier, [insert], close_op=tf.no_op(), cancel_op=tf.no_op()))
    return [], tf.FIFOQueue(4, tf.int64, [], name="numbers").dequeue()


def dead_feeder() -> tuple[list[Any], Any]:
    numbers = tf.FIFOQueue(4, tf.int64, [], name="numbers")
    put, take = numbers.enqueue(7), numbers.dequeue()
    return [put, take], take


# What is run first, and what then stalls; the cause, as a regular expression of its beginning, and its end.
STALLED: dict[Callable[[], tuple[list[Any], Any]], tuple[str, str]] = {
    put_but_never_got: (
        MADE,
        PUTS + "the graph has no op that takes elements from it. Build its get() and run it.",
    ),
    get_is_never_run: (
        MADE,
        PUTS + "nothing takes elements from it. After the warm-up, fetch the get in every run that puts: "
        "sess.run([train_op, put]).",
    ),
    got_but_never_put: (
        MADE,
        "is empty, and the graph has no op that puts into it. Build its put(), and run it once before the first step.",
    ),
    without_a_warm_up: (MADE, WARM_UP),
    by_key(lambda area: area.get(5)[1]): ("area 'MapStagingArea'", WARM_UP),
    by_key(lambda area: area.get()[1]): ("area 'MapStagingArea'", WARM_UP),
    by_key(lambda area: area.peek(5)[0]): ("area 'MapStagingArea'", WARM_UP),
    drained_after_the_end: (
        MADE,
        "is empty and its input has ended: queue 'numbers' is closed and holds 0. The step that met the end of the "
        "data put nothing, and may have lost the last element to its get. Count the batches and leave out the last "
        "put, or use staged().",
    ),
    fewer_than_must_stay: (
        "queue 'shuffled' ",
        "holds 10 elements, and a dequeue of 4 needs 104, because min_after_dequeue=100 of them must stay; nothing "
        "adds more. Close the queue at the end of the data, put more elements, or lower min_after_dequeue.",
    ),
    runner_in_no_collection: (
        "queue 'numbers' is empty, and no thread is putting into it: its thread has died or was never started",
        "",
    ),
    runner_of_no_queue: ("queue 'numbers' is empty, and the graph has no op that puts", ""),
    dead_feeder: (
        "queue 'numbers' is empty, and no thread is putting into it: its thread has died or was never started.",
        "",
    ),
}


@pytest.mark.parametrize("threads", [0, 1])
@pytest.mark.parametrize("make", STALLED)
@pytest.mark.thinned
def test_the_report_of_a_store(graph: Any, make: Callable[[], tuple[list[Any], Any]], threads: int) -> None:
    first, stalled = make()
    # With one thread in the pool, a get occupies it; the report must still come.
    with watched_session(config=tf.ConfigProto(inter_op_parallelism_threads=threads)) as sess:
        for fetches in first:
            sess.run(fetches)
        cause = stall(sess, stalled)
    begins, ends = STALLED[make]
    assert re.match(begins, cause) and cause.endswith(ends), cause


def test_an_accumulator_is_explained(graph: Any, reports: Reports) -> None:
    gradients = tf.ConditionalAccumulator(tf.float32, [], name="gradients")
    apply, take = gradients.apply_grad(1.0), gradients.take_grad(2)
    with staging.StagingSession(stall_secs=SECS) as sess:
        sess.run(apply)
        reports.on_report = lambda: sess.run(apply)
        assert sess.run(take) == 1.0
    cause = cause_in(reports.texts.get_nowait())
    assert cause.startswith("accumulator 'gradients' has 1 gradients, and the step takes the mean of 2. Run its apply")


# Feeders that have ended, and towers that are not fetched.


def test_a_dead_queue_runner_says_what_it_died_of(graph: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(threading, "excepthook", lambda exception: None)
    numbers = tf.FIFOQueue(4, tf.float32, [], name="numbers")
    bad = tf.check_numerics(tf.constant(np.nan), "the sensor is broken")
    runner = tf.train.QueueRunner(numbers, [numbers.enqueue(bad)])
    take = numbers.dequeue()
    with tf.Session() as sess:
        # Without a coordinator the error is lost, and the queue stays open.
        for thread in runner.create_threads(sess, start=True):
            thread.join(LIMIT_SECS)
        staging.start(sess, stall_secs=SECS, stall_raises=True)
        tf.add_to_collection(tf.GraphKeys.QUEUE_RUNNERS, runner)
        cause = stall(sess, take)
    assert cause.startswith("the thread that fed queue 'numbers' has died: InvalidArgumentError: ")


def test_two_towers_of_which_one_is_fetched(graph: Any) -> None:
    towers = staging.staged(numbers_source(), devices=["/cpu:0", "/cpu:0"], name="train")
    with watched_session() as sess:
        with pytest.raises(StallError) as caught:
            while True:
                sess.run(towers[0])
    cause = cause_in(caught.value.report)
    assert cause.startswith("the step takes only from tower 0 of 'train', while these are full: 'train/1' (made at ")
    assert "Fetch something from every tower in each step" in cause


# Runs that are not stalled by their input.


def test_a_step_that_computes_is_reported_and_goes_on(graph: Any, reports: Reports) -> None:
    done = threading.Event()
    reports.on_report = done.set
    x = staging.staged(numbers_source(), name="train")

    def compute(value: Any) -> Any:
        assert done.wait(LIMIT_SECS)
        return value

    y = tf.numpy_function(compute, [x], tf.int64)
    with watched_session() as sess:
        assert sess.run(y).tolist() == [0, 1]
    cause = cause_in(reports.texts.get_nowait())
    assert cause.startswith("the step is not waiting for input: its own ops are still computing")


def test_a_thread_that_waits_for_room_is_no_stall_while_steps_go_on(graph: Any, reports: Reports) -> None:
    numbers = tf.FIFOQueue(1, tf.int64, [], name="numbers")
    put, take, other = numbers.enqueue(7), numbers.dequeue(), tf.constant(1)
    with staging.StagingSession(stall_secs=SECS) as sess:
        sess.run(put)
        feeder = threading.Thread(target=sess.run, args=(put,))
        feeder.start()
        # Steps without input, for three times the stall limit.
        ended = threading.Event()
        timer = threading.Timer(3 * SECS, ended.set)
        timer.start()
        while not ended.is_set():
            sess.run(other)
        sess.run(take)
        feeder.join()
        timer.join()
    assert reports.texts.empty()


def test_a_run_is_reported_once_and_waits_on(graph: Any, reports: Reports) -> None:
    numbers = tf.FIFOQueue(1, tf.int64, [], name="numbers")
    put, take = numbers.enqueue(7), numbers.dequeue()
    with staging.StagingSession(stall_secs=SECS) as sess:
        timer = threading.Timer(4 * SECS, sess.run, (put,))
        timer.start()
        assert sess.run(take) == 7
        timer.join()
    report = reports.texts.get_nowait()
    assert reports.texts.empty()
    first, *_ = report.splitlines()
    assert re.match(r"A step has not returned for \d+\.\d s, at test_stall_stores\.py:", first)
    assert "  queue 'numbers': 0 of 1 elements; open; the step takes 1" in report.splitlines()


def test_the_fast_path_is_watched(graph: Any) -> None:
    numbers = tf.FIFOQueue(1, tf.int64, [], name="numbers")
    take = numbers.dequeue()
    with watched_session() as sess:
        step = sess.make_callable(take)
        with pytest.raises(StallError):
            step()


def test_a_monitored_session_with_the_hook_is_watched(graph: Any) -> None:
    numbers = tf.FIFOQueue(1, tf.int64, [], name="numbers")
    take = numbers.dequeue()
    hook = staging.StagingHook(stall_secs=SECS, stall_raises=True)
    with pytest.raises(StallError), tf.train.MonitoredTrainingSession(hooks=[hook]) as sess:
        sess.run(take)


# The stall limit in seconds.


def test_the_seconds_come_from_the_argument_the_environment_or_are_thirty(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("STAGING_TF1_STALL_SECS", raising=False)
    assert stall_secs_or_default("start()", None) == 30.0
    monkeypatch.setenv("STAGING_TF1_STALL_SECS", "2.5")
    assert stall_secs_or_default("start()", None) == 2.5
    assert stall_secs_or_default("start()", 0) == 0.0


@pytest.mark.parametrize("value", ["soon", "-1", "nan"])
def test_other_seconds_are_refused(value: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("STAGING_TF1_STALL_SECS", value)
    with pytest.raises(ValueError, match=f"STAGING_TF1_STALL_SECS is '{value}', expected a number of seconds"):
        staging.StagingHook()


def test_zero_watches_nothing(graph: Any) -> None:
    tf.constant(1)
    with staging.StagingSession(stall_secs=0):
        assert "staging:stall" not in [thread.name for thread in threading.enumerate()]
