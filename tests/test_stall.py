"""Every known cause of a step that does not return, provoked for real, and the sentence that it gets."""

from __future__ import annotations

import logging
import os
import queue
import threading
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest
import tensorflow.compat.v1 as tf

import staging_tf1 as staging
from staging_tf1.errors import StallError
from staging_tf1.lifecycle.stall import stall_secs_or_default

_SECS = 0.2
_LIMIT_SECS = 20.0


class _Reports(logging.Handler):
    """What the watchdog logs, in order."""

    def __init__(self) -> None:
        super().__init__()
        self.texts: queue.Queue[str] = queue.Queue()
        self.on_report: Callable[[], None] = lambda: None

    def emit(self, record: logging.LogRecord) -> None:
        text = record.getMessage()
        if "Most likely" in text:
            self.texts.put(text)
            self.on_report()


@pytest.fixture
def reports() -> Iterator[_Reports]:
    handler = _Reports()
    logger = logging.getLogger("absl")
    logger.addHandler(handler)
    yield handler
    logger.removeHandler(handler)


def _session(**kwargs: Any) -> staging.StagingSession:
    return staging.StagingSession(stall_secs=_SECS, stall_raises=True, **kwargs)


def _cause(report: str) -> str:
    """The sentence of the report that names the cause."""
    line = report.splitlines()[1]
    assert line.startswith("Most likely: ")
    return line.removeprefix("Most likely: ")


def _stall(sess: Any, fetches: Any) -> str:
    with pytest.raises(StallError) as caught:
        sess.run(fetches)
    assert str(caught.value) == caught.value.report
    return _cause(caught.value.report)


def _numbers(batches: int = 100) -> Any:
    return staging.sources.ArraySource(np.arange(2 * batches), batch_size=2, epochs=1)


# Threads that were never started.


@pytest.mark.parametrize(
    "make",
    [
        lambda: staging.staged(_numbers(), name="train"),
        lambda: staging.CustomRunner(_numbers(), queue="fifo", name="train").get_inputs(),
    ],
)
def test_a_run_before_the_start_fails_at_once(graph: Any, make: Callable[[], Any]) -> None:
    x = make()
    with tf.Session() as sess, pytest.raises(tf.errors.InvalidArgumentError) as caught:
        sess.run(x)
    assert "train (made at test_stall.py:" in str(caught.value)
    assert "is not started in this session, so nothing feeds it. Use StagingSession or StagingHook, or call " in str(
        caught.value
    )


def test_threads_made_but_never_started(graph: Any) -> None:
    x = staging.staged(_numbers(), name="train")
    coord = tf.train.Coordinator()
    with tf.Session() as sess:
        tf.train.start_queue_runners(sess, coord, start=False)
        staging.start(sess, coord, stall_secs=_SECS, stall_raises=True)
        cause = _stall(sess, x)
        coord.request_stop()
    assert cause.startswith("'train' (made at test_stall.py:")
    assert cause.endswith(
        "is empty, because its feed threads were made but never started. Call start() of each thread, or let "
        "staging.start(sess, coord) or StagingSession make and start them."
    )


def test_a_queue_runner_that_is_in_no_collection(graph: Any) -> None:
    numbers = tf.FIFOQueue(4, tf.int64, [], name="numbers")
    tf.train.QueueRunner(numbers, [numbers.enqueue(7)])
    take = numbers.dequeue()
    with _session() as sess:
        cause = _stall(sess, take)
    assert (
        "'numbers' is empty, and no thread is putting into it: the thread that should has died, or was never " in cause
    )


# The hook was forgotten.


def test_lockstep_without_the_hook_fails_at_once(graph: Any) -> None:
    x = staging.staged(_numbers(), lockstep=True, name="train")
    with pytest.raises(tf.errors.InvalidArgumentError, match="Use StagingSession or StagingHook"):
        with tf.train.MonitoredTrainingSession() as sess:
            sess.run(x)


def test_lockstep_past_the_hook(graph: Any) -> None:
    x = staging.staged(_numbers(), lockstep=True, name="train")

    def twice(step_context: Any) -> None:
        step_context.session.run(x)  # the warm-up
        step_context.session.run(x)

    with _session() as sess, pytest.raises(StallError) as caught:
        sess.run_step_fn(twice)
    cause = _cause(caught.value.report)
    assert cause.startswith("nothing is staged in 'train' (made at test_stall.py:")
    assert "which is in lockstep, and this run does not carry its put. Run steps by StagingSession.run" in cause


# The source.


def test_a_source_stuck_in_io(graph: Any) -> None:
    end, other_end = os.pipe()

    def from_a_pipe() -> Iterator[Any]:
        yield np.zeros(2)
        os.read(end, 1)

    x = staging.staged(staging.sources.GeneratorSource(from_a_pipe), name="train")
    with _session() as sess:
        sess.run(x)
        cause = _stall(sess, x)
        os.close(other_end)
    os.close(end)
    assert cause.startswith("the source of 'train' (made at test_stall.py:")
    assert "is stuck: feed thread 'feed:train:0' has been in it for " in cause
    assert ", at test_stall.py:" in cause and " in from_a_pipe(), after 1 batches. Give what it waits for " in cause


@pytest.mark.parametrize("first", [True, False])
def test_a_source_stuck_in_lockstep_is_read_by_the_step_itself(graph: Any, reports: _Reports, first: bool) -> None:
    given = threading.Event()
    reports.on_report = given.set

    def stuck() -> Iterator[Any]:
        if not first:
            yield np.zeros(2)
        assert given.wait(_LIMIT_SECS)
        yield np.ones(2)

    source = staging.sources.GeneratorSource(stuck, spec=tf.TensorSpec([2], tf.float64))
    x = staging.staged(source, lockstep=True, name="train")
    with staging.StagingSession(stall_secs=_SECS) as sess:
        while not sess.should_stop():
            sess.run(x)
    cause = _cause(reports.texts.get_nowait())
    assert "is stuck: feed thread 'lockstep:train' has been in it for 0." in cause and " in stuck(), " in cause


def test_a_source_that_never_made_a_batch(graph: Any) -> None:
    given = threading.Event()

    def late() -> Iterator[Any]:
        given.wait(_LIMIT_SECS)
        yield np.zeros(2)

    x = staging.staged(staging.sources.GeneratorSource(late, spec=tf.TensorSpec([2], tf.float64)), name="train")
    with _session() as sess:
        cause = _stall(sess, x)
        given.set()
    assert "is stuck" in cause and "and has not made its first batch" in cause


def test_a_source_slower_than_the_step(graph: Any, reports: _Reports) -> None:
    reported = threading.Semaphore(0)
    reports.on_report = reported.release

    def slow() -> Iterator[Any]:
        while True:
            # A batch for every report: each takes as long as it takes a step to look stalled.
            reported.acquire(timeout=_LIMIT_SECS)
            yield np.zeros(2)

    x = staging.staged(staging.sources.GeneratorSource(slow, spec=tf.TensorSpec([2], tf.float64)), name="train")
    with staging.StagingSession(stall_secs=_SECS) as sess:
        for _ in range(3):
            sess.run(x)
        reported.release(100)
    reports.texts.get(timeout=_LIMIT_SECS)
    cause = _cause(reports.texts.get(timeout=_LIMIT_SECS))
    assert cause.startswith("the source of 'train' (made at test_stall.py:")
    assert " is slower than the step: it takes 0." in cause
    assert "in slow(). Make it faster, or let threads read ahead (no lockstep, num_threads=)." in cause


def test_a_dataset_that_does_not_return(graph: Any) -> None:
    given = threading.Event()

    def blocked() -> Any:
        given.wait(_LIMIT_SECS)
        return np.int64(1)

    value = tf.numpy_function(blocked, [], tf.int64)
    value.set_shape([])
    x = staging.staged(value, name="train")
    with _session() as sess:
        # The wait ends at once; the op that computes the batch ends when it can.
        timer = threading.Timer(2 * _SECS, given.set)
        timer.start()
        cause = _stall(sess, x)
    timer.join()
    assert cause.startswith("the ops that compute the batches of 'train' (made at test_stall.py:")
    assert "have not returned for " in cause


def test_fewer_records_than_min_after_dequeue(graph: Any) -> None:
    shuffled = tf.RandomShuffleQueue(200, 100, tf.int64, [], name="shuffled")
    fill, take = shuffled.enqueue_many([np.arange(10)]), shuffled.dequeue_many(4)
    with _session() as sess:
        sess.run(fill)
        cause = _stall(sess, take)
    assert cause == (
        "queue 'shuffled' holds 10 elements, and a take of 4 needs 104, because min_after_dequeue=100 of them must "
        "stay; nothing is putting more into it. Close the queue at the end of the data, put more, or lower "
        "min_after_dequeue."
    )


def test_a_runner_that_has_not_filled_its_queue(graph: Any) -> None:
    given = threading.Event()

    def ten() -> Iterator[Any]:
        yield np.arange(10)
        given.wait(_LIMIT_SECS)

    runner = staging.CustomRunner(ten, batch_size=4, min_after_dequeue=100, capacity=200, name="train")
    x = runner.get_inputs()
    with _session() as sess:
        cause = _stall(sess, x)
        given.set()
    assert "holds 10 elements, and a take of 4 needs 104, because min_after_dequeue=100 of them must stay" in cause
    assert "; feed thread 'feed:train:0' has been in the source for " in cause


# Areas.


def test_an_area_put_but_never_got(graph: Any) -> None:
    area = staging.StagingArea([tf.int64], [[]], capacity=2)
    put = area.put([7])
    with _session() as sess:
        sess.run(put)
        sess.run(put)
        cause = _stall(sess, put)
    assert cause.startswith("area 'StagingArea' (made at test_stall.py:")
    assert cause.endswith(
        "is full (2 of 2), and this run puts into it, but the graph has no op that takes from it. Build its get(), "
        "and run it."
    )


def test_an_area_whose_get_is_never_run(graph: Any) -> None:
    area = staging.StagingArea([tf.int64], [[]], capacity=1)
    put = area.put([7])
    area.get()
    with _session() as sess:
        sess.run(put)
        cause = _stall(sess, put)
    assert "is full (1 of 1), and this run puts into it while nothing takes from it. After the warm-up, " in cause


def test_an_area_got_but_never_put(graph: Any) -> None:
    area = staging.StagingArea([tf.int64], [[]], shared_name="train")
    got = area.get()
    with _session() as sess:
        cause = _stall(sess, got)
    assert cause.endswith(
        "is empty, and the graph has no op that puts into it. Build its put(), and run it once before the first step."
    )


@pytest.mark.parametrize("threads", [0, 1])
def test_an_area_without_a_warm_up(graph: Any, threads: int) -> None:
    area = staging.StagingArea([tf.int64], [[]])
    area.put([7])
    got = area.get()
    # With one thread in the pool the get holds it; the report must come all the same.
    with _session(config=tf.ConfigProto(inter_op_parallelism_threads=threads)) as sess:
        cause = _stall(sess, got)
    assert cause.endswith(
        "is empty: this run gets from it, and nothing has put into it. Run its put once before the first step (the "
        "warm-up), and then fetch put and get in every step."
    )


# Feeders that are gone, and towers that are not asked.


def test_a_dead_feeder_of_a_queue_filled_by_hand(graph: Any) -> None:
    numbers = tf.FIFOQueue(4, tf.int64, [], name="numbers")
    put, take = numbers.enqueue(7), numbers.dequeue()
    with _session() as sess:
        feeder = threading.Thread(target=sess.run, args=(put,))
        feeder.start()
        sess.run(take)
        feeder.join()
        cause = _stall(sess, take)
    assert cause.startswith(
        "queue 'numbers' is empty, and no thread is putting into it: the thread that should has died, or was never "
        "started. Start it"
    )


def test_a_dead_queue_runner_says_what_it_died_of(graph: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(threading, "excepthook", lambda exception: None)
    numbers = tf.FIFOQueue(4, tf.float32, [], name="numbers")
    bad = tf.check_numerics(tf.constant(np.nan), "the sensor is broken")
    runner = tf.train.QueueRunner(numbers, [numbers.enqueue(bad)])
    take = numbers.dequeue()
    with tf.Session() as sess:
        # Without a coordinator nobody hears of it, and the queue stays open.
        for thread in runner.create_threads(sess, start=True):
            thread.join(_LIMIT_SECS)
        staging.start(sess, stall_secs=_SECS, stall_raises=True)
        tf.add_to_collection(tf.GraphKeys.QUEUE_RUNNERS, runner)
        cause = _stall(sess, take)
    assert cause.startswith("the thread that fed queue 'numbers' has died of InvalidArgumentError: ")


def test_two_towers_of_which_one_is_fetched(graph: Any) -> None:
    towers = staging.staged(_numbers(), devices=["/cpu:0", "/cpu:0"], name="train")
    with _session() as sess:
        with pytest.raises(StallError) as caught:
            while True:
                sess.run(towers[0])
    cause = _cause(caught.value.report)
    assert cause.startswith("the step takes from tower 0 of 'train' only, while the other is full: 'train/1' (made at ")
    assert "Fetch something of every tower in each step" in cause


# What is no stall of the input.


def test_a_step_that_computes_is_reported_and_goes_on(graph: Any, reports: _Reports) -> None:
    done = threading.Event()
    reports.on_report = done.set
    x = staging.staged(_numbers(), name="train")

    def compute(value: Any) -> Any:
        assert done.wait(_LIMIT_SECS)
        return value

    y = tf.numpy_function(compute, [x], tf.int64)
    with _session() as sess:
        assert sess.run(y).tolist() == [0, 1]
    cause = _cause(reports.texts.get_nowait())
    assert cause.startswith("no area or queue keeps the step waiting: its own ops are still computing")


def test_a_thread_that_waits_for_room_is_no_stall_while_steps_go_on(graph: Any, reports: _Reports) -> None:
    numbers = tf.FIFOQueue(1, tf.int64, [], name="numbers")
    put, take, other = numbers.enqueue(7), numbers.dequeue(), tf.constant(1)
    with staging.StagingSession(stall_secs=_SECS) as sess:
        sess.run(put)
        feeder = threading.Thread(target=sess.run, args=(put,))
        feeder.start()
        # Steps without input, for three times as long as a stall takes.
        ended = threading.Event()
        timer = threading.Timer(3 * _SECS, ended.set)
        timer.start()
        while not ended.is_set():
            sess.run(other)
        sess.run(take)
        feeder.join()
        timer.join()
    assert reports.texts.empty()


def test_a_run_is_reported_once_and_waits_on(graph: Any, reports: _Reports) -> None:
    numbers = tf.FIFOQueue(1, tf.int64, [], name="numbers")
    put, take = numbers.enqueue(7), numbers.dequeue()
    with staging.StagingSession(stall_secs=_SECS) as sess:
        timer = threading.Timer(4 * _SECS, sess.run, (put,))
        timer.start()
        assert sess.run(take) == 7
        timer.join()
    report = reports.texts.get_nowait()
    assert reports.texts.empty()
    first, *_ = report.splitlines()
    assert first.startswith("A step has not returned for 0.") and ", at test_stall.py:" in first
    assert "  queue 'numbers': 0 of 1 elements; open; the step wants 1" in report.splitlines()


def test_the_fast_path_is_watched(graph: Any) -> None:
    numbers = tf.FIFOQueue(1, tf.int64, [], name="numbers")
    take = numbers.dequeue()
    with _session() as sess:
        step = sess.make_callable(take)
        with pytest.raises(StallError):
            step()


def test_a_monitored_session_with_the_hook_is_watched(graph: Any) -> None:
    numbers = tf.FIFOQueue(1, tf.int64, [], name="numbers")
    take = numbers.dequeue()
    hook = staging.StagingHook(stall_secs=_SECS, stall_raises=True)
    with pytest.raises(StallError), tf.train.MonitoredTrainingSession(hooks=[hook]) as sess:
        sess.run(take)


def test_looking_adds_no_op_to_a_graph_that_runs_again(graph: Any) -> None:
    area = staging.StagingArea([tf.int64], [[]], capacity=2)
    put = area.put([7])
    sizes = []
    for _ in range(3):
        with _session() as sess:
            sess.run(put)
        sizes.append(len(graph.get_operations()))
    assert sizes[0] == sizes[1] == sizes[2]


# The number of seconds.


def test_the_seconds_come_from_the_argument_the_environment_or_are_thirty(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("STAGING_TF1_STALL_SECS", raising=False)
    assert stall_secs_or_default(None) == 30.0
    monkeypatch.setenv("STAGING_TF1_STALL_SECS", "2.5")
    assert stall_secs_or_default(None) == 2.5
    assert stall_secs_or_default(0) == 0.0


@pytest.mark.parametrize("value", ["soon", "-1", "nan"])
def test_other_seconds_are_refused(value: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("STAGING_TF1_STALL_SECS", value)
    with pytest.raises(ValueError, match=f"STAGING_TF1_STALL_SECS is '{value}', wanted a number of seconds"):
        staging.StagingHook()


def test_zero_watches_nothing(graph: Any) -> None:
    tf.constant(1)
    with staging.StagingSession(stall_secs=0):
        assert "staging:stall" not in [thread.name for thread in threading.enumerate()]
