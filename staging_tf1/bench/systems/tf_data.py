"""`tf.data`, with batches made in Python or entirely in TensorFlow ops."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np

from staging_tf1._tf import Dataset, tf
from staging_tf1.bench.case import Case, Step, open_session


@contextmanager
def from_generator(case: Case) -> Iterator[Step]:
    """Make batches in Python with `Dataset.from_generator`; tf.data prefetches them."""
    size = case.workload.batch_size
    spec = {
        name: tf.TensorSpec([size, *shape], tf.as_dtype(dtype)) for name, (shape, dtype) in case.workload.spec.items()
    }
    with tf.device(case.input_device):
        dataset = Dataset.from_generator(lambda: case.workload.batches(case.data, case.seed), output_signature=spec)
        iterator = tf.data.make_one_shot_iterator(dataset.prefetch(tf.data.AUTOTUNE))
        batch = iterator.get_next()
    fetches = case.model(batch)
    with open_session(case) as session:
        yield session.make_callable(fetches)


@contextmanager
def py_function(case: Case) -> Iterator[Step]:
    """Make batch k of our source in a `tf.py_function`, `case.threads` of them in parallel; tf.data keeps the order."""
    source, names = case.workload.source(case.data, case.seed), list(case.workload.spec)
    dtypes = [tf.as_dtype(dtype) for _, dtype in case.workload.spec.values()]

    def make(number: Any) -> list[Any]:
        batch = case.workload.named(source.batch(int(number)))
        return [np.asarray(batch[name]) for name in names]

    def in_graph(number: Any) -> dict[str, Any]:
        tensors = tf.py_function(make, [number], dtypes)
        for tensor, (shape, _) in zip(tensors, case.workload.spec.values()):
            tensor.set_shape([case.workload.batch_size, *shape])
        return dict(zip(names, tensors))

    with tf.device(case.input_device):
        dataset = Dataset.range(2**62).map(in_graph, num_parallel_calls=case.threads).prefetch(tf.data.AUTOTUNE)
        batch = tf.data.make_one_shot_iterator(dataset).get_next()
    fetches = case.model(batch)
    with open_session(case) as session:
        yield session.make_callable(fetches)


@contextmanager
def tf_data(case: Case) -> Iterator[Step]:
    """Make batches in TensorFlow ops, without Python between the data and the step."""
    with tf.device(case.input_device):
        dataset, feeds = case.workload.dataset(case.data, case.seed)
    with _iterating(case, dataset, feeds) as step:
        yield step


@contextmanager
def tf_data_shuffled(case: Case) -> Iterator[Step]:
    """Use a shuffle buffer, for workloads that `tf_data` reads front to back."""
    dataset, feeds = case.workload.shuffled_dataset(case.data, case.seed)
    with _iterating(case, dataset, feeds) as step:
        yield step


@contextmanager
def _iterating(case: Case, dataset: Any, feeds: dict[Any, Any]) -> Iterator[Step]:
    """Yield a step on the batches of `dataset`, whose iterator is initialized with `feeds`."""
    with tf.device(case.input_device):
        iterator = tf.data.make_initializable_iterator(dataset)
        batch = iterator.get_next()
    fetches = case.model(batch)
    with open_session(case) as session:
        session.run(iterator.initializer, feeds)
        yield session.make_callable(fetches)
