"""The systems: ways to feed a training loop, each written as its documentation recommends.

A system takes a case, builds a graph, starts its feeds, yields the step, and stops the feeds at the end of the block.
The first line of its docstring describes it in `--help`. This module has the bounds, what one writes by hand, and ours;
`peers.py` adds those of other projects.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
import tensorflow.compat.v1 as tf
from common import Step
from transforms import Batch
from workloads import Workload

import staging_tf1 as staging

# The capacities of the queues and the min_after_dequeue of a shuffle queue, in batches.
_CAPACITY, _STAY, _FIFO_CAPACITY = 8, 4, 4


@dataclass(frozen=True)
class Case:
    """One workload, to be fed by one system."""

    workload: Workload
    # The return value of `workload.open`.
    data: Any
    # Takes the tensors of a batch and returns the fetches of a step: the workload's `model`, or a function of a test.
    model: Callable[[Any], Any]
    # The number of feed threads or processes, for systems that support several.
    threads: int = 1
    seed: int = 1
    # A `tf.ConfigProto`; None uses TensorFlow's default.
    config: Any = None

    def batches(self) -> Iterator[Batch]:
        """Return the batches as written by hand."""
        return self.workload.batches(self.data, self.seed)

    def placeholders(self) -> dict[str, Any]:
        """Make a placeholder for each component of a batch."""
        size = self.workload.batch_size
        return {name: tf.placeholder(dtype, [size, *shape]) for name, (shape, dtype) in self.workload.spec.items()}

    @property
    def dtypes(self) -> list[Any]:
        """The TensorFlow dtypes of the components, in order."""
        return [tf.as_dtype(dtype) for _, dtype in self.workload.spec.values()]

    def session(self) -> Any:
        """Return a plain `tf.Session` on the default graph, with initialized variables."""
        session = tf.Session(config=self.config)
        session.run(tf.global_variables_initializer())
        return session


@dataclass(frozen=True)
class System:
    """A way to feed a case. `threaded` ones take a number of feed threads or processes, as in `staged:4`."""

    feed: Callable[[Case], AbstractContextManager[Step]]
    help_text: str
    threaded: bool = False
    # Seconds after which a measurement counts as hung.
    limit_secs: float = 300.0


SYSTEMS: dict[str, System] = {}
# What the bounds are computed from. The first two are measured along with all other systems.
BOUNDS: dict[str, System] = {}


def system(feed: Any, into: dict[str, System] = SYSTEMS, **options: Any) -> Any:
    """Register a generator function under its name, as a decorator."""
    managed = contextmanager(feed)
    into[feed.__name__] = System(managed, str(feed.__doc__).splitlines()[0].rstrip("."), **options)
    return managed


def threaded(limit_secs: float = 300.0) -> Any:
    """Register a system that takes a number of feed threads or processes."""
    return partial(system, threaded=True, limit_secs=limit_secs)


@partial(system, into=BOUNDS)
def const(case: Case) -> Iterator[Step]:
    """The step without input."""
    # The batch is a variable, because TensorFlow would fold constants into the step.
    tensors = {name: tf.Variable(array, trainable=False).value() for name, array in next(case.batches()).items()}
    fetches = case.model(tensors)
    with case.session() as session:
        yield session.make_callable(fetches)


@partial(system, into=BOUNDS)
def source(case: Case) -> Iterator[Step]:
    """Only make the batches."""
    yield partial(next, case.batches())


@partial(system, into=BOUNDS)
def memcpy(case: Case) -> Iterator[Step]:
    """Only copy one batch, again and again, to memory that is in use already."""
    batch = list(next(case.batches()).values())
    copies = [np.array(array) for array in batch]

    def step() -> None:
        for copy, array in zip(copies, batch):
            np.copyto(copy, array)

    yield step


@system
def feed_dict(case: Case) -> Iterator[Step]:
    """session.run(train_op, feed_dict), with a batch that is made between two steps."""
    with feeding(case, case.batches()) as step:
        yield step


@contextmanager
def feeding(case: Case, batches: Iterator[Batch]) -> Iterator[Step]:
    """Yield a step that is fed the next of `batches`."""
    placeholders = case.placeholders()
    fetches = case.model(placeholders)

    with case.session() as session:

        def step() -> Any:
            batch = next(batches)
            return session.run(fetches, {placeholders[name]: batch[name] for name in placeholders})

        yield step


@threaded()
def hand_classic(case: Case) -> Iterator[Step]:
    """By hand, the classic recipe: feed threads, RandomShuffleQueue, enqueue_many, dequeue_many."""
    size, names = case.workload.batch_size, list(case.workload.spec)
    placeholders = case.placeholders()
    queue = tf.RandomShuffleQueue(
        capacity=_CAPACITY * size,
        min_after_dequeue=_STAY * size,
        dtypes=case.dtypes,
        shapes=[shape for shape, _ in case.workload.spec.values()],
        names=names,
        seed=case.seed,
    )
    enqueue, close = queue.enqueue_many(placeholders), queue.close(cancel_pending_enqueues=True)
    fetches = case.model(queue.dequeue_many(size))

    with case.session() as session:

        def put(batch: Batch) -> None:
            session.run(enqueue, {placeholders[name]: batch[name] for name in names})

        with _filling(case, session, close, put):
            yield lambda: session.run(fetches)


@threaded()
def hand_area(case: Case) -> Iterator[Step]:
    """By hand, optimized: FIFOQueue of whole batches, a staging area, make_callable."""
    fetches, put, feeds = queue_and_area(case)
    with case.session() as session:
        step_and_put = session.make_callable([fetches, put])
        with feeds(session):
            session.run(put)  # the warm-up
            yield lambda: step_and_put()[0]


def queue_and_area(case: Case) -> tuple[Any, Any, Callable[[Any], AbstractContextManager[None]]]:
    """Return the fetches of a step, the put that belongs to it, and what runs the feed threads in a session."""
    placeholders = case.placeholders()
    shapes = [holder.shape for holder in placeholders.values()]
    queue = tf.FIFOQueue(_FIFO_CAPACITY, case.dtypes, shapes, names=list(placeholders))
    enqueue = queue.enqueue(placeholders)
    dequeued = queue.dequeue()
    close = queue.close(cancel_pending_enqueues=True)
    # The ops of tf.contrib.staging.StagingArea. The capacity is 2, because the put of a step may run before its get.
    area = dict(shared_name="bench", capacity=2)
    put = tf.raw_ops.Stage(values=list(dequeued.values()), **area)
    got = tf.raw_ops.Unstage(dtypes=case.dtypes, **area)
    fetches = case.model({name: tf.ensure_shape(got[i], dequeued[name].shape) for i, name in enumerate(dequeued)})

    def feeds(session: Any) -> AbstractContextManager[None]:
        enqueue_batch = session.make_callable(enqueue, list(placeholders.values()))
        return _filling(case, session, close, lambda batch: enqueue_batch(*(batch[name] for name in placeholders)))

    return fetches, put, feeds


@contextmanager
def _filling(case: Case, session: Any, close: Any, enqueue: Callable[[Batch], object]) -> Iterator[None]:
    """Run `case.threads` threads that enqueue batches during the block; `close` closes the queue.

    Each thread shuffles on its own, as such programs do: with four threads, a record comes four times per epoch.
    """
    coord = tf.train.Coordinator()

    def feed(number: int) -> None:
        with coord.stop_on_exception():
            try:
                for batch in case.workload.batches(case.data, case.seed + number):
                    if coord.should_stop():
                        return
                    enqueue(batch)
            except tf.errors.CancelledError:
                return
            finally:
                # A step that waits for a failed thread would never end.
                session.run(close)

    threads = [threading.Thread(target=feed, args=(number,), daemon=True) for number in range(case.threads)]
    for thread in threads:
        thread.start()
    try:
        yield
    finally:
        coord.request_stop()
        session.run(close)
        coord.join(threads)


@threaded()
def classic(case: Case) -> Iterator[Step]:
    """Ours: CustomRunner with a shuffle queue, StagingArea, put in the loop."""
    size = case.workload.batch_size
    runner = staging.CustomRunner(
        case.workload.source(case.data, case.seed, shuffle=False),
        num_threads=case.threads,
        capacity=_CAPACITY * size,
        min_after_dequeue=_STAY * size,
    )
    batch = case.workload.named(runner.get_inputs(size))
    area = staging.StagingArea.from_tensors(batch, capacity=2)
    put = area.put(batch)
    fetches = case.model(area.get())
    with staging.StagingSession(config=case.config) as session:
        step_and_put = session.make_callable([fetches, put])
        session.run(put)  # the warm-up
        yield lambda: step_and_put()[0]


def _staged(case: Case, *, compact: bool = False, **options: Any) -> Iterator[Step]:
    workload = case.workload
    source = (workload.compact_source if compact else workload.source)(case.data, case.seed)
    batch = workload.named(staging.staged(source, **options))
    fetches = case.model(workload.expand(batch) if compact else batch)
    with staging.StagingSession(config=case.config) as session:
        yield session.make_callable(fetches)


@threaded()
def staged(case: Case) -> Iterator[Step]:
    """Ours: staged(), StagingSession.make_callable."""
    yield from _staged(case, num_threads=case.threads)


@system
def staged_autotune(case: Case) -> Iterator[Step]:
    """Ours: staged(num_threads=tf.data.AUTOTUNE)."""
    yield from _staged(case, num_threads=tf.data.AUTOTUNE)


@threaded()
def staged_processes(case: Case) -> Iterator[Step]:
    """Ours: staged(num_processes=N)."""
    yield from _staged(case, num_processes=case.threads)


@threaded()
def staged_uint8(case: Case) -> Iterator[Step]:
    """Ours: staged() on bytes, which the step converts."""
    yield from _staged(case, num_threads=case.threads, compact=True)


@threaded()
def staged_map(case: Case) -> Iterator[Step]:
    """Ours: staged(map_fn=), which transforms in TensorFlow ops."""
    source, map_fn = case.workload.mapped(case.data, case.seed)
    fetches = case.model(staging.staged(source, map_fn=map_fn, num_threads=case.threads))
    with staging.StagingSession(config=case.config) as session:
        yield session.make_callable(fetches)


@threaded()
def staged_nice(case: Case) -> Iterator[Step]:
    """Ours: staged(nice=10), whose feed threads use the cores that the step leaves idle."""
    yield from _staged(case, num_threads=case.threads, nice=10)


@threaded()
def staged_uint8_nice(case: Case) -> Iterator[Step]:
    """Ours: staged_uint8 with nice=10 and capacity=4."""
    yield from _staged(case, num_threads=case.threads, compact=True, nice=10, capacity=4)


@system
def lockstep(case: Case) -> Iterator[Step]:
    """Ours: staged(lockstep=True), without threads: the run that takes a batch puts the next one."""
    yield from _staged(case, lockstep=True)
