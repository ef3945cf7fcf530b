"""`feed_dict`: each batch is made and fed between two steps."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from staging_tf1.bench.systems.by_hand import batch_placeholders
from staging_tf1.bench.task import Step, Task, open_session


@contextmanager
def run(task: Task) -> Iterator[Step]:
    placeholders = batch_placeholders(task)
    fetches = task.model(placeholders)
    batches = task.workload.batches(task.data, task.seed)

    with open_session(task) as session:

        def step() -> Any:
            batch = next(batches)
            return session.run(fetches, {placeholders[name]: batch[name] for name in placeholders})

        yield step
