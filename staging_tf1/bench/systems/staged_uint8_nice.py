"""Ours: bytes that the step converts, and feed threads that take what the step leaves of the cores."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import staging_tf1 as staging
from staging_tf1.bench.task import Step, Task


@contextmanager
def run(task: Task) -> Iterator[Step]:
    source = task.workload.compact_source(task.data, task.seed)
    batch = staging.staged(source, num_threads=task.threads, nice=10, capacity=4, device=task.input_device)
    fetches = task.model(task.workload.expand(task.workload.named(batch)))
    with staging.StagingSession(config=task.config) as session:
        yield session.make_callable(fetches)
