"""`tf.data.Dataset.from_generator`: batches made in Python, prefetched by tf.data."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from staging_tf1._tf import Dataset, tf
from staging_tf1.bench.task import Step, Task, open_session


@contextmanager
def run(task: Task) -> Iterator[Step]:
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
