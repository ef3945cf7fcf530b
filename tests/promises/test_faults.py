"""Faults, injected one by one. Each test states what must hold afterwards."""

from __future__ import annotations

import threading
import time
import traceback
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
import tensorflow.compat.v1 as tf
from load import slowdown
from once import Reading, Stream
from pipelines import BrokenDiskError
from running import feed_threads
from slow import with_slow

import staging_tf1 as staging
from staging_tf1.errors import SpecError
from staging_tf1.feed.pipeline import pipelines_of
from staging_tf1.sources import ArraySource, GeneratorSource

pytestmark = pytest.mark.usefixtures("quick_graphs")

SPEC = tf.TensorSpec([None], tf.int64)


class FailsAt(ArraySource):
    """0, 1, 2, ..., one record per batch; raises at one of them."""

    def __init__(self, fails_at: int, count: int = 20) -> None:
        super().__init__(np.arange(count), batch_size=1, epochs=1)
        self._fails_at = fails_at

    def batch(self, index: int) -> Any:
        if index == self._fails_at:
            raise BrokenDiskError(f"no record {index}")  # THE LINE
        return super().batch(index)

    def as_generator(self) -> Iterator[Any]:
        for index in range(self.num_batches or 0):
            yield self.batch(index)


def build(kind: str, source: FailsAt) -> Any:
    """Return a pipeline of each kind over `source`."""
    if kind.startswith("staged"):
        return staging.staged(source, num_threads=int(kind[-1]))
    if kind == "lockstep":
        return staging.staged(source, lockstep=True)
    if kind == "stream":
        return staging.staged(GeneratorSource(source.as_generator, spec=SPEC))
    queue, threads = kind[:-1], int(kind[-1])
    runner = staging.CustomRunner(source, batch_size=1, queue=queue, num_threads=threads, min_after_dequeue=None)
    return staging.staged(runner.get_inputs())


KINDS = ["staged1", "staged4", "lockstep", "stream", "fifo1", "fifo4", "shuffle1", "shuffle4"]


@pytest.mark.thinned
@pytest.mark.parametrize("fails_at", [0, 10, 19], ids=["first", "middle", "last"])
@pytest.mark.parametrize("kind", KINDS)
def test_what_a_source_raises_is_raised_from_run(graph: Any, kind: str, fails_at: int) -> None:
    x = build(kind, FailsAt(fails_at))
    got = []
    with pytest.raises(BrokenDiskError) as caught, staging.StagingSession() as sess:
        while True:
            got.append(int(sess.run(x)[0]))
    assert caught.value.args == (f"no record {fails_at}",), "the exception itself"
    assert "THE LINE" in "".join(traceback.format_tb(caught.value.__traceback__)), "with its own traceback"
    assert f"raised while the source made batch {fails_at}" in caught.value.__notes__
    assert len(set(got)) == len(got) and set(got) <= set(range(20))
    if not kind.startswith("shuffle"):
        assert got == list(range(len(got))) and len(got) <= fails_at
    assert feed_threads() == []
    with tf.Graph().as_default():  # and the process is still usable
        y = staging.staged(ArraySource(np.arange(2), batch_size=2, epochs=1))
        with staging.StagingSession() as sess:
            assert sess.run(y).tolist() == [0, 1]


def test_a_fault_reaches_a_step_that_waits_within_a_second(graph: Any) -> None:
    waiting = threading.Event()
    failed_at: list[float] = []

    def source() -> Iterator[Any]:
        yield np.arange(1)
        waiting.wait(10)
        failed_at.append(time.perf_counter())
        raise BrokenDiskError("gone")

    x = staging.staged(GeneratorSource(source, spec=SPEC))
    with pytest.raises(BrokenDiskError), staging.StagingSession() as sess:
        sess.run(x)
        waiting.set()
        try:
            sess.run(x)
        finally:
            took = time.perf_counter() - failed_at[0]
    assert took < 1.0 * slowdown()


@pytest.mark.parametrize("way", ["callable", "step_fn", "plain", "monitored"])
def test_a_fault_is_raised_on_every_way(graph: Any, way: str) -> None:
    x = staging.staged(FailsAt(3))
    with pytest.raises(BrokenDiskError):
        if way == "plain":
            with tf.Session() as sess:
                coord = tf.train.Coordinator()
                threads = staging.start(sess, coord)
                try:
                    while not coord.should_stop():
                        sess.run(x)
                except tf.errors.OutOfRangeError:
                    pass
                coord.request_stop()
                coord.join(threads, stop_grace_period_secs=60)
        elif way == "monitored":
            with tf.train.MonitoredTrainingSession(hooks=[staging.StagingHook()]) as sess:
                while not sess.should_stop():
                    sess.run(x)
        else:
            with staging.StagingSession() as sess:
                step = sess.make_callable(x)
                while True:
                    if way == "callable":
                        step()
                    else:
                        sess.run_step_fn(lambda step_context: step_context.run_with_hooks(x))
    assert feed_threads() == []


BAD_BATCHES = {
    "dtype": (
        np.zeros(3, np.float64),
        "generator 'source': batch 1: component 'x' got float64 [3], expected int64 [?]",
    ),
    "rank": (
        np.zeros((3, 2), np.int64),
        "generator 'source': batch 1: component 'x' got int64 [3, 2], expected int64 [?]",
    ),
    "key": (None, "generator 'source': batch 1: the batch has the unknown key 'z'; expected the key 'x'"),
    "object": (np.array([{}, []], object), "generator 'source': batch 1: component 'x' got an array of Python objects"),
}


@pytest.mark.thinned
@pytest.mark.parametrize("lockstep", [False, True])
@pytest.mark.parametrize("fault", BAD_BATCHES)
def test_a_batch_that_does_not_fit_is_named(graph: Any, fault: str, lockstep: bool) -> None:
    bad, text = BAD_BATCHES[fault]

    def source() -> Iterator[Any]:
        yield {"x": np.arange(2)}
        yield {"x": np.arange(2), "z": np.arange(2)} if bad is None else {"x": bad}

    batch = staging.staged(GeneratorSource(source, spec={"x": SPEC}), lockstep=lockstep, name="train")
    with pytest.raises(SpecError) as caught, staging.StagingSession() as sess:
        while True:
            sess.run(batch)
    assert str(caught.value).startswith(text)
    assert feed_threads() == []


@pytest.mark.thinned
@pytest.mark.parametrize("lockstep", [False, True])
@pytest.mark.parametrize("device", ["/device:CPU:0", "/device:CPU:1"])
def test_many_failing_steps_lose_no_slot_and_repeat_no_batch(graph: Any, device: str, lockstep: bool) -> None:
    failing = 1000 if with_slow() else 100
    records = failing + 100
    x = staging.staged(
        ArraySource(np.arange(records), batch_size=1, epochs=1), capacity=2, device=device, lockstep=lockstep
    )
    fails = tf.placeholder_with_default(False, [])
    # The step already owns the batch, and has not given its slot back yet.
    with tf.control_dependencies([pipelines_of(graph)[0].sinks[0].take]):
        check = tf.debugging.Assert(tf.logical_not(fails), ["NaN"])
    seen: list[int] = []
    failed = 0
    with staging.StagingSession(config=tf.ConfigProto(device_count={"CPU": 2})) as sess:
        while True:
            try:
                if failed < failing:
                    sess.run([x, check], {fails: True})
                else:
                    seen.append(int(sess.run(x)[0]))
            except tf.errors.InvalidArgumentError:
                failed += 1
            except tf.errors.OutOfRangeError:
                break
    assert seen == list(range(records - len(seen), records)), "what is left comes in order, to the last batch"
    assert len(seen) >= records - failed, "a failed step took one batch at most"
    (stats,) = sess.stats()
    assert stats.batches == records
    assert sorted([*stats.failed_batches, *seen]) == list(range(records)), "an account of every batch"


class SometimesBad(FailsAt):
    """A source where every fifth batch is bad."""

    def batch(self, index: int) -> Any:
        if index % 5 == 3:
            raise BrokenDiskError(f"no record {index}")
        return super().batch(index)


@pytest.mark.parametrize("lockstep", [False, True])
def test_one_ignored_exception_too_many_is_raised(graph: Any, lockstep: bool) -> None:
    x = staging.staged(
        SometimesBad(fails_at=-1), lockstep=lockstep, ignored_exception_types=(BrokenDiskError,), max_ignored=2
    )
    with pytest.raises(BrokenDiskError, match="no record 13"), staging.StagingSession() as sess:
        while True:
            sess.run(x)
    assert feed_threads() == []


def _bad_at(bad: int) -> Any:
    """A check that raises at one number."""

    def check(values: Any) -> Any:
        if values[0] == bad:
            raise BrokenDiskError
        return values

    return check


def _ends(bad: int) -> Iterator[Any]:
    yield from Reading(range(4), _bad_at(bad))


@pytest.mark.parametrize("lockstep", [True, False])
@pytest.mark.parametrize(
    ("source", "got", "is_said"),
    [
        pytest.param(GeneratorSource(lambda: _ends(1)), [0], True, id="a generator"),
        pytest.param(GeneratorSource(lambda: _ends(-1)), [0, 1, 2, 3], False, id="a good generator"),
        pytest.param(Stream(4, _bad_at(1)), [0, 2, 3], False, id="a stream that goes on"),
        pytest.param(Stream(4, _bad_at(3)), [0, 1, 2], True, id="a bad end"),
    ],
)
def test_a_source_that_ends_at_an_ignored_exception_is_named(
    graph: Any, caplog: pytest.LogCaptureFixture, source: Any, got: list[int], is_said: bool, lockstep: bool
) -> None:
    x = staging.staged(source, lockstep=lockstep, ignored_exception_types=(BrokenDiskError,))
    found = []
    with caplog.at_level("WARNING", logger="absl"), staging.StagingSession() as sess:
        while not sess.should_stop():
            found += sess.run(x).tolist()
    assert found == got
    said = [text for text in caplog.messages if "ended right after the exception of batch" in text]
    assert len(said) == is_said, caplog.messages


def test_ignored_exceptions_of_the_graph(graph: Any) -> None:
    numbers = staging.CustomRunner(lambda: iter(np.arange(20).reshape(20, 1)), queue="fifo").get_inputs()
    bad = tf.debugging.Assert(tf.not_equal(numbers[0] % 5, 3), ["bad"])
    with tf.control_dependencies([bad]):
        x = staging.staged(tf.identity(numbers), ignored_exception_types=(tf.errors.InvalidArgumentError,))
    got = []
    with staging.StagingSession() as sess:
        while not sess.should_stop():
            got.append(int(sess.run(x)[0]))
    assert got == [n for n in range(20) if n % 5 != 3]


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        (
            dict(ignored_exception_types=(3,)),
            "staged() got 3 in ignored_exception_types, expected subclasses of Exception, such as "
            "(tf.errors.DataLossError,).",
        ),
        (
            dict(max_ignored=3),
            "staged() got max_ignored=3 without ignored_exception_types. Give both.",
        ),
        (
            dict(ignored_exception_types=(ValueError,), max_ignored=-1),
            "staged() got max_ignored=-1, expected a whole number from 0 to 2**63 - 1 (skipped batches).",
        ),
    ],
)
def test_bad_ignore_arguments_are_named(graph: Any, arguments: dict[str, Any], text: str) -> None:
    with pytest.raises((TypeError, ValueError)) as caught:
        staging.staged(FailsAt(-1), **arguments)
    assert str(caught.value) == text


def test_a_failing_put_reaches_the_user(graph: Any) -> None:
    numbers = staging.CustomRunner(lambda: iter(np.arange(10).reshape(10, 1)), queue="fifo").get_inputs()
    with tf.control_dependencies([tf.debugging.assert_less(numbers, np.int64(5), message="too large")]):
        x = staging.staged(tf.identity(numbers))
    with pytest.raises(tf.errors.InvalidArgumentError, match="too large"), staging.StagingSession() as sess:
        while True:
            assert sess.run(x)[0] < 5
    assert feed_threads() == []


def test_a_failing_worker_of_a_parallel_map_reaches_the_user(graph: Any) -> None:
    numbers = tf.data.Dataset.range(1, 100)
    checked = numbers.map(lambda n: tf.debugging.check_numerics(1.0 / tf.cast(n - 7, tf.float32), "by zero"), 2)
    x = staging.staged(checked)
    got = 0
    with pytest.raises(tf.errors.InvalidArgumentError, match="by zero"), staging.StagingSession() as sess:
        while True:
            sess.run(x)
            got += 1
    assert got <= 6
    assert feed_threads() == []


def test_a_timeout_leaves_the_pipeline_whole(graph: Any) -> None:
    let_go = threading.Event()

    def source() -> Iterator[Any]:
        yield np.arange(1)
        let_go.wait(10)
        yield from (np.arange(n, n + 1) for n in range(1, 50))

    x = staging.staged(GeneratorSource(source, spec=SPEC), capacity=1)
    with staging.StagingSession() as sess:
        assert sess.run(x).tolist() == [0]
        for _ in range(5):
            with pytest.raises(tf.errors.DeadlineExceededError):
                sess.run(x, options=tf.RunOptions(timeout_in_ms=50))
        let_go.set()
        assert [int(sess.run(x)[0]) for _ in range(49)] == list(range(1, 50))


@pytest.mark.thinned
@pytest.mark.parametrize("offset", range(0, 64, 4))
@pytest.mark.parametrize("kind", ["staged", "threads", "lockstep", "fifo", "shuffle"])
def test_a_staged_batch_never_changes(graph: Any, kind: str, offset: int) -> None:
    room = np.zeros(4096, np.uint8)
    start = -room.ctypes.data % 64 + offset
    buffer = room[start : start + 1024].view(np.int32)

    def source() -> Iterator[Any]:
        for number in range(20):
            buffer[:] = number  # the same buffer each time
            yield buffer

    spec = tf.TensorSpec([256], tf.int32)
    generator = GeneratorSource(source, spec=spec)
    if kind in ("staged", "threads", "lockstep"):
        threads = 4 if kind == "threads" else 1
        x = staging.staged(generator, capacity=4, num_threads=threads, lockstep=kind == "lockstep")
    else:
        size = None if kind == "fifo" else 256
        x = staging.CustomRunner(generator, queue=kind, batch_size=size, min_after_dequeue=None).get_inputs()
    with staging.StagingSession() as sess:
        got = [sess.run(x) for _ in range(20)]
    if kind == "shuffle":
        assert np.bincount(np.concatenate(got)).tolist() == [256] * 20
    else:
        assert [(each.min(), each.max()) for each in got] == [(n, n) for n in range(20)]


def test_what_a_source_gives_away_is_fed_without_a_copy(graph: Any) -> None:
    made: list[Any] = []
    made_second = threading.Event()

    class Spy(FailsAt):
        def batch(self, index: int) -> Any:
            made.append(super().batch(index))
            if index == 1:
                made_second.set()
            return made[-1]

    x = staging.staged(Spy(fails_at=-1), capacity=1)
    with staging.StagingSession() as sess:
        sess.run(x)
        assert made_second.wait(60)
        made[-1][:] = 99  # against the contract, to see whose memory it is
        last = [int(sess.run(x)[0]) for _ in range(3)]
    assert 99 in last, "the staged batch is the array itself"
