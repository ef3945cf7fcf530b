"""Ours: `staged(lockstep=True)`: without threads, the run that takes a batch puts the next one."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import staging_tf1 as staging
from staging_tf1.bench.task import Step, Task


@contextmanager
def run(task: Task) -> Iterator[Step]:
    source = task.workload.source(task.data, task.seed)
    batch = staging.staged(source, lockstep=True, device=task.input_device)
    fetches = task.model(task.workload.named(batch))
    with staging.StagingSession(config=task.config) as session:
        yield session.make_callable(fetches)
