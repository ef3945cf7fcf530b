"""`tf.data`, with batches made in Python or entirely in TensorFlow ops."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np

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
def py_function(task: Task) -> Iterator[Step]:
    """Make batch k of our source in a `tf.py_function`, `task.threads` of them in parallel; tf.data keeps the order."""
    source, names = task.workload.source(task.data, task.seed), list(task.workload.spec)
    dtypes = [tf.as_dtype(dtype) for _, dtype in task.workload.spec.values()]

    def make(number: Any) -> list[Any]:
        batch = task.workload.named(source.batch(int(number)))
        return [np.asarray(batch[name]) for name in names]

    def in_graph(number: Any) -> dict[str, Any]:
        made = tf.py_function(make, [number], dtypes)
        for tensor, (shape, _) in zip(made, task.workload.spec.values()):
            tensor.set_shape([task.workload.batch_size, *shape])
        return dict(zip(names, made))

    with tf.device(task.input_device):
        dataset = Dataset.range(2**62).map(in_graph, num_parallel_calls=task.threads).prefetch(tf.data.AUTOTUNE)
        batch = tf.data.make_one_shot_iterator(dataset).get_next()
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
