"""The classic recipe by hand: feed threads enqueue records, and the step dequeues a shuffled batch."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from staging_tf1._tf import tf
from staging_tf1.bench.systems.by_hand import batch_placeholders, dtypes_of, filling
from staging_tf1.bench.task import Step, Task, open_session
from staging_tf1.bench.workloads.workload import Batch

# The capacity and min_after_dequeue of the queue, in batches.
_CAPACITY, _STAY = 8, 4


@contextmanager
def run(task: Task) -> Iterator[Step]:
    size, names = task.workload.batch_size, list(task.workload.spec)
    with tf.device(task.input_device):
        placeholders = batch_placeholders(task)
        queue = tf.RandomShuffleQueue(
            capacity=_CAPACITY * size,
            min_after_dequeue=_STAY * size,
            dtypes=dtypes_of(task),
            shapes=[shape for shape, _ in task.workload.spec.values()],
            names=names,
            seed=task.seed,
        )
        enqueue = queue.enqueue_many(placeholders)
        batch = queue.dequeue_many(size)
    fetches = task.model(batch)

    with open_session(task) as session:

        def put(batch: Batch) -> None:
            session.run(enqueue, {placeholders[name]: batch[name] for name in names})

        with filling(task, session, queue, put):
            yield lambda: session.run(fetches)
