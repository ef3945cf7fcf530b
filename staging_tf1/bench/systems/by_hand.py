"""Helpers for hand-written feed threads: placeholders, and threads that fill a queue."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from staging_tf1._tf import tf
from staging_tf1.bench.task import Task
from staging_tf1.bench.workloads.workload import Batch

__all__ = ["batch_placeholders", "dtypes_of", "filling"]


def dtypes_of(task: Task) -> list[Any]:
    """Return the TensorFlow dtypes of the components, in order."""
    return [tf.as_dtype(dtype) for _, dtype in task.workload.spec.values()]


def batch_placeholders(task: Task) -> dict[str, Any]:
    """Return a placeholder for each component of a batch."""
    size = task.workload.batch_dim
    return {name: tf.placeholder(dtype, [size, *shape]) for name, (shape, dtype) in task.workload.spec.items()}


@contextmanager
def filling(task: Task, session: Any, queue: Any, enqueue: Callable[[Batch], object]) -> Iterator[None]:
    """Run `task.threads` threads that enqueue batches during the block.

    Each thread shuffles on its own, as such programs do: with four threads, a record comes four times per epoch.
    """
    coord = tf.train.Coordinator()
    close = queue.close(cancel_pending_enqueues=True)

    def feed(number: int) -> None:
        with coord.stop_on_exception():
            try:
                for batch in task.workload.batches(task.data, task.seed + number):
                    if coord.should_stop():
                        return
                    enqueue(batch)
            except tf.errors.CancelledError:
                return
            finally:
                # A step that waits for a failed thread would never end.
                session.run(close)

    threads = [threading.Thread(target=feed, args=(number,), daemon=True) for number in range(task.threads)]
    for thread in threads:
        thread.start()
    try:
        yield
    finally:
        coord.request_stop()
        session.run(close)
        coord.join(threads)
