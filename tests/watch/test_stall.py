"""Steps that do not return because nothing was started or because of the source, and the report for each."""

from __future__ import annotations

import functools
import importlib
import itertools
import logging
import os
import queue
import re
import threading
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest
import tensorflow.compat.v1 as tf
from absl import logging as absl_logging
from stalls import LIMIT_SECS, SECS, Reports, cause_in, numbers_source, stall, watched_session

import staging_tf1 as staging
from staging_tf1.errors import StallError


class CapturedLogs(logging.Handler):
    """Puts each warning of a watchdog into a queue."""

    def __init__(self, said: queue.Queue[str]) -> None:
        super().__init__()
        self._said = said

    def emit(self, record: logging.LogRecord) -> None:
        if "A step has not returned" in record.getMessage():
            self._said.put(record.getMessage())


# Threads that were never started.


@pytest.mark.parametrize(
    "make",
    [
        lambda: staging.staged(numbers_source(), name="train"),
        lambda: staging.CustomRunner(numbers_source(), queue="fifo", name="train").get_inputs(),
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
    x = staging.staged(numbers_source(), name="train")
    coord = tf.train.Coordinator()
    with tf.Session() as sess:
        tf.train.start_queue_runners(sess, coord, start=False)
        staging.start(sess, coord, stall_secs=SECS, stall_raises=True)
        cause = stall(sess, x)
        coord.request_stop()
    assert cause.startswith("'train' (made at test_stall.py:")
    assert cause.endswith(
        "is empty, because its feed threads were created but never started. Start each thread, or let "
        "staging.start(sess, coord) or StagingSession create and start them."
    )


@pytest.mark.parametrize("first", ["off", "the same", "later"])
def test_a_second_start_has_a_rule_of_its_own(graph: Any, first: str) -> None:
    x = staging.staged(numbers_source(), name="train")
    take = tf.FIFOQueue(1, tf.int64, [], name="by_hand").dequeue()
    with tf.Session() as sess:
        for start, secs in enumerate(({"off": 0, "the same": SECS, "later": 600}[first], SECS)):
            coord = tf.train.Coordinator()
            threads = staging.start(sess, coord, stall_secs=secs, stall_raises=True)
            sess.run(x)
            if start:
                assert "by_hand" in stall(sess, take)
            coord.request_stop()
            coord.join(threads)


# Whatever the watchdog looks at: the module and the name of the function, and whether the rest of the report comes.
LOOKS = [
    ("staging_tf1.watch.snapshot:Observer.touches", False),
    ("staging_tf1.watch.snapshot:Observer._staged", True),
    ("staging_tf1.watch.snapshot:read", True),
    ("staging_tf1.watch.snapshot:users_location", True),
    ("staging_tf1.watch.stall:diagnose", False),
]


@pytest.mark.parametrize(("look", "partial"), LOOKS, ids=[look.rpartition(":")[2] for look, _ in LOOKS])
def test_the_watchdog_survives_what_it_looks_at(
    graph: Any, monkeypatch: pytest.MonkeyPatch, look: str, partial: bool
) -> None:
    module, _, name = look.partition(":")
    *owner, attribute = name.split(".")
    target = functools.reduce(getattr, owner, importlib.import_module(module))
    go = threading.Event()
    said: queue.Queue[str] = queue.Queue()

    def slow() -> Iterator[Any]:
        go.wait(LIMIT_SECS)
        yield np.zeros(2)

    x = staging.staged(staging.sources.GeneratorSource(slow, spec=tf.TensorSpec([2], tf.float64)), name="train")
    raw = tf.FIFOQueue(4, tf.int64, [], name="raw")
    tf.train.add_queue_runner(tf.train.QueueRunner(raw, [raw.enqueue(7)]))
    tf.get_variable("weights", [])
    logs = CapturedLogs(said)
    absl_logging.get_absl_logger().addHandler(logs)
    try:
        with staging.StagingSession(stall_secs=SECS) as sess:

            def broken(*_: Any, **__: Any) -> Any:
                raise AttributeError("no such thing")

            monkeypatch.setattr(target, attribute, broken)
            step = threading.Thread(target=sess.run, args=(x,))
            step.start()
            report = said.get(timeout=LIMIT_SECS)
            assert report.startswith("A step has not returned for ")
            assert "AttributeError: no such thing" in report
            assert ("Most likely: " in report) == partial
            monkeypatch.undo()
            go.set()
            step.join()
    finally:
        absl_logging.get_absl_logger().removeHandler(logs)


# The source.


def test_a_source_stuck_in_io(graph: Any) -> None:
    end, other_end = os.pipe()

    def from_a_pipe() -> Iterator[Any]:
        yield np.zeros(2)
        os.read(end, 1)

    x = staging.staged(staging.sources.GeneratorSource(from_a_pipe), name="train")
    with watched_session() as sess:
        sess.run(x)
        cause = stall(sess, x)
        os.close(other_end)
    os.close(end)
    assert cause.startswith("the source of 'train' (made at test_stall.py:")
    assert "is stuck: feed thread 'feed:train:0' has been in it for " in cause
    assert ", at test_stall.py:" in cause and " in from_a_pipe(), after 1 batches. Add a timeout to " in cause


@pytest.mark.parametrize("first", [True, False])
def test_a_source_stuck_in_lockstep_is_read_by_the_step_itself(graph: Any, reports: Reports, first: bool) -> None:
    given = threading.Event()
    reports.on_report = given.set

    def stuck() -> Iterator[Any]:
        if not first:
            yield np.zeros(2)
        assert given.wait(LIMIT_SECS)
        yield np.ones(2)

    source = staging.sources.GeneratorSource(stuck, spec=tf.TensorSpec([2], tf.float64))
    x = staging.staged(source, lockstep=True, name="train")
    with staging.StagingSession(stall_secs=SECS) as sess:
        while not sess.should_stop():
            sess.run(x)
    cause = cause_in(reports.texts.get_nowait())
    assert re.search(
        r"is stuck: feed thread 'lockstep:train' has been in it for \d+\.\d s, at .* in stuck\(\), ", cause
    )


def _waiting_generator(wait: Callable[[int], None]) -> Any:
    def numbers() -> Iterator[Any]:
        for number in itertools.count():
            wait(number)
            yield np.float64(number)

    return staging.sources.GeneratorSource(numbers, spec=tf.TensorSpec([], tf.float64))


def _waiting_dataset(wait: Callable[[int], None]) -> Any:
    def waited(number: Any) -> Any:
        wait(int(number))
        return np.float64(number)

    def batch(number: Any) -> Any:
        return tf.ensure_shape(tf.py_func(waited, [number], tf.float64, stateful=True), [])

    return tf.data.Dataset.range(10**9).map(batch)


@pytest.mark.parametrize("make", [_waiting_generator, _waiting_dataset], ids=["generator", "dataset"])
@pytest.mark.parametrize("first", [True, False], ids=["in the warm-up", "in a step"])
def test_a_stall_in_lockstep_is_raised_after_the_read(graph: Any, reports: Reports, make: Any, first: bool) -> None:
    reported, returned = threading.Event(), threading.Event()
    reports.on_report = reported.set

    def wait(number: int) -> None:
        if number == (0 if first else 2):
            assert reported.wait(LIMIT_SECS)
            returned.set()

    x = staging.staged(make(wait), lockstep=True, name="train")
    with pytest.raises(StallError) as caught, watched_session() as sess:
        try:
            while True:
                sess.run(x)
        except StallError as error:
            with pytest.raises(StallError) as again:
                sess.run(x)
            assert again.value.report == error.report
            raise
    assert returned.is_set() and caught.value.report == reports.texts.get_nowait()
    cause = cause_in(caught.value.report)
    assert re.search(r"is stuck: feed thread 'lockstep:train' has been in it for \d+\.\d s", cause)


def test_a_source_slower_than_the_step(graph: Any, reports: Reports) -> None:
    reported = threading.Semaphore(0)
    reports.on_report = reported.release

    def slow() -> Iterator[Any]:
        while True:
            # One batch per report: each takes as long as a step needs to count as stalled.
            reported.acquire(timeout=LIMIT_SECS)
            yield np.zeros(2)

    x = staging.staged(staging.sources.GeneratorSource(slow, spec=tf.TensorSpec([2], tf.float64)), name="train")
    with staging.StagingSession(stall_secs=SECS) as sess:
        for _ in range(3):
            sess.run(x)
        reported.release(100)
    reports.texts.get(timeout=LIMIT_SECS)
    cause = cause_in(reports.texts.get(timeout=LIMIT_SECS))
    assert cause.startswith("the source of 'train' (made at test_stall.py:")
    assert re.search(r" is slower than the step: it takes \d+\.\d s ", cause)
    assert "in slow(). Make it faster, or let threads read ahead (no lockstep, num_threads=)." in cause


def test_a_dataset_that_does_not_return(graph: Any) -> None:
    given = threading.Event()

    def blocked() -> Any:
        given.wait(LIMIT_SECS)
        return np.int64(1)

    value = tf.numpy_function(blocked, [], tf.int64)
    value.set_shape([])
    x = staging.staged(value, name="train")
    with watched_session() as sess:
        # The wait ends immediately; the op that computes the batch ends on its own.
        timer = threading.Timer(2 * SECS, given.set)
        timer.start()
        cause = stall(sess, x)
    timer.join()
    assert cause.startswith("the ops that compute the batches of 'train' (made at test_stall.py:")
    assert "have not returned for " in cause


def test_a_runner_that_has_not_filled_its_queue(graph: Any) -> None:
    given = threading.Event()

    def ten() -> Iterator[Any]:
        yield np.arange(10)
        given.wait(LIMIT_SECS)

    x = staging.CustomRunner(ten, batch_size=4, min_after_dequeue=100, capacity=200, name="train").get_inputs()
    with watched_session() as sess:
        cause = stall(sess, x)
        given.set()
    assert "holds 10 elements, and a dequeue of 4 needs 104, because min_after_dequeue=100 of them must stay" in cause
    assert "; feed thread 'feed:train:0' has been in the source for " in cause


def test_a_session_that_is_closed_in_its_own_watchdog_is_closed_completely(graph: Any, reports: Reports) -> None:
    staging.staged(numbers_source(), name="train")
    take = tf.FIFOQueue(1, tf.int64, []).dequeue()
    sess, coord, closed = tf.Session(), tf.train.Coordinator(), threading.Event()
    threads = staging.start(sess, coord, stall_secs=SECS)

    def close() -> None:
        # As the garbage collector may do, in any thread.
        sess.close()
        closed.set()

    reports.on_report = close
    with pytest.raises(tf.errors.CancelledError):
        sess.run(take, options=tf.RunOptions(timeout_in_ms=int(1000 * LIMIT_SECS)))
    assert closed.wait(LIMIT_SECS)
    coord.request_stop()
    coord.join(threads)
