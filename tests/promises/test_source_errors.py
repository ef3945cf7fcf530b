"""An exception in a source is an error, whatever its type. Only the source's length or its iterator ends the data."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest
import tensorflow.compat.v1 as tf
from pipelines import INDEXED, PIPELINES, Numbers, build, to_the_end

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
COUNT = 12
ONE_TOWER = ["queue", "staged, 1 threads, 1 towers", "staged in lockstep, 1 towers"]


def raising(signal: str, at: int, times: int = 1_000_000) -> Callable[[int, Any], Any]:
    """Return a `trouble` for `Numbers`: batch number `at` raises the first `times` times."""
    left = [times]

    def trouble(number: int, batch: Any) -> Any:
        if number == at and left[0]:
            left[0] -= 1
            raise SIGNALS[signal]()
        return batch

    return trouble


def session(how: str) -> Any:
    """`StagingSession`, or TensorFlow's own session with this package's hook."""
    if how == "StagingSession":
        return staging.StagingSession()
    return tf.train.MonitoredTrainingSession(hooks=[staging.StagingHook()])


@pytest.mark.thinned
@pytest.mark.parametrize("signal", SIGNALS)
@pytest.mark.parametrize(
    "name, how", [*((name, "StagingSession") for name in PIPELINES), *((name, "hook") for name in ONE_TOWER)]
)
def test_a_signal_from_a_source_is_an_error(graph: Any, name: str, signal: str, how: str) -> None:
    parts = build(name, Numbers(COUNT, raising(signal, at=5)))
    steps = tf.get_variable("steps", [], initializer=tf.zeros_initializer()).assign_add(1)
    # In a generator, Python itself turns a StopIteration into a RuntimeError.
    wanted = RuntimeError if name.startswith("stream") and signal == "StopIteration" else SourceError
    counted = 0.0
    with pytest.raises(wanted) as caught, session(how) as sess:
        while not sess.should_stop():
            counted += 1
            assert sess.run([steps, parts])[0] == counted, "the model was not initialised again"
    error = caught.value if wanted is SourceError else None
    if error is not None:
        assert type(error.__cause__) is type(SIGNALS[signal]())
        assert f"the source raised {signal} while it made batch " in str(error)
        assert "of the user's" in str(error) and "not the end of the data" in str(error)


@pytest.mark.thinned
@pytest.mark.parametrize("signal", SIGNALS)
@pytest.mark.parametrize("name", INDEXED)
def test_a_signal_that_is_to_be_skipped_is_skipped(graph: Any, name: str, signal: str) -> None:
    kind = type(SIGNALS[signal]())
    parts = build(name, Numbers(COUNT, raising(signal, at=5)), ignored_exception_types=(kind,))
    with staging.StagingSession() as sess:
        got = to_the_end(sess.run, parts)
    assert sorted(number for tower in got for number in tower) == [n for n in range(COUNT) if n != 5]


@pytest.mark.thinned
@pytest.mark.parametrize("signal", SIGNALS)
@pytest.mark.parametrize("name", ONE_TOWER)
def test_one_signal_more_than_may_be_skipped_is_an_error(graph: Any, name: str, signal: str) -> None:
    def trouble(number: int, batch: Any) -> Any:
        return raising(signal, at=number)(number, batch) if number % 2 else batch

    kind = type(SIGNALS[signal]())
    parts = build(name, Numbers(COUNT, trouble), ignored_exception_types=(kind,), max_ignored=2)
    with pytest.raises(SourceError, match=f"the source raised {signal}"), staging.StagingSession() as sess:
        to_the_end(sess.run, parts)


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


def _function(fails: Callable[[], Exception]) -> Any:
    def no_generator() -> Any:
        raise fails()

    return GeneratorSource(no_generator, spec=tf.TensorSpec([None], tf.int64))


def _lazy(fails: Callable[[], Exception]) -> Any:
    return GeneratorSource(lambda: iter([_Lazy(fails)]), spec=tf.TensorSpec([None], tf.int64))


def _parsed(fails: Callable[[], Exception]) -> Any:
    calls = [0]

    def parse(record: bytes) -> int:
        calls[0] += 1
        if calls[0] > 3:
            raise fails()
        return len(record)

    return TFRecordSource("data.tfrecord", batch_size=2, parse_fn=parse, epochs=1)


# All other places where a source's own code runs. Only StopIteration from an iterator's `__next__` is the end.
DOORS: dict[str, Callable[[Callable[[], Exception]], Any]] = {
    "iterator": lambda fails: _Iterator(fails),
    "batches()": _Stream,
    "generator function": _function,
    "__array__": _lazy,
    "parse_fn": _parsed,
    "transform": lambda fails: ArraySource(np.arange(4), batch_size=2, transform=_only_once(fails)),
}


def _only_once(fails: Callable[[], Exception]) -> Callable[[Any], Any]:
    calls = [0]

    def transform(batch: Any) -> Any:
        calls[0] += 1
        if calls[0] > 1:  # the first batch defines the spec
            raise fails()
        return batch

    return transform


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
    def no_generator() -> Any:
        raise SIGNALS[signal]()

    def transform(batch: Any) -> Any:
        raise SIGNALS[signal]()

    make = staging.staged if build == "staged" else staging.CustomRunner
    for source in (no_generator, ArraySource(np.arange(4), batch_size=2, transform=transform)):
        with pytest.raises(SourceError, match=f"{make.__name__}.*: the source raised {signal}"):
            make(source)
    assert not graph.get_operations()


def test_a_stream_that_cannot_begin_is_not_skipped_for_ever(graph: Any) -> None:
    source = _Stream(lambda: OSError("no such table"))
    batch = staging.staged(source, ignored_exception_types=(OSError,))
    with pytest.raises(OSError, match="no such table"), staging.StagingSession() as sess:
        sess.run(batch)


def test_what_a_source_raises_otherwise_stays_as_it_is(graph: Any) -> None:
    raised = tf.errors.DataLossError(None, None, "a bad block")

    def transform(batch: Any) -> Any:
        if batch[0]:
            raise raised
        return batch

    batch = staging.staged(ArraySource(np.arange(4), batch_size=2, transform=transform))
    with pytest.raises(tf.errors.DataLossError) as caught, staging.StagingSession() as sess:
        while True:
            sess.run(batch)
    assert caught.value is raised
