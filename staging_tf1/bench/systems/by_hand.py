"""Written by hand: `feed_dict`, and feed threads that fill a queue."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from staging_tf1._tf import tf
from staging_tf1.bench.case import Case, Step, open_session
from staging_tf1.bench.workloads.workload import Batch

# The capacities of the queues and the min_after_dequeue of `hand_classic`, in batches.
_CAPACITY, _STAY, _AREA_CAPACITY = 8, 4, 4


@contextmanager
def feed_dict(case: Case) -> Iterator[Step]:
    """Make and feed each batch between two steps."""
    with feeding(case, case.workload.batches(case.data, case.seed)) as step:
        yield step


@contextmanager
def feeding(case: Case, batches: Iterator[Batch]) -> Iterator[Step]:
    """Yield a step that is fed the next of `batches`."""
    placeholders = _batch_placeholders(case)
    fetches = case.model(placeholders)

    with open_session(case) as session:

        def step() -> Any:
            batch = next(batches)
            return session.run(fetches, {placeholders[name]: batch[name] for name in placeholders})

        yield step


@contextmanager
def hand_classic(case: Case) -> Iterator[Step]:
    """Follow the classic recipe: feed threads enqueue records, and the step dequeues a shuffled batch."""
    size, names = case.workload.batch_size, list(case.workload.spec)
    with tf.device(case.input_device):
        placeholders = _batch_placeholders(case)
        queue = tf.RandomShuffleQueue(
            capacity=_CAPACITY * size,
            min_after_dequeue=_STAY * size,
            dtypes=_dtypes_of(case),
            shapes=[shape for shape, _ in case.workload.spec.values()],
            names=names,
            seed=case.seed,
        )
        enqueue = queue.enqueue_many(placeholders)
        batch = queue.dequeue_many(size)
    fetches = case.model(batch)

    with open_session(case) as session:

        def put(batch: Batch) -> None:
            session.run(enqueue, {placeholders[name]: batch[name] for name in names})

        with _filling(case, session, queue, put):
            yield lambda: session.run(fetches)


@contextmanager
def hand_area(case: Case) -> Iterator[Step]:
    """Optimize: whole batches through a FIFOQueue and a staging area, and callables for every run."""
    with tf.device(case.input_device):
        placeholders = _batch_placeholders(case)
        shapes = [holder.shape for holder in placeholders.values()]
        queue = tf.FIFOQueue(_AREA_CAPACITY, _dtypes_of(case), shapes, names=list(placeholders))
        enqueue = queue.enqueue(placeholders)
        dequeued = queue.dequeue()
    # The ops of tf.contrib.staging.StagingArea. The capacity is 2, because the put of a step may run before its get.
    area = dict(shared_name="bench", capacity=2)
    put = tf.raw_ops.Stage(values=list(dequeued.values()), **area)
    got = tf.raw_ops.Unstage(dtypes=_dtypes_of(case), **area)
    fetches = case.model({name: tf.ensure_shape(got[i], dequeued[name].shape) for i, name in enumerate(dequeued)})

    with open_session(case) as session:
        enqueue_batch = session.make_callable(enqueue, list(placeholders.values()))
        step_and_put = session.make_callable([fetches, put])

        def feed(batch: Batch) -> None:
            enqueue_batch(*(batch[name] for name in placeholders))

        def step() -> Any:
            return step_and_put()[0]

        with _filling(case, session, queue, feed):
            session.run(put)  # the warm-up
            yield step


def _dtypes_of(case: Case) -> list[Any]:
    """Return the TensorFlow dtypes of the components, in order."""
    return [tf.as_dtype(dtype) for _, dtype in case.workload.spec.values()]


def _batch_placeholders(case: Case) -> dict[str, Any]:
    size = case.workload.batch_dim
    return {name: tf.placeholder(dtype, [size, *shape]) for name, (shape, dtype) in case.workload.spec.items()}


@contextmanager
def _filling(case: Case, session: Any, queue: Any, enqueue: Callable[[Batch], object]) -> Iterator[None]:
    """Run `case.threads` threads that enqueue batches during the block.

    Each thread shuffles on its own, as such programs do: with four threads, a record comes four times per epoch.
    """
    coord = tf.train.Coordinator()
    close = queue.close(cancel_pending_enqueues=True)

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
