"""`tf.data` entirely in TensorFlow ops, without Python between the data and the step."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from staging_tf1._tf import tf
from staging_tf1.bench.task import Step, Task, open_session


@contextmanager
def run(task: Task) -> Iterator[Step]:
    with tf.device(task.input_device):
        dataset, feeds = task.workload.dataset(task.data, task.seed)
    with iterating(task, dataset, feeds) as step:
        yield step


@contextmanager
def iterating(task: Task, dataset: Any, feeds: dict[Any, Any]) -> Iterator[Step]:
    """Yield a step on the batches of `dataset`, whose iterator is initialized with `feeds`."""
    with tf.device(task.input_device):
        iterator = tf.data.make_initializable_iterator(dataset)
        batch = iterator.get_next()
    fetches = task.model(batch)
    with open_session(task) as session:
        session.run(iterator.initializer, feeds)
        yield session.make_callable(fetches)
