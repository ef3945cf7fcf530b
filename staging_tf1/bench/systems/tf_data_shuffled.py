"""`tf.data` with a shuffle buffer, for workloads that `tf_data` reads front to back."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from staging_tf1.bench.systems.tf_data import iterating
from staging_tf1.bench.task import Step, Task


@contextmanager
def run(task: Task) -> Iterator[Step]:
    dataset, feeds = task.workload.shuffled_dataset(task.data, task.seed)
    with iterating(task, dataset, feeds) as step:
        yield step
