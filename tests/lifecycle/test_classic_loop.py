"""The hand-written loop, `sess.run([got, put])` to the end of the data and then a drain, loses no batch."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
import pytest
import tensorflow.compat.v1 as tf
from stalls import LIMIT_SECS, SECS, Reports, stall, watched_session

import staging_tf1 as staging
from staging_tf1.errors import LeftoverWarning
from staging_tf1.lifecycle.classic import ClassicLoops

pytestmark = pytest.mark.usefixtures("quick_graphs")

COUNT, BATCH = 100, 10


def batches(count: int = COUNT) -> Iterator[Any]:
    for start in range(0, count, BATCH):
        yield np.arange(start, start + BATCH)


@contextmanager
def plain(config: Any = None) -> Iterator[Any]:
    coord = tf.train.Coordinator()
    with tf.Session(config=config) as sess:
        threads = staging.start(sess, coord)
        yield sess.run
        coord.request_stop()
        coord.join(threads)


@contextmanager
def helper(config: Any = None) -> Iterator[Any]:
    with staging.StagingSession(config=config) as sess:
        yield sess.run


@contextmanager
def callables(config: Any = None) -> Iterator[Any]:
    made: dict[str, Any] = {}
    with staging.StagingSession(config=config) as sess:

        def run(fetches: Any) -> Any:
            return made.setdefault(str(fetches), sess.make_callable(fetches))()

        yield run


@contextmanager
def monitored(config: Any = None) -> Iterator[Any]:
    with tf.train.MonitoredTrainingSession(hooks=[staging.StagingHook()], config=config) as sess:
        yield sess.run


SESSIONS = {"start()": plain, "StagingSession": helper, "make_callable": callables, "hook": monitored}
QUEUES: dict[str, dict[str, Any]] = {
    "whole batches": {"queue": "fifo"},
    "records": {"queue": "fifo", "batch_size": BATCH},
    "shuffled": {"queue": "shuffle", "batch_size": BATCH},
    "shuffled, seeded": {"queue": "shuffle", "batch_size": BATCH, "seed": 1},
    "another size": {"queue": "fifo", "batch_size": 7},
}


def to_the_end(run: Callable[[Any], Any], fetches: Any) -> list[Any]:
    """Return the results of the runs until the end of the data."""
    found = []
    with pytest.raises(tf.errors.OutOfRangeError):
        while True:
            found.append(run(fetches))
    return found


@pytest.mark.thinned
@pytest.mark.parametrize("queue", QUEUES)
@pytest.mark.parametrize("how", SESSIONS)
def test_every_record_is_seen(graph: Any, how: str, queue: str) -> None:
    x = staging.CustomRunner(batches, **QUEUES[queue]).get_inputs()
    area = staging.StagingArea.from_tensors(x, capacity=2)
    put, got = area.put(x), area.get()[0]
    with SESSIONS[how]() as run:
        run(put)
        steps = [found[0] for found in to_the_end(run, [got, put])]
        drained = to_the_end(run, got)
    # The failed step took nothing: the drain gets the last batch, and then the end.
    assert len(drained) == 1
    assert sorted(np.concatenate(steps + drained)) == list(range(COUNT))


def plainly(queue: Any) -> Any:
    return queue.dequeue_many(BATCH)


def one_by_one(queue: Any) -> Any:
    return tf.stack([queue.dequeue() for _ in range(3)])


def what_is_there(queue: Any) -> Any:
    return queue.dequeue_up_to(2 * BATCH)


def in_a_loop(queue: Any) -> Any:
    return tf.while_loop(lambda i, got: i < 3, lambda i, got: (i + 1, queue.dequeue()), [0, tf.constant(0, tf.int64)])[
        1
    ]


def in_a_function(queue: Any) -> Any:
    return tf.function(lambda: queue.dequeue_many(BATCH))()


TAKERS: dict[str, Callable[[Any], Any]] = {
    each.__name__: each for each in (plainly, one_by_one, what_is_there, in_a_loop, in_a_function)
}


@pytest.mark.thinned
@pytest.mark.parametrize("at", [0, 3, 7])
@pytest.mark.parametrize("how", SESSIONS)
@pytest.mark.parametrize("taker", TAKERS)
def test_a_loop_notices_what_others_take_from_its_queue(graph: Any, taker: str, how: str, at: int) -> None:
    runner = staging.CustomRunner(batches, queue="fifo", batch_size=BATCH, capacity=COUNT)
    x = runner.get_inputs()
    area = staging.StagingArea.from_tensors(x, capacity=2)
    put, got, size = area.put(x), area.get()[0], runner.queue.size()
    taken = TAKERS[taker](runner.queue)
    with SESSIONS[how]() as run:
        while run(size) < COUNT:
            pass
        run(put)
        before = [run([got, put])[0] for _ in range(at)]
        run(taken)
        steps = [found[0] for found in to_the_end(run, [got, put])]
        drained = to_the_end(run, got)
    # Nothing is lost from the area when the step meets the end.
    assert len(drained) == 1
    records = np.concatenate(before + steps + drained).tolist()
    gap = next((i for i in range(1, len(records)) if records[i] != records[i - 1] + 1), len(records))
    assert records[:gap] == list(range(gap)) and gap == BATCH * (at + 1)
    assert records[gap:] == list(range(records[gap] if gap < len(records) else COUNT, COUNT))


def test_the_loop_reads_the_size_of_its_queue_once_for_many_steps(graph: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    reads = []
    make = ClassicLoops._reader

    def counted(self: ClassicLoops, tensors: Any) -> Any:
        read = make(self, tensors)
        return lambda: reads.append(1) or read()

    monkeypatch.setattr(ClassicLoops, "_reader", counted)
    runner = staging.CustomRunner(batches, queue="fifo", batch_size=BATCH, capacity=COUNT)
    x = runner.get_inputs()
    area = staging.StagingArea.from_tensors(x, capacity=2)
    put, got, size = area.put(x), area.get()[0], runner.queue.size()
    with staging.StagingSession() as sess:
        while sess.run(size) < COUNT:
            pass
        sess.run(put)
        reads.clear()
        for _ in range(9):
            sess.run([got, put])
        assert len(reads) == 1
        with pytest.raises(tf.errors.OutOfRangeError):
            sess.run([got, put])
        assert sess.run(got).tolist() == list(range(90, 100))


@pytest.mark.parametrize("how", SESSIONS)
def test_an_area_behind_a_staged_source(graph: Any, how: str) -> None:
    x = staging.staged(staging.sources.ArraySource(np.arange(COUNT), batch_size=BATCH, epochs=1))
    area = staging.StagingArea.from_tensors(x, capacity=2)
    put, got = area.put(x), area.get()[0]
    with SESSIONS[how]() as run:
        run(put)
        found = [found[0] for found in to_the_end(run, [got, put])] + to_the_end(run, got)
    assert np.concatenate(found).tolist() == list(range(COUNT))


@pytest.mark.parametrize("how", SESSIONS)
def test_the_end_comes_while_the_step_waits(graph: Any, reports: Reports, monkeypatch: Any, how: str) -> None:
    waits = threading.Event()
    reports.on_report = waits.set
    monkeypatch.setenv("STAGING_TF1_STALL_SECS", str(SECS))

    def late() -> Iterator[Any]:
        yield from batches()
        assert waits.wait(LIMIT_SECS), "the step that waits is reported"

    x = staging.CustomRunner(late, queue="fifo").get_inputs()
    area = staging.StagingArea.from_tensors(x, capacity=2)
    put, got = area.put(x), area.get()[0]
    with SESSIONS[how]() as run:
        run(put)
        found = [found[0] for found in to_the_end(run, [got, put])] + to_the_end(run, got)
    assert np.concatenate(found).tolist() == list(range(COUNT)), "each once, in order"


def test_two_areas_of_one_queue_take_both_or_nothing(graph: Any) -> None:
    runner = staging.CustomRunner(lambda: batches(7 * BATCH), queue="fifo")
    inputs = [runner.get_inputs() for _ in range(2)]
    areas = [staging.StagingArea.from_tensors(x, capacity=2) for x in inputs]
    puts = [area.put(x) for area, x in zip(areas, inputs)]
    gots = [area.get()[0] for area in areas]
    with pytest.warns(LeftoverWarning, match=r"no step has taken the last 1 element\(s\)"), plain() as run:
        run(puts)
        found = [each for step in to_the_end(run, [gots, puts]) for each in step[0]]
        found += [each for got in gots for each in to_the_end(run, got)]
    # Two areas take six of seven batches. The seventh was read, and the warning counts it.
    assert sorted(np.concatenate(found)) == list(range(6 * BATCH))


def test_two_areas_with_halves_of_each_batch(graph: Any) -> None:
    halves = tf.split(staging.CustomRunner(batches, queue="fifo").get_inputs(), 2)
    areas = [staging.StagingArea.from_tensors(half, capacity=2) for half in halves]
    puts = [area.put(half) for area, half in zip(areas, halves)]
    gots = [area.get()[0] for area in areas]
    with helper() as run:
        run(puts)
        found = [each for step in to_the_end(run, [gots, puts]) for each in step[0]] + to_the_end(run, gots)[0]
    assert np.concatenate(found).tolist() == list(range(COUNT))


@pytest.mark.parametrize("how", SESSIONS)
def test_what_is_fetched_beside_the_put_is_what_is_put(graph: Any, how: str) -> None:
    x = staging.CustomRunner(batches, queue="fifo").get_inputs()
    area = staging.StagingArea.from_tensors(x, capacity=2)
    put, got, total = area.put(x), area.get()[0], tf.reduce_sum(x)
    with SESSIONS[how]() as run:
        beside = [run([x, total, put])[:2]]
        steps = to_the_end(run, [got, x, total, put])
        drained = to_the_end(run, got)
    beside += [step[1:3] for step in steps]
    taken = [step[0] for step in steps] + drained
    assert [each.tolist() for each in taken] == [each.tolist() for each, _ in beside] == [b.tolist() for b in batches()]
    assert [sum(each) for each in taken] == [total for _, total in beside]


@pytest.mark.parametrize("how", SESSIONS)
def test_a_loop_without_a_drain_is_told_what_it_left(graph: Any, how: str) -> None:
    x = staging.CustomRunner(batches, queue="fifo").get_inputs()
    area = staging.StagingArea.from_tensors(x, capacity=2)
    put, got = area.put(x), area.get()[0]
    text = r"\(made at test_classic_loop.py:\d+\): the input has ended, and no step has taken the last 1 element"
    with pytest.warns(LeftoverWarning, match=text), SESSIONS[how]() as run:
        run(put)
        assert len(to_the_end(run, [got, put])) == COUNT // BATCH - 1


@pytest.mark.parametrize("how", SESSIONS)
def test_what_the_source_raises_is_not_the_end(graph: Any, how: str) -> None:
    def broken() -> Iterator[Any]:
        yield from batches(3 * BATCH)
        raise KeyError("gone")

    x = staging.CustomRunner(broken, queue="fifo").get_inputs()
    area = staging.StagingArea.from_tensors(x, capacity=2)
    put, got = area.put(x), area.get()[0]
    with pytest.raises(KeyError, match="gone"), SESSIONS[how]() as run:
        run(put)
        try:
            while True:
                run([got, put])
        except tf.errors.OutOfRangeError:
            if how != "start()":
                raise  # a plain session leaves the error to the coordinator


def test_an_area_that_others_fill_too_has_no_end(graph: Any) -> None:
    """Data that a feed dict can supply does not end with the queue; its get blocks, as in TensorFlow."""
    x = staging.CustomRunner(lambda: batches(2 * BATCH), queue="fifo").get_inputs()
    area = staging.StagingArea.from_tensors(x)
    put, got, by_hand = area.put(x), area.get()[0], tf.placeholder(tf.int64, [BATCH])
    put_by_hand = area.put(by_hand)
    with watched_session() as sess:
        sess.run(put)
        assert len(to_the_end(sess.run, [got, put])) == 1
        sess.run(put_by_hand, {by_hand: range(BATCH)})
        assert [sess.run(got).tolist() for _ in range(2)] == [list(range(BATCH, 2 * BATCH)), list(range(BATCH))]
        cause = stall(sess, got)
    assert "is empty: this run gets from it, and nothing puts into it" in cause


def test_a_user_who_feeds_the_batch_takes_none(graph: Any) -> None:
    x = staging.CustomRunner(lambda: batches(BATCH), queue="fifo").get_inputs()
    area = staging.StagingArea.from_tensors(x)
    put, got = area.put(x), area.get()[0]
    with tf.Session() as sess:
        coord = tf.train.Coordinator()
        threads = staging.start(sess, coord)
        for number in range(5):
            sess.run(put, {x: np.full(BATCH, number)})
            assert sess.run(got).tolist() == [number] * BATCH
        sess.run(put)
        assert sess.run(got).tolist() == list(range(BATCH))
        coord.request_stop()
        coord.join(threads)


def test_a_thread_that_puts_beside_the_loop(graph: Any) -> None:
    """A get sees the end of the data only when no put is running."""
    x = staging.CustomRunner(batches, queue="fifo").get_inputs()
    area = staging.StagingArea.from_tensors(x, capacity=2)
    put, got = area.put(x), area.get()[0]
    with plain() as run:
        put_one = threading.Semaphore(0)

        def put_all() -> None:
            for _ in range(COUNT // BATCH):
                run(put)
                put_one.release()
            # Until the feed thread has closed the queue, more may come, and a get waits for it.
            to_the_end(run, put)

        thread = threading.Thread(target=put_all)
        thread.start()
        found = []
        for _ in range(COUNT // BATCH):
            assert put_one.acquire(timeout=LIMIT_SECS)
            found.append(run(got))
        thread.join()
        assert to_the_end(run, got) == []
    assert np.concatenate(found).tolist() == list(range(COUNT))


# The report for input that the package does not own.


def test_the_report_of_a_drain_after_the_end_of_a_dataset(graph: Any) -> None:
    number = tf.data.make_one_shot_iterator(tf.data.Dataset.range(1)).get_next()
    area = staging.StagingArea([tf.int64], [[]], capacity=2)
    put, got = area.put(number), area.get()[0]
    with watched_session() as sess:
        sess.run(put)
        assert sess.run(got) == 0
        cause = stall(sess, got)
    assert cause.endswith("then fetch put and get in every step; if its input has ended, leave out the last get.")
