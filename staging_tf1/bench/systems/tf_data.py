"""`tf.data`, with batches made in Python or entirely in TensorFlow ops."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from staging_tf1._tf import Dataset, tf
from staging_tf1.bench.task import Step, Task, open_session


@contextmanager
def from_generator(task: Task) -> Iterator[Step]:
    """Make batches in Python with `Dataset.from_generator`; tf.data prefetches them."""
    size = task.workload.batch_size
    spec = {
        name: tf.TensorSpec([size, *shape], tf.as_dtype(dtype)) for name, (shape, dtype) in task.workload.spec.items()
    }
    with tf.device(task.input_device):
        dataset = Dataset.from_generator(lambda: task.workload.batches(task.data, task.seed), output_signature=spec)
        iterator = tf.data.make_one_shot_iterator(dataset.prefetch(tf.data.AUTOTUNE))
        batch = iterator.get_next()
    fetches = task.model(batch)
    with open_session(task) as session:
        yield session.make_callable(fetches)


@contextmanager
def tf_data(task: Task) -> Iterator[Step]:
    """Make batches in TensorFlow ops, without Python between the data and the step."""
    with tf.device(task.input_device):
        dataset, feeds = task.workload.dataset(task.data, task.seed)
    with _iterating(task, dataset, feeds) as step:
        yield step


@contextmanager
def tf_data_shuffled(task: Task) -> Iterator[Step]:
    """Use a shuffle buffer, for workloads that `tf_data` reads front to back."""
    dataset, feeds = task.workload.shuffled_dataset(task.data, task.seed)
    with _iterating(task, dataset, feeds) as step:
        yield step


@contextmanager
def _iterating(task: Task, dataset: Any, feeds: dict[Any, Any]) -> Iterator[Step]:
    """Yield a step on the batches of `dataset`, whose iterator is initialized with `feeds`."""
    with tf.device(task.input_device):
        iterator = tf.data.make_initializable_iterator(dataset)
        batch = iterator.get_next()
    fetches = task.model(batch)
    with open_session(task) as session:
        session.run(iterator.initializer, feeds)
        yield session.make_callable(fetches)
