"""Ours: the classic workflow, and `staged()`."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import staging_tf1 as staging
from staging_tf1._tf import tf
from staging_tf1.bench.task import Step, Task

# The capacity and min_after_dequeue of the queue of `classic`, in batches, as in `by_hand.hand_classic`.
_CAPACITY, _STAY = 8, 4


@contextmanager
def classic(task: Task) -> Iterator[Step]:
    """Use `CustomRunner` with a shuffle queue, and a staging area whose put runs in the loop."""
    size = task.workload.batch_size
    with tf.device(task.input_device):
        runner = staging.CustomRunner(
            task.workload.source(task.data, task.seed, shuffle=False),
            num_threads=task.threads,
            capacity=_CAPACITY * size,
            min_after_dequeue=_STAY * size,
        )
        batch = runner.get_inputs(size)
    with _through_area(task, batch) as step:
        yield step


@contextmanager
def classic_fifo(task: Task) -> Iterator[Step]:
    """Use `CustomRunner(queue="fifo")` with whole batches of a shuffling source, and an area."""
    source = task.workload.source(task.data, task.seed)
    with tf.device(task.input_device):
        runner = staging.CustomRunner(source, queue="fifo", num_threads=task.threads, capacity=4)
        batch = runner.get_inputs()
    with _through_area(task, batch) as step:
        yield step


@contextmanager
def _through_area(task: Task, batch: Any) -> Iterator[Step]:
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


@contextmanager
def staged(task: Task, *, compact: bool = False, **options: Any) -> Iterator[Step]:
    """Feed batches from `staged()` with these options; `compact` stages bytes, which the step converts."""
    with _staged(task, {"num_threads": task.threads}, compact, options) as step:
        yield step


@contextmanager
def staged_autotune(task: Task) -> Iterator[Step]:
    """Feed batches from `staged()`, which chooses the number of feed threads."""
    with _staged(task, {"num_threads": staging.AUTOTUNE}, False, {}) as step:
        yield step


@contextmanager
def staged_processes(task: Task) -> Iterator[Step]:
    """Feed batches from `staged()` that `task.threads` processes make."""
    with _staged(task, {"num_processes": task.threads}, False, {}) as step:
        yield step


@contextmanager
def _staged(task: Task, feeding: dict[str, Any], compact: bool, options: dict[str, Any]) -> Iterator[Step]:
    workload = task.workload
    fetches = workload.own_step(feeding)
    if fetches is None:
        source = (workload.compact_source if compact else workload.source)(task.data, task.seed)
        batch = workload.named(staging.staged(source, device=task.input_device, **feeding, **options))
        fetches = task.model(workload.expand(batch) if compact else batch)
    with staging.StagingSession(config=task.config) as session:
        yield session.make_callable(fetches)


@contextmanager
def lockstep(task: Task) -> Iterator[Step]:
    """Use `staged(lockstep=True)`: without threads, the run that takes a batch puts the next one."""
    source = task.workload.source(task.data, task.seed)
    batch = staging.staged(source, lockstep=True, device=task.input_device)
    fetches = task.model(task.workload.named(batch))
    with staging.StagingSession(config=task.config) as session:
        yield session.make_callable(fetches)
