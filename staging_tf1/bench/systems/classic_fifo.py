"""Ours: the classic workflow with whole batches, `CustomRunner(queue="fifo")` on a shuffling source, and an area."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import staging_tf1 as staging
from staging_tf1._tf import tf
from staging_tf1.bench.systems.classic import through_area
from staging_tf1.bench.task import Step, Task


@contextmanager
def run(task: Task) -> Iterator[Step]:
    source = task.workload.source(task.data, task.seed)
    with tf.device(task.input_device):
        runner = staging.CustomRunner(source, queue="fifo", num_threads=task.threads, capacity=4)
        batch = runner.get_inputs()
    with through_area(task, batch) as step:
        yield step
