"""The other half of the CPU bound: the cost of making the batches in plain numpy."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from staging_tf1.bench.task import Step, Task


@contextmanager
def run(task: Task) -> Iterator[Step]:
    batches = task.workload.batches(task.data, task.seed)

    def step() -> None:
        next(batches)

    yield step
