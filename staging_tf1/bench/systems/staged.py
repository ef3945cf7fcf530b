"""Ours: `staged()` on a source, and the callable of a StagingSession."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import staging_tf1 as staging
from staging_tf1.bench.task import Step, Task


@contextmanager
def run(task: Task, *, compact: bool = False, **options: Any) -> Iterator[Step]:
    """Feed batches from `staged()` with these options; `compact` stages bytes, which the step converts."""
    workload = task.workload
    source = (workload.compact_source if compact else workload.source)(task.data, task.seed)
    batch = workload.named(staging.staged(source, num_threads=task.threads, device=task.input_device, **options))
    fetches = task.model(workload.expand(batch) if compact else batch)
    with staging.StagingSession(config=task.config) as session:
        yield session.make_callable(fetches)
