"""Sources and loops of users that break their contract get an error that says so, never wrong data."""

from __future__ import annotations

import threading
from collections import namedtuple
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tensorflow.compat.v1 as tf
from pipelines import Numbers
from stalls import LIMIT_SECS

import staging_tf1 as staging
from staging_tf1.errors import SpecError, StagingError
from staging_tf1.sources import ArraySource, GeneratorSource, Source, TFRecordSource, write_tfrecords

pytestmark = pytest.mark.usefixtures("quick_graphs")

# Steps run by several threads.


def in_two_threads(work: Callable[[], None]) -> None:
    begin = threading.Barrier(2)

    def begun() -> None:
        begin.wait(LIMIT_SECS)
        work()

    threads = [threading.Thread(target=begun) for _ in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(LIMIT_SECS)


@pytest.mark.parametrize("how", ["run", "make_callable"])
def test_threads_that_step_in_lockstep_see_every_batch_once(graph: Any, how: str) -> None:
    batch = staging.staged(ArraySource(np.arange(400), batch_size=2, epochs=1), lockstep=True)
    seen: list[int] = []
    with staging.StagingSession() as sess:
        step = sess.make_callable(batch) if how == "make_callable" else lambda: sess.run(batch)

        def take() -> None:
            with pytest.raises(tf.errors.OutOfRangeError):
                while True:
                    seen.extend(step())

        in_two_threads(take)
    assert sorted(seen) == list(range(400))


def test_threads_that_step_past_each_other_are_told(graph: Any) -> None:
    """A hook cannot make one thread wait for the other: two steps at the same time would put one batch twice."""
    inside, told = threading.Event(), threading.Event()

    def slow(number: Any) -> Any:
        inside.set()
        assert told.wait(LIMIT_SECS)
        return number

    batch = staging.staged(ArraySource(np.arange(20), batch_size=2, epochs=1), lockstep=True, name="train")
    held = tf.py_func(slow, [batch], tf.int64)
    with tf.train.MonitoredTrainingSession(hooks=[staging.StagingHook()]) as sess:
        other = threading.Thread(target=sess.run, args=(held,))
        other.start()
        assert inside.wait(LIMIT_SECS)
        with pytest.raises(RuntimeError, match="'train' is in lockstep, and two threads run steps of it at once"):
            sess.run(batch)
        told.set()
        other.join(LIMIT_SECS)
        assert sess.run(batch).tolist() == [2, 3], "the refused step has taken nothing"


# Reused memory, and changing structures.


@pytest.mark.parametrize("cache_bytes", [0, 10**6])
def test_a_parse_fn_may_use_one_array_for_all_records(tmp_path: Path, cache_bytes: int) -> None:
    (path,) = write_tfrecords([b"%d" % n for n in range(10)], tmp_path / "numbers.tfrecord")
    buffer = np.zeros(2, np.int64)

    def parse(record: bytes) -> Any:
        buffer[:] = int(record)
        return {"x": buffer}

    source = TFRecordSource(path, batch_size=5, parse_fn=parse, epochs=2, cache_bytes=cache_bytes)
    for index in range(4):
        start = 5 * (index % 2)
        assert source.batch(index)["x"][:, 0].tolist() == list(range(start, start + 5))


def test_the_fields_of_a_namedtuple_keep_their_order(graph: Any) -> None:
    first, other = namedtuple("P", "a b"), namedtuple("P", "b a")
    x, y = np.zeros(2), np.ones(2)
    batch = staging.staged(lambda: iter([first(x, y), other(y, x)]))
    with pytest.raises(SpecError, match="batch 1: the batch got the fields b, a, .* a, b, in this order"):
        with staging.StagingSession() as sess:
            while True:
                sess.run(batch)


@pytest.mark.parametrize("spec", [None, tf.TensorSpec([None], tf.int64)], ids=["inferred", "declared"])
@pytest.mark.parametrize("wrapped", [False, True], ids=["iterator", "source"])
def test_a_generator_object_feeds_one_pipeline_only(graph: Any, wrapped: bool, spec: Any) -> None:
    numbers = (np.array([n]) for n in range(10))
    values = GeneratorSource(numbers) if wrapped else numbers

    def both() -> None:
        batches = [staging.staged(values, spec=spec) for _ in range(2)]
        with staging.StagingSession() as sess:
            while True:
                sess.run(batches)

    if wrapped and spec is None:
        return  # one source, one reading: the second staged() asks for the spec that the first has found
    with pytest.raises(StagingError, match="was already read, and a generator object can be read only once"):
        both()


# Sizes that a source reports.


class Mine(Numbers):
    """A source whose answers a test can replace."""

    answers: dict[str, Any]

    def __init__(self, **answers: Any) -> None:
        super().__init__(6)
        self.answers = answers

    spec = property(lambda self: self.answers.get("spec", self._inner.spec))
    batch_size = property(lambda self: self.answers.get("batch_size", 1))
    num_batches = property(lambda self: self.answers.get("num_batches", 6))
    num_records = property(lambda self: self.answers.get("num_records", 6))

    def shard(self, index: int, count: int) -> Source:
        return self


@pytest.mark.parametrize("make", [staging.staged, staging.CustomRunner])
@pytest.mark.parametrize(
    "name, value",
    [(name, value) for name in ("batch_size", "num_batches", "num_records") for value in (-1, True, 2.0, "3", 2**70)]
    + [("batch_size", 0), ("batch_size", None)],
)
def test_a_source_that_counts_wrongly_is_named(graph: Any, make: Any, name: str, value: Any) -> None:
    message = rf"{make.__name__}.*: Mine got {name}=.*, expected a whole number"
    with pytest.raises((TypeError, ValueError), match=message):
        make(Mine(**{name: value}))
    assert not graph.get_operations()


@pytest.mark.parametrize("make", [staging.staged, staging.CustomRunner])
@pytest.mark.parametrize("spec", [None, 5, np.zeros(2), tf.TensorSpec([None], tf.int64), {"x": np.int64}])
def test_a_source_with_another_spec_is_named(graph: Any, make: Any, spec: Any) -> None:
    with pytest.raises(TypeError, match=r"Mine\.spec has .*, expected a nest of staging_tf1\.spec\.ArraySpec"):
        make(Mine(spec=spec))
    assert not graph.get_operations()


def test_a_source_that_is_its_own_shard_is_named(graph: Any) -> None:
    with pytest.raises(ValueError, match=r"Mine\.shard\(\) returned the same source for two towers, so both"):
        staging.staged(Mine(), devices=["/cpu:0", "/cpu:0"])
