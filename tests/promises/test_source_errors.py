"""An exception in a source is an error, whatever its type. Only the source's length or its iterator ends the data."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from itertools import chain, count
from typing import Any

import numpy as np
import pytest
import tensorflow.compat.v1 as tf
from once import Reading, Stream
from pipelines import INDEXED, MIDDLE_SIZES, BrokenDiskError, Numbers, build, to_the_end
from running import feed_threads

import staging_tf1 as staging
from staging_tf1.errors import SourceError, SpecError
from staging_tf1.sources import ArraySource, GeneratorSource, StreamSource, TFRecordSource, write_tfrecords

pytestmark = [
    pytest.mark.usefixtures("quick_graphs"),
    # When an error ends the run, staged batches may be left behind.
    pytest.mark.filterwarnings("ignore::staging_tf1.errors.LeftoverWarning"),
]

# The exceptions that a MonitoredSession takes for the end of the data or for a reason to restart.
SIGNALS: dict[str, Callable[[], Exception]] = {
    "StopIteration": lambda: StopIteration("of the user's"),
    "OutOfRangeError": lambda: tf.errors.OutOfRangeError(None, None, "of the user's"),
    "AbortedError": lambda: tf.errors.AbortedError(None, None, "of the user's"),
    "UnavailableError": lambda: tf.errors.UnavailableError(None, None, "of the user's"),
}
ERRORS = {
    **SIGNALS,
    "BrokenDiskError": lambda: BrokenDiskError("a bad block"),
    "DataLossError": lambda: tf.errors.DataLossError(None, None, "a bad block"),
}
COUNT = 12


def every_fifth(error: str) -> Callable[[int, Any], Any]:
    """Return a `trouble` for `Numbers`: batches 3, 8, 13... raise."""

    def trouble(number: int, batch: Any) -> Any:
        if number % 5 == 3:
            raise ERRORS[error]()
        return batch

    return trouble


def session(how: str) -> Any:
    """`StagingSession`, or TensorFlow's own session with this package's hook."""
    if how == "StagingSession":
        return staging.StagingSession()
    return tf.train.MonitoredTrainingSession(hooks=[staging.StagingHook()])


@pytest.mark.thinned
@pytest.mark.slow_cases(MIDDLE_SIZES)
@pytest.mark.parametrize("most", [2, 0], ids=["enough", "too few"])
@pytest.mark.parametrize("error", ERRORS)
@pytest.mark.parametrize("name", INDEXED)
def test_ignored_exceptions_cost_their_batches_only(graph: Any, name: str, error: str, most: int) -> None:
    kind = type(ERRORS[error]())
    parts = build(name, Numbers(COUNT, every_fifth(error)), ignored_exception_types=(kind,), max_ignored=most)
    if most == 0:
        with pytest.raises(SourceError if error in SIGNALS else kind) as caught, staging.StagingSession() as sess:
            to_the_end(sess.run, parts)
        told = "".join([str(caught.value), *getattr(caught.value, "__notes__", ())])
        # Each tower counts the batches of its shard.
        number = 3 // len(parts) if name.startswith("staged") else 3
        assert re.search(rf"the source (raised {error} while it )?made batch {number}\b", told)
    else:
        with staging.StagingSession() as sess:
            got = to_the_end(sess.run, parts)
            ignored = sum(stats.ignored for stats in sess.stats())
        assert all(ids == sorted(ids) for ids in got), "in order"
        assert sorted(chain(*got)) == [n for n in range(COUNT) if n % 5 != 3], "the others once each"
        assert ignored == 2
    assert feed_threads() == []


@contextmanager
def plain(start: Callable[..., Any]) -> Iterator[Any]:
    with tf.Session() as sess:
        sess.run(tf.global_variables_initializer())
        coord = tf.train.Coordinator()
        threads = start(sess, coord)
        yield sess
        coord.request_stop()
        coord.join(threads)


def plainly(sess: Any, x: Any) -> Callable[[], Any]:
    return lambda: sess.run(x)


# Each session, and how it makes a step of what is fetched.
SESSIONS: dict[str, tuple[Callable[[], Any], Callable[[Any, Any], Callable[[], Any]]]] = {
    "StagingSession": (staging.StagingSession, plainly),
    "make_callable": (staging.StagingSession, lambda sess, x: sess.make_callable(x)),
    "run_step_fn": (
        staging.StagingSession,
        lambda sess, x: lambda: sess.run_step_fn(lambda step_context: step_context.run_with_hooks(x)),
    ),
    "StagingHook": (lambda: session("hook"), plainly),
    "MonitoredTrainingSession": (tf.train.MonitoredTrainingSession, plainly),
    "SingularMonitoredSession": (tf.train.SingularMonitoredSession, plainly),
    "Supervisor": (lambda: tf.train.Supervisor(summary_op=None).managed_session(), plainly),
    "start": (lambda: plain(staging.start), plainly),
    "start_queue_runners": (lambda: plain(tf.train.start_queue_runners), plainly),
}


@pytest.mark.parametrize("how", SESSIONS)
def test_run_raises_the_error_with_its_cause(graph: Any, how: str) -> None:
    """In each session that starts the threads; its end raises it again."""

    def parse(batch: Any) -> Any:
        if batch[0] == 4:
            raise BrokenDiskError("a bad block") from KeyError("its cause")
        return batch

    x = staging.staged(ArraySource(np.arange(8), batch_size=2, transform=parse))
    tf.train.get_or_create_global_step()
    got: list[int] = []
    make, step_of = SESSIONS[how]
    with pytest.raises(BrokenDiskError) as at_end, make() as sess:
        step = step_of(sess, x)
        with pytest.raises(BrokenDiskError) as caught:
            while True:
                got += step().tolist()
        assert isinstance(caught.value.__cause__, KeyError)
    assert at_end.value is caught.value and isinstance(at_end.value.__cause__, KeyError)
    assert got == [0, 1, 2, 3]
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


def test_max_ignored_alone_is_refused(graph: Any) -> None:
    with pytest.raises(ValueError, match=r"got max_ignored=3 without ignored_exception_types\. Give both\."):
        staging.staged(ArraySource(np.arange(20), batch_size=1), max_ignored=3)


class _Iterator:
    """An iterator whose methods raise, without a generator's protection (PEP 479)."""

    def __init__(self, fails: Callable[[], Exception]) -> None:
        self._fails, self._count = fails, 0

    def __iter__(self) -> _Iterator:
        return self

    def __next__(self) -> Any:
        self._count += 1
        if self._count > 2:
            raise self._fails()
        return np.arange(3)


class _Stream(StreamSource):
    """A stream whose `batches` fails before it begins."""

    spec = staging.spec.ArraySpec((None,), np.int64)

    def __init__(self, fails: Callable[[], Exception]) -> None:
        self._fails = fails

    def resolve_spec(self) -> Any:
        return self.spec

    def batches(self, start: int = 0) -> Iterator[Any]:
        raise self._fails()


class _Lazy:
    """Fails when its array is requested."""

    def __init__(self, fails: Callable[[], Exception]) -> None:
        self._fails = fails

    def __array__(self, dtype: Any = None, copy: Any = None) -> Any:
        raise self._fails()


def _after(good: int, fails: Callable[[], Exception], made: Callable[..., Any] = lambda batch, *_: batch) -> Any:
    """A function that makes something of each of so many first arguments, and then raises."""
    calls = count()

    def call(*value: Any) -> Any:
        if next(calls) >= good:
            raise fails()
        return made(*value)

    return call


_SPEC = tf.TensorSpec([None], tf.int64)
# All other places where a source's own code runs. Only StopIteration from an iterator's `__next__` is the end.
DOORS: dict[str, Callable[[Callable[[], Exception]], Any]] = {
    "iterator": lambda fails: _Iterator(fails),
    "batches()": _Stream,
    "generator function": lambda fails: GeneratorSource(_after(0, fails), spec=_SPEC),
    "__array__": lambda fails: GeneratorSource(lambda: iter([_Lazy(fails)]), spec=_SPEC),
    "parse_fn": lambda fails: TFRecordSource("data.tfrecord", batch_size=2, parse_fn=_after(3, fails, len), epochs=1),
    # The first batch defines the spec.
    "transform": lambda fails: ArraySource(np.arange(4), batch_size=2, transform=_after(1, fails)),
}
# For an iterator of the user's, StopIteration is the end; see the test after the next one.
AT_DOORS = [(door, signal) for door in DOORS for signal in SIGNALS if (door, signal) != ("iterator", "StopIteration")]


@pytest.mark.thinned
@pytest.mark.parametrize("lockstep", [False, True], ids=["threads", "lockstep"])
@pytest.mark.parametrize("door, signal", AT_DOORS)
def test_every_door_into_a_source(
    graph: Any, door: str, signal: str, lockstep: bool, tmp_path: Any, monkeypatch: Any
) -> None:
    monkeypatch.chdir(tmp_path)
    write_tfrecords([b"a", b"bc", b"def", b"g", b"h"], "data.tfrecord")
    batch = staging.staged(DOORS[door](SIGNALS[signal]), lockstep=lockstep)
    # In the package's own generators, Python has already turned it into a RuntimeError.
    wanted = SpecError if door == "__array__" else RuntimeError
    with pytest.raises(
        wanted, match=r"raised StopIteration|the source raised|that cannot be converted to int64 values: of the"
    ):
        with staging.StagingSession() as sess:
            while not sess.should_stop():
                sess.run(batch)


@pytest.mark.parametrize("lockstep", [False, True], ids=["threads", "lockstep"])
def test_stop_iteration_of_an_iterator_is_the_end(graph: Any, lockstep: bool) -> None:
    batch = staging.staged(DOORS["iterator"](SIGNALS["StopIteration"]), lockstep=lockstep)
    with staging.StagingSession() as sess:
        assert [sess.run(batch).tolist() for _ in range(2)] == [[0, 1, 2]] * 2
        with pytest.raises(tf.errors.OutOfRangeError):
            sess.run(batch)


@pytest.mark.parametrize("signal", SIGNALS)
@pytest.mark.parametrize("build", ["staged", "CustomRunner"])
def test_a_signal_from_the_first_batch(graph: Any, build: str, signal: str) -> None:
    make = staging.staged if build == "staged" else staging.CustomRunner
    fails = _after(0, SIGNALS[signal])
    for source in (fails, ArraySource(np.arange(4), batch_size=2, transform=fails)):
        with pytest.raises(SourceError, match=f"{make.__name__}.*: the source raised {signal}"):
            make(source)
    assert not graph.get_operations()


@pytest.mark.parametrize("bad", [[0], [0, 1, 2, 3], [1, 3]])
def test_a_spec_is_found_although_the_first_batches_are_bad(graph: Any, bad: list[int]) -> None:
    def transform(batch: Any) -> Any:
        if batch[0] // 2 in bad:
            raise BrokenDiskError("a bad block")
        return {"id": batch, "double": 2 * batch}

    source = ArraySource(np.arange(12), batch_size=2, epochs=1, transform=transform)
    batch = staging.staged(source, ignored_exception_types=BrokenDiskError)
    assert batch["double"].shape.as_list() == [2] and batch["double"].dtype == tf.int64
    with staging.StagingSession() as sess:
        assert to_the_end(sess.run, [batch]) == [[2 * number for number in range(6) if number not in bad]]
        assert sess.stats()[0].ignored == len(bad)
    with tf.Graph().as_default():
        batch = staging.staged(source)
        with pytest.raises(BrokenDiskError, match="a bad block") as caught, staging.StagingSession() as sess:
            to_the_end(sess.run, [batch])
    assert f"raised while the source made batch {bad[0]}" in caught.value.__notes__


def test_a_transform_that_fails_for_the_first_batches_is_named_when_the_graph_is_built(graph: Any) -> None:
    asked: list[int] = []

    def transform(batch: Any) -> Any:
        asked.append(int(batch[0]))
        raise BrokenDiskError(f"no. {batch[0]}")

    for number, tried in [(2, [0]), (6, [0, 2, 4]), (1000, [0, 2, 4, 6, 8])]:
        asked.clear()
        with pytest.raises(BrokenDiskError, match=r"^no\. 0$"):
            staging.staged(ArraySource(np.arange(number), batch_size=2, epochs=1, transform=transform))
        assert asked == tried


def test_a_stream_that_cannot_begin_is_not_skipped_for_ever(graph: Any) -> None:
    source = _Stream(lambda: OSError("no such table"))
    batch = staging.staged(source, ignored_exception_types=(OSError,))
    with pytest.raises(OSError, match="no such table"), staging.StagingSession() as sess:
        sess.run(batch)


# Exceptions that are hard to handle.


class SilentError(Exception):
    """An exception whose str() fails."""

    def __str__(self) -> str:
        raise ZeroDivisionError


class FrozenError(Exception):
    """An exception without settable attributes, like a frozen dataclass."""

    def __setattr__(self, name: str, value: Any) -> None:
        if not name.startswith("__") or name == "__notes__":
            raise AttributeError("frozen")
        super().__setattr__(name, value)


def failing(error: Exception) -> Callable[[], Iterator[Any]]:
    def batches() -> Iterator[Any]:
        for number in range(5):
            yield np.array([number])
        raise error

    return batches


@pytest.mark.parametrize("fed", ["threads", "lockstep", "CustomRunner"])
@pytest.mark.parametrize("kind", [SilentError, FrozenError])
def test_an_awkward_exception_ends_the_run(graph: Any, kind: Any, fed: str) -> None:
    batches = failing(kind("x"))
    if fed == "CustomRunner":
        batch = staging.CustomRunner(batches, queue="fifo").get_inputs()
    else:
        batch = staging.staged(batches, lockstep=fed == "lockstep")
    for how in ("StagingSession", "hook"):
        with pytest.raises((kind, SourceError)), session(how) as sess:
            while True:
                sess.run(batch)
    if fed == "lockstep":
        return
    coord = tf.train.Coordinator()
    with pytest.raises((kind, SourceError)), tf.Session() as sess:
        threads = staging.start(sess, coord)
        with pytest.raises(tf.errors.OutOfRangeError):
            while True:
                sess.run(batch)
        coord.join(threads)
