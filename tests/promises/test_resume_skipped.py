"""A run that skips bad batches resumes after the last good batch of a step: no batch comes twice or is lost."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tensorflow.compat.v1 as tf
from pipelines import BrokenDiskError, Numbers
from resuming import resumed_steps

import staging_tf1 as staging
from staging_tf1.errors import SpecError
from staging_tf1.feed.pipeline import pipelines_of
from staging_tf1.feed.tally import counts_of
from staging_tf1.graph.dependencies import ancestors
from staging_tf1.lifecycle.lockstep import Lockstep
from staging_tf1.sources import ArraySource, GeneratorSource, StreamSource
from staging_tf1.spec import ArraySpec

pytestmark = pytest.mark.usefixtures("quick_graphs")

COUNT = 20
# For one tower and for each of two: the first, the last, single ones, several in a row, equally many good ones.
BAD = frozenset({0, 1, 4, 6, 9, 11, 12, 13, 18, 19})
GOOD = [number for number in range(COUNT) if number not in BAD]
TOWERS = ["/cpu:0", "/cpu:0"]
# Steps between two restarts.
PARTS = (1, 2, None)


def saved_positions(pipeline: Any, sess: Any) -> tuple[int, ...]:
    """Return the positions that a checkpoint saved at this moment would hold."""
    position = pipeline.position
    return position.parsed(sess.run(position.saved)).positions


def numbers() -> Numbers:
    def trouble(number: int, batch: Any) -> Any:
        if number in BAD:
            raise BrokenDiskError(f"no batch {number}")
        return batch

    return Numbers(COUNT, trouble)


def steps(folder: Path, values: Any, count: int | None, **options: Any) -> list[list[int]]:
    """Return each tower's records of up to `count` steps, in a session that restores the checkpoint in `folder`."""
    options = dict(ignored_exception_types=BrokenDiskError, name="train") | options
    got = resumed_steps(folder, values, count, **options)
    towers = range(len(options.get("devices", [None])))
    return [[number for step in got for number in np.ravel(step[tower]).tolist()] for tower in towers]


def in_parts(folder: Path, values: Callable[[], Any], parts: tuple[int | None, ...], **options: Any) -> list[list[int]]:
    got: list[list[int]] = [[] for _ in options.get("devices", [None])]
    for count in parts:
        for tower, more in zip(got, steps(folder, values, count, **options)):
            tower.extend(more)
    return got


def position(folder: Path) -> list[int]:
    held: list[int] = tf.train.load_checkpoint(str(folder)).get_tensor("train/position").tolist()
    return held


# Threads without processes or lockstep.
@pytest.mark.slow_cases(".*num_threads.*")
@pytest.mark.parametrize("options", [dict(), dict(num_threads=4, capacity=6), dict(lockstep=True)], ids=str)
def test_the_parts_of_a_run_are_the_good_batches(tmp_path: Path, options: dict[str, Any]) -> None:
    assert in_parts(tmp_path, numbers, PARTS, **options) == [GOOD]
    # Bad batches at the end are followed by no good one, and are skipped again.
    assert position(tmp_path) == [GOOD[-1] + 1] and steps(tmp_path, numbers, None, **options) == [[]]


# Threads without processes or lockstep.
@pytest.mark.slow_cases(".*num_threads.*")
@pytest.mark.parametrize("options", [dict(), dict(num_threads=4, capacity=3), dict(lockstep=True)], ids=str)
def test_each_tower_goes_on_in_its_own_shard(tmp_path: Path, options: dict[str, Any]) -> None:
    got = in_parts(tmp_path, numbers, PARTS, devices=TOWERS, **options)
    assert got == [[n for n in GOOD if n % 2 == tower] for tower in (0, 1)]
    assert position(tmp_path) == [each[-1] // 2 + 1 for each in got]


def test_the_position_is_behind_the_last_good_batch_that_a_step_had(tmp_path: Path) -> None:
    for number in GOOD[:3]:
        assert steps(tmp_path, numbers, 1, capacity=8, num_threads=4) == [[number]]
        assert position(tmp_path) == [number + 1]


def test_across_epochs(tmp_path: Path) -> None:
    def transform(batch: Any, rng: Any) -> Any:
        if batch[0] in (2, 3, 5):
            raise BrokenDiskError(f"no batch {batch[0]}")
        return batch

    def source() -> ArraySource:
        return ArraySource(np.arange(6), batch_size=1, epochs=3, transform=transform)

    assert in_parts(tmp_path, source, (2, 1, 3, None)) == [[0, 1, 4] * 3]


class Patchy(StreamSource):
    """A stream of numbers that continues after a bad one, at which it raises or returns another dtype.

    Its state is the next number. Without a state it reads from the beginning.
    """

    can_resume = keeps_state = True
    spec = ArraySpec((1,), np.dtype(np.int64))

    def __init__(self, misfits: bool) -> None:
        self.misfits, self.read = misfits, []  # type: bool, list[int]
        self.begins: dict[int, int] = {}

    def resolve_spec(self) -> Any:
        return self.spec

    def batches(self, start: int = 0) -> Iterator[Any]:
        return Reading(self, self.begins.get(start, 0), start)

    def state(self, position: int) -> bytes:
        return b"%d" % position

    def restore(self, position: int, state: bytes) -> None:
        self.begins[position] = int(state)


class Reading:
    """An iterator, which unlike a generator continues after it raises."""

    def __init__(self, source: Patchy, number: int, start: int) -> None:
        self._source, self._number, self._start = source, number, start

    def __iter__(self) -> Reading:
        return self

    def __next__(self) -> Any:
        while True:
            number = self._number
            if number == COUNT:
                raise StopIteration
            self._number += 1
            self._source.read.append(number)
            if number < self._start:
                continue
            if number not in BAD:
                return np.array([number])
            if self._source.misfits:
                return np.array([float(number)])
            raise BrokenDiskError(f"no batch {number}")


@pytest.mark.thinned
@pytest.mark.parametrize("misfits", [False, True])
@pytest.mark.parametrize("options", [dict(), dict(num_threads=3, capacity=5), dict(lockstep=True)], ids=str)
def test_a_stream_goes_on_from_the_state_behind_its_position(
    tmp_path: Path, options: dict[str, Any], misfits: bool
) -> None:
    options = options | dict(ignored_exception_types=(BrokenDiskError, SpecError))
    got: list[int] = []
    for count in (1, 3, None):
        source = Patchy(misfits)
        more = steps(tmp_path, lambda source=source: source, count, **options)[0]
        assert source.read[0] == (got[-1] + 1 if got else 0), "nothing is read again"
        got += more
    assert got == GOOD


def test_a_generator_that_may_skip_ends_at_its_exception_again(tmp_path: Path) -> None:
    def upto_bad() -> Iterator[Any]:
        yield from (np.array([n]) for n in range(5))
        raise BrokenDiskError("no batch 5")

    def source() -> GeneratorSource:
        return GeneratorSource(upto_bad, resume="skip")

    assert in_parts(tmp_path, source, (1, 2, None, None)) == [[0, 1, 2, 3, 4]]


@pytest.mark.parametrize("options", [dict(), dict(lockstep=True), dict(devices=TOWERS)], ids=str)
def test_a_dataset_goes_on_behind_as_many_good_elements(tmp_path: Path, options: dict[str, Any]) -> None:
    def check(number: Any) -> Any:
        bad = tf.reduce_any(tf.equal(number, tf.constant(sorted(BAD), tf.int64)))
        with tf.control_dependencies([tf.debugging.Assert(tf.logical_not(bad), ["bad"])]):
            return tf.identity(number)[tf.newaxis]

    def dataset() -> Any:
        return tf.data.Dataset.range(COUNT).map(check)

    options = options | dict(ignored_exception_types=tf.errors.InvalidArgumentError)
    got = in_parts(tmp_path, dataset, (2, 2, None), **options)
    assert got == [GOOD[tower :: len(got)] for tower in range(len(got))]


def test_threads_that_take_steps_at_once_lose_no_count(graph: Any) -> None:
    ids = staging.staged(numbers(), ignored_exception_types=BrokenDiskError)["id"]
    (pipeline,) = pipelines_of(graph)
    got: list[int] = []
    with tf.Session() as sess:
        sess.run([tf.global_variables_initializer(), tf.local_variables_initializer()])
        coord = tf.train.Coordinator()
        threads = staging.start(sess, coord)

        def take() -> None:
            try:
                while True:
                    got.extend(sess.run(ids).tolist())
            except tf.errors.OutOfRangeError:
                return

        takers = [threading.Thread(target=take) for _ in range(3)]
        for taker in takers:
            taker.start()
        for taker in takers:
            taker.join(20)
        reached = saved_positions(pipeline, sess)
        coord.request_stop()
        coord.join(threads, stop_grace_period_secs=60)
    assert sorted(got) == GOOD and reached == (GOOD[-1] + 1,)


def test_an_element_that_a_failed_step_staged_keeps_its_count(graph: Any) -> None:
    ids = staging.staged(numbers(), lockstep=True, ignored_exception_types=BrokenDiskError)["id"]
    (pipeline,) = pipelines_of(graph)
    (stage,) = (op for op in ancestors([pipeline.sinks[0].put]) if op.type == "Stage")
    got: list[int] = []
    with tf.Session() as sess:
        sess.run([tf.global_variables_initializer(), tf.local_variables_initializer()])
        lockstep = Lockstep(pipeline, sess)
        sess.run(*lockstep.first_puts())
        lockstep.have_put()
        for number in range(len(GOOD)):
            puts, feeds = lockstep.before([0])
            if number == 1:  # the next batch counts for two
                assert feeds[pipeline.sinks[0].stamp] == 2
                sess.run(stage, feeds)  # a step that fails between the two ops of its put
                lockstep.repair(counts_of(pipeline.sinks, sess))
                puts, feeds = lockstep.before([0])
            got.extend(sess.run([ids, *puts], feeds)[0].tolist())
            lockstep.after([0])
            assert saved_positions(pipeline, sess) == (got[-1] + 1,)
    assert got == GOOD


def test_who_skips_nothing_feeds_and_counts_no_more_than_before(graph: Any) -> None:
    staging.staged(Numbers(4))
    sink = pipelines_of(graph)[0].sinks[0]
    assert sink.stamp is None and sink.queue.dtypes == [tf.int32]
    assert not [op for op in graph.get_operations() if op.type == "PlaceholderWithDefault"]
