"""Optimized by hand: whole batches through a FIFOQueue and a staging area, and callables for every run."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from staging_tf1._tf import tf
from staging_tf1.bench.systems.by_hand import batch_placeholders, dtypes_of, filling
from staging_tf1.bench.task import Step, Task, open_session
from staging_tf1.bench.workloads.workload import Batch

# The capacity of the queue, in batches.
_CAPACITY = 4


@contextmanager
def run(task: Task) -> Iterator[Step]:
    with tf.device(task.input_device):
        placeholders = batch_placeholders(task)
        shapes = [holder.shape for holder in placeholders.values()]
        queue = tf.FIFOQueue(_CAPACITY, dtypes_of(task), shapes, names=list(placeholders))
        enqueue = queue.enqueue(placeholders)
        dequeued = queue.dequeue()
    # The ops of tf.contrib.staging.StagingArea. The capacity is 2, because the put of a step may run before its get.
    area = dict(shared_name="bench", capacity=2)
    put = tf.raw_ops.Stage(values=list(dequeued.values()), **area)
    got = tf.raw_ops.Unstage(dtypes=dtypes_of(task), **area)
    fetches = task.model({name: tf.ensure_shape(got[i], dequeued[name].shape) for i, name in enumerate(dequeued)})

    with open_session(task) as session:
        enqueue_batch = session.make_callable(enqueue, list(placeholders.values()))
        step_and_put = session.make_callable([fetches, put])

        def feed(batch: Batch) -> None:
            enqueue_batch(*(batch[name] for name in placeholders))

        def step() -> Any:
            return step_and_put()[0]

        with filling(task, session, queue, feed):
            session.run(put)  # the warm-up
            yield step
