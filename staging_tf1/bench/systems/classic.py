"""Ours: the classic workflow, with `CustomRunner`, a shuffle queue, and a staging area whose put runs in the loop."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import staging_tf1 as staging
from staging_tf1._tf import tf
from staging_tf1.bench.task import Step, Task

# The capacity and min_after_dequeue of the queue, in batches, as in `hand_classic`.
_CAPACITY, _STAY = 8, 4


@contextmanager
def run(task: Task) -> Iterator[Step]:
    size = task.workload.batch_size
    with tf.device(task.input_device):
        runner = staging.CustomRunner(
            task.workload.source(task.data, task.seed, shuffle=False),
            num_threads=task.threads,
            capacity=_CAPACITY * size,
            min_after_dequeue=_STAY * size,
        )
        batch = runner.get_inputs(size)
    with through_area(task, batch) as step:
        yield step


@contextmanager
def through_area(task: Task, batch: Any) -> Iterator[Step]:
    """Yield a step that takes a batch from an area and puts the next one."""
    batch = task.workload.named(batch)
    area = staging.StagingArea.from_tensors(batch, capacity=2)
    put = area.put(batch)
    fetches = task.model(area.get())
    with staging.StagingSession(config=task.config) as session:
        step_and_put = session.make_callable([fetches, put])

        def step() -> Any:
            return step_and_put()[0]

        session.run(put)  # the warm-up
        yield step
