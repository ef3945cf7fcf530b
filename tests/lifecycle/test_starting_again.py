"""Pipelines that are started again in one session, and iterators that the program initializes when it likes."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from typing import Any

import numpy as np
import pytest
import tensorflow.compat.v1 as tf

import staging_tf1 as staging
from staging_tf1.errors import BuildError, ResumeError, UninitializedError
from staging_tf1.sources import ArraySource, GeneratorSource

RECORDS = 60


def source(**options: Any) -> Any:
    return ArraySource(np.arange(RECORDS), **{"batch_size": 1, "epochs": 1, **options})


def generator(**options: Any) -> Any:
    def numbers() -> Iterator[Any]:
        for number in range(RECORDS):
            yield np.array([number])

    return GeneratorSource(numbers, spec=tf.TensorSpec([1], tf.int64), **options)


def dataset(first: int = 0, count: int = RECORDS) -> Any:
    return tf.data.Dataset.range(first, first + count).batch(1)


def get_next() -> Any:
    return tf.data.make_initializable_iterator(dataset()).get_next()


# What continues when it is started again, and what cannot: it has no position.
POSITIONED: dict[str, Callable[[], list[Any]]] = {
    "source": lambda: [staging.staged(source())],
    "restart": lambda: [staging.staged(source(), resume="restart")],
    "three threads": lambda: [staging.staged(source(), num_threads=3)],
    "towers": lambda: staging.staged(source(), devices=["/cpu:0"] * 2),
    "dataset": lambda: [staging.staged(dataset())],
    "shuffled": lambda: [staging.staged(source(shuffle=True, seed=3))],
    "skipping generator": lambda: [staging.staged(generator(resume="skip"))],
    "two pipelines": lambda: [staging.staged(source(), name="a"), staging.staged(source(), name="b")],
    "processes": lambda: [staging.staged(source(), num_processes=1)],
}
OF_UNKNOWN_LENGTH = ("dataset", "skipping generator")
WITHOUT_POSITION: dict[str, Callable[[], Any]] = {
    "generator": lambda: staging.staged(generator()),
    "queue": lambda: staging.CustomRunner(source(), queue="fifo").get_inputs(),
    "classic": lambda: staging.staged(staging.CustomRunner(source(), queue="fifo").get_inputs()),
    "iterator": lambda: staging.staged(get_next()),
}


def stopped(coord: Any, threads: Any) -> None:
    coord.request_stop()
    coord.join(threads)


@pytest.mark.slow_cases("processes", "shuffled")
@pytest.mark.parametrize("kind", POSITIONED)
def test_a_second_start_continues_with_the_next_batch(graph: Any, kind: str) -> None:
    batches = POSITIONED[kind]()
    got: list[list[int]] = [[] for _ in batches]
    with tf.Session() as sess:
        sess.run(tf.global_variables_initializer())
        for steps in (5, 1, 7, RECORDS):
            coord = tf.train.Coordinator()
            threads = staging.start(sess, coord)
            with pytest.raises(tf.errors.OutOfRangeError) if steps == RECORDS else nullcontext():
                for _ in range(steps):
                    for tower, values in zip(got, sess.run(batches)):
                        tower += np.ravel(values).tolist()
            stopped(coord, threads)
        if kind not in OF_UNKNOWN_LENGTH:
            with pytest.raises(ResumeError, match=r"cannot start again, because its steps have consumed all its \d+"):
                staging.start(sess, tf.train.Coordinator())
    alike = [list(range(RECORDS))] * len(batches) if kind != "towers" else [list(range(RECORDS))[n::2] for n in (0, 1)]
    assert got == alike if kind != "shuffled" else sorted(got[0]) == alike[0]


@pytest.mark.parametrize("kind", WITHOUT_POSITION)
@pytest.mark.parametrize("start", [staging.start, tf.train.start_queue_runners])
def test_a_second_start_without_a_position_is_refused(graph: Any, kind: str, start: Any) -> None:
    batch = WITHOUT_POSITION[kind]()
    with tf.Session() as sess:
        sess.run([op for op in tf.get_default_graph().get_operations() if op.type == "MakeIterator"])
        coord = tf.train.Coordinator()
        threads = start(sess, coord=coord)
        sess.run(batch)
        stopped(coord, threads)
        with pytest.raises(ResumeError, match=r"stopped in this session and cannot start again.*no position"):
            start(sess, coord=tf.train.Coordinator())


def test_a_stopped_coordinator_is_refused(graph: Any) -> None:
    staging.staged(source())
    coord = tf.train.Coordinator()
    coord.request_stop()
    with tf.Session() as sess, pytest.raises(ValueError, match=r"coord that has been told to stop.*clear_stop"):
        staging.start(sess, coord)


def test_an_iterator_initialized_between_two_starts_begins_anew(graph: Any) -> None:
    iterator = tf.data.make_initializable_iterator(dataset())
    batch = staging.staged(iterator.get_next())
    with tf.Session() as sess:
        for _ in range(3):
            sess.run(iterator.initializer)
            coord = tf.train.Coordinator()
            threads = staging.start(sess, coord)
            assert [int(sess.run(batch)[0]) for _ in range(7)] == list(range(7))
            stopped(coord, threads)


class Initializes(tf.train.SessionRunHook):  # type: ignore[misc]
    """The idiom of input functions with an iterator."""

    def __init__(self, initializer: Any) -> None:
        self._initializer = initializer

    def after_create_session(self, session: Any, coord: Any) -> None:
        session.run(self._initializer)


@contextmanager
def plain(initializer: Any) -> Iterator[Any]:
    coord = tf.train.Coordinator()
    with tf.Session() as sess:
        sess.run([tf.global_variables_initializer(), initializer])
        threads = staging.start(sess, coord)
        yield sess
        stopped(coord, threads)


# Sessions in which the iterator is initialized.
SESSIONS: dict[str, Callable[[Any], Any]] = {
    "StagingSession": lambda op: staging.StagingSession(hooks=[Initializes(op)]),
    "hook before ours": lambda op: tf.train.MonitoredTrainingSession(hooks=[Initializes(op), staging.StagingHook()]),
    "hook after ours": lambda op: tf.train.MonitoredTrainingSession(hooks=[staging.StagingHook(), Initializes(op)]),
    "without our hook": lambda op: tf.train.MonitoredTrainingSession(hooks=[Initializes(op)]),
    "local_init_op": lambda op: staging.StagingSession(
        scaffold=tf.train.Scaffold(
            local_init_op=tf.group(tf.local_variables_initializer(), tf.tables_initializer(), op)
        )
    ),
    "plain": plain,
}
# How an iterator's batches are staged.
STAGED: dict[str, Callable[[Any], list[Any]]] = {
    "staged": lambda values: [staging.staged(values)],
    "lockstep": lambda values: [staging.staged(values, lockstep=True)],
    "towers": lambda values: staging.staged(values, devices=["/cpu:0"] * 2),
    # In any order.
    "two threads": lambda values: [staging.staged(values, num_threads=2)],
    "capacity 4": lambda values: [staging.staged(values, capacity=4)],
}


def taken(sess: Any, batches: list[Any], steps: int) -> list[int]:
    return [int(value[0]) for _ in range(steps) for value in sess.run(batches)]


@pytest.mark.thinned
@pytest.mark.parametrize("how", STAGED)
@pytest.mark.parametrize("session", SESSIONS)
def test_each_initialization_begins_a_pass(graph: Any, session: str, how: str) -> None:
    if "lockstep" in how and session in ("plain", "without our hook"):
        pytest.skip("lockstep needs StagingSession or StagingHook")
    first = tf.placeholder_with_default(np.int64(0), [])
    iterator = tf.data.make_initializable_iterator(tf.data.Dataset.range(first, first + RECORDS).batch(1))
    batches = STAGED[how](iterator.get_next())
    rest = RECORDS // len(batches)
    with SESSIONS[session](iterator.initializer) as sess:
        pass_so_far = sorted(taken(sess, batches, 3))
        assert pass_so_far == list(range(3 * len(batches))) or (how == "two threads" and max(pass_so_far) < RECORDS)
        if session == "without our hook":
            return
        for begin in (1000, 2000):
            # In the middle of a pass: nothing of the last one comes.
            sess.run(iterator.initializer, {first: begin})
            assert sorted(taken(sess, batches, rest)) == list(range(begin, begin + RECORDS))
            with pytest.raises(tf.errors.OutOfRangeError):
                sess.run(batches)
        if session == "plain":
            sess.run(iterator.initializer, {first: 3000})
        else:
            sess.run_step_fn(lambda step_context: step_context.session.run(iterator.initializer, {first: 3000}))
        assert min(taken(sess, batches, 2)) >= 3000


def test_passes_over_training_and_validation_data_alternate(graph: Any) -> None:
    training, validation = (tf.data.make_initializable_iterator(dataset(first, 5)) for first in (0, 100))
    x, y = staging.staged(training.get_next()), staging.staged(validation.get_next())
    with staging.StagingSession(hooks=[Initializes([training.initializer, validation.initializer])]) as sess:
        for _ in range(3):
            for iterator, batch, first in ((training, x, 0), (validation, y, 100)):
                sess.run(iterator.initializer)
                assert taken(sess, [batch], 5) == list(range(first, first + 5))
                with pytest.raises(tf.errors.OutOfRangeError):
                    sess.run(batch)


def test_reinitializable_iterators_switch_data(graph: Any) -> None:
    iterator = tf.data.Iterator.from_structure(tf.int64, tf.TensorShape([None]))
    inits = [iterator.make_initializer(dataset(first, 4)) for first in (0, 50)]
    batch = staging.staged(iterator.get_next())
    with staging.StagingSession(hooks=[Initializes(inits[0])]) as sess:
        for _ in range(2):
            for init, first in zip(inits, (0, 50)):
                sess.run(init)
                assert taken(sess, [batch], 4) == list(range(first, first + 4))


@pytest.mark.parametrize("lockstep", [False, True])
def test_one_run_may_not_initialize_and_take(graph: Any, lockstep: bool) -> None:
    iterator = tf.data.make_initializable_iterator(dataset())
    batch = staging.staged(iterator.get_next(), lockstep=lockstep)
    with staging.StagingSession(hooks=[Initializes(iterator.initializer)]) as sess:
        with pytest.raises(BuildError, match="one run initializes its iterator and takes a batch"):
            sess.run([iterator.initializer, batch])
        assert taken(sess, [batch], 2) == [0, 1]


def test_an_iterator_that_nothing_initializes_is_named_at_the_first_step(graph: Any) -> None:
    batch = staging.staged(get_next(), name="train")
    with pytest.raises(UninitializedError, match=r"'train': its batches come from an iterator.*after_create_session"):
        with staging.StagingSession() as sess:
            sess.run(batch)


def test_a_failed_initializer_leaves_the_iterator_as_it_was(graph: Any) -> None:
    name = tf.placeholder_with_default("", [])
    checked = tf.Assert(tf.equal(name, ""), ["no such file", name])
    with tf.control_dependencies([checked]):
        count = tf.constant(np.int64(RECORDS))
    iterator = tf.data.make_initializable_iterator(tf.data.Dataset.range(tf.identity(count)).batch(1))
    batch = staging.staged(iterator.get_next())
    with staging.StagingSession(hooks=[Initializes(iterator.initializer)]) as sess:
        assert taken(sess, [batch], 2) == [0, 1]
        with pytest.raises(tf.errors.InvalidArgumentError, match="no such file"):
            sess.run([iterator.initializer, checked], {name: "gone"})
        assert taken(sess, [batch], 1)[0] >= 0, "it goes on"
