"""`CustomRunner`: its arguments, its ops, its start, and the calls that it rejects."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest
import tensorflow.compat.v1 as tf
from ways_in import GivenStream

import staging_tf1 as staging
from staging_tf1.errors import SpecError, UninitializedError
from staging_tf1.sources import ArraySource
from staging_tf1.spec import ArraySpec

LIMIT_SECS = 20.0


def batches() -> Iterator[Any]:
    """Three batches, the last one partial."""
    yield {"x": np.arange(4), "y": np.zeros((4, 2), np.float32)}
    yield {"x": np.arange(4, 8), "y": np.zeros((4, 2), np.float32)}
    yield {"x": np.arange(8, 10), "y": np.zeros((2, 2), np.float32)}


def taken(sess: Any, fetch: Any) -> list[Any]:
    """Return the remaining batches, until the end of the data."""
    got = []
    try:
        while True:
            got.append(sess.run(fetch))
    except tf.errors.OutOfRangeError:
        return got


SOURCES = {
    "generator function": lambda: batches,
    "generator": batches,
    "list": lambda: list(batches()),
    "source": lambda: ArraySource({"x": np.arange(10)}, batch_size=4, epochs=1),
}


@pytest.mark.parametrize("kind", SOURCES)
@pytest.mark.parametrize("queue", ["shuffle", "fifo"])
def test_sources_of_every_kind(graph: Any, kind: str, queue: str) -> None:
    x = staging.CustomRunner(SOURCES[kind](), batch_size=3, queue=queue).get_inputs()["x"]
    with staging.StagingSession() as sess:
        got = taken(sess, x)
    assert [len(each) for each in got] == [3, 3, 3, 1], "the partial batch is delivered"
    assert sorted(np.concatenate(got)) == list(range(10))


def test_the_queue_and_the_placeholders_are_tensorflows(graph: Any) -> None:
    shuffle = staging.CustomRunner(batches, batch_size=4, capacity=100, min_after_dequeue=20)
    assert isinstance(shuffle.queue, tf.RandomShuffleQueue)
    assert shuffle.queue.dtypes == [tf.int64, tf.float32]
    assert shuffle.placeholders["y"].op.type == "Placeholder"
    assert shuffle.placeholders["y"].shape.as_list() == [None, 2]
    assert isinstance(staging.CustomRunner(batches, queue="fifo").queue, tf.FIFOQueue)


def test_it_starts_with_plain_queue_runners(graph: Any) -> None:
    x = staging.CustomRunner(batches, batch_size=5, queue="fifo").get_inputs()["x"]
    with tf.Session() as sess:
        coord = tf.train.Coordinator()
        threads = tf.train.start_queue_runners(sess, coord)
        assert [each.tolist() for each in taken(sess, x)] == [[0, 1, 2, 3, 4], [5, 6, 7, 8, 9]]
        coord.request_stop()
        coord.join(threads, stop_grace_period_secs=60)


def test_it_starts_once_a_session_and_again_in_the_next(graph: Any) -> None:
    runner = staging.CustomRunner(batches, batch_size=5, queue="fifo")
    x = runner.get_inputs()["x"]
    for _ in range(2):
        with tf.Session() as sess:
            coord = tf.train.Coordinator()
            threads = runner.start_threads(sess, coord)
            assert runner.start_threads(sess, coord) == []
            assert [t.name for t in threads] == ["feed:custom_runner:0", "feed:custom_runner:stop"]
            assert len(taken(sess, x)) == 2
            coord.request_stop()
            coord.join(threads, stop_grace_period_secs=60)


def test_a_generator_for_each_thread(graph: Any) -> None:
    readers: list[set[str]] = [set(), set(), set()]

    def counting(number: int) -> Any:
        def source() -> Iterator[Any]:
            for start in (0, 5):
                readers[number].add(threading.current_thread().name)
                yield 9 * number + np.arange(start, min(start + 5, 9))

        return source

    runner = staging.CustomRunner([counting(0), counting(1), counting(2)], batch_size=4)
    x = runner.get_inputs()
    for each in readers:
        each.clear()  # the main thread reads the first batch, which defines the spec
    with staging.StagingSession() as sess:
        got = np.concatenate(taken(sess, x))
    assert readers == [{"feed:custom_runner/0:0"}, {"feed:custom_runner/1:0"}, {"feed:custom_runner/2:0"}]
    assert sorted(got) == list(range(27))


def test_generators_of_different_length_fill_one_seeded_queue(graph: Any) -> None:
    def numbers(number: int) -> Any:
        return lambda: (100 * number + np.arange(start, start + 5) for start in range(0, 20 * number + 5, 5))

    x = staging.CustomRunner([numbers(0), numbers(1), numbers(2)], batch_size=4, seed=1).get_inputs()
    with staging.StagingSession(stall_secs=20, stall_raises=True) as sess:
        got = np.concatenate(taken(sess, x))
    assert sorted(got) == [*range(5), *range(100, 125), *range(200, 245)]


def test_several_threads_share_one_generator_safely(graph: Any) -> None:
    inside = threading.Lock()

    def source() -> Iterator[Any]:
        for number in range(200):
            assert inside.acquire(blocking=False), "two threads are inside the generator"
            inside.release()
            yield np.array([number])

    x = staging.CustomRunner(source, queue="fifo", num_threads=4).get_inputs()
    with staging.StagingSession() as sess:
        assert [int(each[0]) for each in taken(sess, x)] == list(range(200))


def test_endless_sources_have_static_batches(graph: Any) -> None:
    source = ArraySource(np.arange(10), batch_size=4)
    assert staging.CustomRunner(source, batch_size=3).get_inputs().shape.as_list() == [3]
    assert staging.CustomRunner(batches, batch_size=3).get_inputs()["x"].shape.as_list() == [None]


def test_a_shuffle_queue_shuffles_between_batches(graph: Any) -> None:
    source = ArraySource(np.arange(1000), batch_size=10, epochs=1)
    x = staging.CustomRunner(source, batch_size=10, min_after_dequeue=500, capacity=600, seed=1).get_inputs()
    with staging.StagingSession() as sess:
        first = sess.run(x)
    assert max(first) > 100, "a record from far behind came in the first batch"


def test_a_step_takes_from_a_full_seeded_queue_while_the_source_reads() -> None:
    stepped = threading.Event()

    def numbers() -> Iterator[Any]:
        for start in range(0, 40, 4):
            assert start != 12 or stepped.wait(LIMIT_SECS), "a full queue needs no further batch"
            yield np.arange(start, start + 4)

    orders = []
    for source in (numbers, lambda: np.split(np.arange(40), 10)):
        with tf.Graph().as_default(), tf.Session() as sess:
            x = staging.CustomRunner(source, batch_size=4, capacity=12, min_after_dequeue=4, seed=1).get_inputs()
            coord = tf.train.Coordinator()
            threads = staging.start(sess, coord)
            first = sess.run(x)
            stepped.set()
            orders.append(np.concatenate([first, *taken(sess, x)]).tolist())
            coord.request_stop()
            coord.join(threads)
    assert orders[0] == orders[1] != sorted(orders[0]) == list(range(40))


def test_threads_before_variables_are_refused(graph: Any) -> None:
    tf.get_variable("weights", [2])
    tf.get_variable("bias", [2])
    runner = staging.CustomRunner(batches, batch_size=2, name="train")
    with tf.Session() as sess, pytest.raises(UninitializedError) as caught:
        runner.start_threads(sess)
    text = str(caught.value)
    assert text.startswith("'train' (made at test_custom_runner.py:")
    assert text.endswith(
        "cannot start the feed threads: 2 variables are uninitialized: weights, bias. Run "
        "tf.global_variables_initializer() and tf.local_variables_initializer() first, or use StagingSession, which "
        "keeps this order."
    )


def test_a_batch_larger_than_the_queue_says_so(graph: Any) -> None:
    sizes = iter([np.arange(2), np.arange(50)])
    x = staging.CustomRunner(sizes, batch_size=4, capacity=10, min_after_dequeue=2, seed=3, name="q").get_inputs()
    with pytest.raises(SpecError) as caught, staging.StagingSession() as sess:
        sess.run(x)
    assert str(caught.value) == (
        "'q' got a batch of 50 records for a queue with capacity=10, and each dequeue needs 6. Expected a capacity of "
        "at least 56."
    )


def declared(*shape: int | None) -> staging.sources.GeneratorSource:
    """Return a generator of two batches, whose spec has this shape."""
    rows = [np.arange(3 * 2).reshape(3, 2)] * 2
    return staging.sources.GeneratorSource(lambda: iter(rows), spec=tf.TensorSpec(shape, tf.int64))


def zeros(dtype: Any) -> Any:
    return lambda: iter([np.zeros(2, dtype)])


TEN = ArraySource(np.arange(10), batch_size=4)
# What each argument alone may be is in `test_arguments.py`.
REFUSED: list[tuple[Callable[[], Any], str]] = [
    (
        lambda: staging.CustomRunner(batches, queue="fifo", min_after_dequeue=3),
        "CustomRunner got min_after_dequeue=3 with queue='fifo', which does not shuffle.",
    ),
    (
        lambda: staging.CustomRunner(TEN, capacity=20, min_after_dequeue=15, name="train").get_inputs(8),
        "CustomRunner 'train': capacity=20 never lets a batch through; expected at least 23 (min_after_dequeue=15 + "
        "batch_size=8). Raise capacity, or lower min_after_dequeue.",
    ),
    (
        lambda: staging.CustomRunner(batches).get_inputs(),
        "get_inputs() needs a batch_size, because neither the constructor nor",
    ),
    (
        lambda: staging.CustomRunner(batches, queue="fifo").get_inputs(3),
        "its queue holds whole batches as the source makes them. Give the constr",
    ),
    (
        lambda: staging.CustomRunner(declared(None, None), batch_size=2),
        "is int64 [?, ?], but a queue of single records needs a first dimension",
    ),
    (
        lambda: staging.CustomRunner([zeros(float), zeros(int)], batch_size=2),
        "CustomRunner: generator 1 yields ArraySpec(int64 [?]), generator 0 yields ArraySpec(float64 [?]).",
    ),
    (
        lambda: staging.CustomRunner([batches, batches], batch_size=2, num_threads=3),
        "got 2 generator functions and num_threads=3. Each generator has its own thread",
    ),
]


@pytest.mark.parametrize(("make", "text"), REFUSED, ids=lambda value: value[:40] if isinstance(value, str) else None)
def test_arguments_that_do_not_fit_together_are_refused(graph: Any, make: Callable[[], Any], text: str) -> None:
    with pytest.raises(ValueError) as caught:
        make()
    assert text in str(caught.value)


@pytest.mark.parametrize("queue", ["fifo", "shuffle"])
def test_rows_without_values_want_whole_batches(graph: Any, queue: str) -> None:
    source = staging.sources.ArraySource({"x": np.zeros([6, 2, 0]), "y": np.arange(6)}, batch_size=2, epochs=1)
    with pytest.raises(SpecError) as caught:
        staging.CustomRunner(source, batch_size=2, queue=queue, name="train")
    assert str(caught.value) == (
        "CustomRunner 'train': component 'x' is float64 [2, 2, 0], which a queue of single records cannot hold: "
        "TensorFlow crashes when it splits rows without values. Queue whole batches: queue='fifo' without batch_size."
    )
    batch = staging.CustomRunner(source, queue="fifo").get_inputs()
    with staging.StagingSession() as sess:
        assert sess.run(batch)["x"].shape == (2, 2, 0)


def rows_of(count: int, **options: Any) -> staging.sources.ArraySource:
    numbers = np.arange(count * 2).reshape(count, 2)
    return staging.sources.ArraySource(numbers, **{"batch_size": 3, "epochs": 1, **options})


# Inputs of one queue, and the records in it; None if they are refused.
TOGETHER: dict[str, tuple[list[Any], int | None]] = {
    "shards, one with a rest": ([rows_of(7).shard(0, 2), rows_of(7).shard(1, 2)], 7),
    "shards without a rest": ([rows_of(12).shard(0, 2), rows_of(12).shard(1, 2)], 12),
    "a shard without the rest": ([rows_of(7), rows_of(7, drop_remainder=True)], 13),
    "batches of other sizes": ([rows_of(6), rows_of(8, batch_size=4)], 14),
    "a declared number of rows": ([declared(3, 2), declared(None, 2)], 12),
    "an array and a generator": ([rows_of(6), lambda: iter([np.zeros([2, 2], int)])], 8),
    "rows of other sizes": ([declared(3, 2), declared(3, None)], None),
    "no rows": ([declared(3, 2), declared()], None),
    "other ranks": ([declared(3, 2), declared(3)], None),
}


@pytest.mark.parametrize("batch_size", [None, 2])
@pytest.mark.parametrize("which", TOGETHER)
def test_inputs_of_one_queue_may_differ_in_the_number_of_rows(graph: Any, which: str, batch_size: int | None) -> None:
    given, count = TOGETHER[which]
    if count is None:
        with pytest.raises(SpecError, match="All generators of one queue must yield the same components"):
            staging.CustomRunner(given, queue="fifo", batch_size=batch_size)
        return
    batch = staging.CustomRunner(given, queue="fifo", batch_size=batch_size).get_inputs()
    taken = []
    with staging.StagingSession() as sess:
        while not sess.should_stop():
            taken += sess.run(batch).tolist()
    assert len(taken) == count


def test_each_input_keeps_to_its_own_number_of_rows(graph: Any) -> None:
    spec = ArraySpec((4, 2), np.int64)
    inputs = [rows_of(6), GivenStream(lambda: np.zeros([3, 2], int), spec)]
    batch = staging.CustomRunner(inputs, queue="fifo").get_inputs()
    with (
        pytest.raises(SpecError, match=r"'custom_runner/1': batch 0.* int64 \[4, 2\]"),
        staging.StagingSession() as sess,
    ):
        while not sess.should_stop():
            sess.run(batch)
