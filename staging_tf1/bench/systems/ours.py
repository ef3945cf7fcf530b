"""Ours: the classic workflow, and `staged()`."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import staging_tf1 as staging
from staging_tf1._tf import tf
from staging_tf1.bench.case import Case, Step

# The capacity and min_after_dequeue of the queue of `classic`, in batches, as in `by_hand.hand_classic`.
_CAPACITY, _STAY = 8, 4


@contextmanager
def classic(case: Case) -> Iterator[Step]:
    """Use `CustomRunner` with a shuffle queue, and a staging area whose put runs in the loop."""
    size = case.workload.batch_size
    with tf.device(case.input_device):
        runner = staging.CustomRunner(
            case.workload.source(case.data, case.seed, shuffle=False),
            num_threads=case.threads,
            capacity=_CAPACITY * size,
            min_after_dequeue=_STAY * size,
        )
        batch = runner.get_inputs(size)
    with _through_area(case, batch) as step:
        yield step


@contextmanager
def classic_fifo(case: Case) -> Iterator[Step]:
    """Use `CustomRunner(queue="fifo")` with whole batches of a shuffling source, and an area."""
    source = case.workload.source(case.data, case.seed)
    with tf.device(case.input_device):
        runner = staging.CustomRunner(source, queue="fifo", num_threads=case.threads, capacity=4)
        batch = runner.get_inputs()
    with _through_area(case, batch) as step:
        yield step


@contextmanager
def _through_area(case: Case, batch: Any) -> Iterator[Step]:
    """Yield a step that takes a batch from an area and puts the next one."""
    batch = case.workload.named(batch)
    area = staging.StagingArea.from_tensors(batch, capacity=2)
    put = area.put(batch)
    fetches = case.model(area.get())
    with staging.StagingSession(config=case.config) as session:
        step_and_put = session.make_callable([fetches, put])

        def step() -> Any:
            return step_and_put()[0]

        session.run(put)  # the warm-up
        yield step


@contextmanager
def staged(case: Case, *, compact: bool = False, **options: Any) -> Iterator[Step]:
    """Feed batches from `staged()` with these options; `compact` stages bytes, which the step converts."""
    with _staged(case, {"num_threads": case.threads}, compact, options) as step:
        yield step


@contextmanager
def staged_autotune(case: Case) -> Iterator[Step]:
    """Feed batches from `staged()`, which chooses the number of feed threads."""
    with _staged(case, {"num_threads": staging.AUTOTUNE}, False, {}) as step:
        yield step


@contextmanager
def staged_processes(case: Case) -> Iterator[Step]:
    """Feed batches from `staged()` that `case.threads` processes make."""
    with _staged(case, {"num_processes": case.threads}, False, {}) as step:
        yield step


@contextmanager
def _staged(case: Case, feeding: dict[str, Any], compact: bool, options: dict[str, Any]) -> Iterator[Step]:
    workload = case.workload
    fetches = workload.own_step(feeding)
    if fetches is None:
        source = (workload.compact_source if compact else workload.source)(case.data, case.seed)
        batch = workload.named(staging.staged(source, device=case.input_device, **feeding, **options))
        fetches = case.model(workload.expand(batch) if compact else batch)
    with staging.StagingSession(config=case.config) as session:
        yield session.make_callable(fetches)


@contextmanager
def lockstep(case: Case) -> Iterator[Step]:
    """Use `staged(lockstep=True)`: without threads, the run that takes a batch puts the next one."""
    source = case.workload.source(case.data, case.seed)
    batch = staging.staged(source, lockstep=True, device=case.input_device)
    fetches = case.model(case.workload.named(batch))
    with staging.StagingSession(config=case.config) as session:
        yield session.make_callable(fetches)
