"""The stall report: the cause first, then the snapshot that it was found in."""

from __future__ import annotations

from collections.abc import Iterator

from staging_tf1.watch.diagnosis import Diagnosis
from staging_tf1.watch.views import FeederView, Snapshot, StoreView, TaskView


def report_text(snapshot: Snapshot, diagnosis: Diagnosis) -> str:
    """Format a snapshot and its diagnosis.

    >>> from staging_tf1.watch.views import StepView
    >>> area = StoreView("area 'train'", "area", size=0, capacity=2, closed=None, wanted=1)
    >>> snapshot = Snapshot(StepView(30.0, ", at train.py:41 in main()", takes=True), (area,))
    >>> print(report_text(snapshot, Diagnosis("nothing puts into it", "Run its put")))
    A step has not returned for 30.0 s, at train.py:41 in main().
    Most likely: nothing puts into it. Run its put.
      area 'train': 0 of 2 elements; the step takes 1
    """
    return "\n".join(_lines(snapshot, diagnosis))


def _lines(snapshot: Snapshot, diagnosis: Diagnosis) -> Iterator[str]:
    yield f"A step has not returned for {snapshot.step.secs:.1f} s{snapshot.step.place}."
    yield f"Most likely: {diagnosis.cause}. {diagnosis.cure}."
    for store in snapshot.stores:
        yield f"  {_store(store)}"
        for feeder in store.feeders:
            yield f"    {_feeder(feeder)}"
        if store.error:
            yield f"    last exception: {store.error}"
    for task in snapshot.tasks:
        yield f"  {_task(task)}"
    if snapshot.uninitialized:
        yield f"  uninitialized variables: {', '.join(snapshot.uninitialized)}"


def _task(task: TaskView) -> str:
    state = "finished" if task.finished else task.unreachable or f"last sign of life {task.silent_secs:.0f} s ago"
    return f"{task.name} at {task.address}: {state}"


def _store(store: StoreView) -> str:
    size = "?" if store.size is None else str(store.size)
    parts = [f"{size} of {store.capacity} elements" if store.capacity else f"{size} elements, unbounded"]
    if store.closed is not None:
        parts.append("closed" if store.closed else "open")
    if store.min_after_dequeue:
        parts.append(f"min_after_dequeue={store.min_after_dequeue}")
    if store.wanted:
        parts.append(f"the step takes {store.wanted}")
    if store.step_puts:
        parts.append("the step puts into it")
    if store.withheld:
        parts.append(f"{store.withheld} staged for an incomplete round")
    return f"{store.name}: {'; '.join(parts)}"


def _feeder(feeder: FeederView) -> str:
    batch = "" if feeder.batch < 0 else f", batch {feeder.batch}"
    return f"{feeder.name}: {feeder.doing} for {feeder.secs:.1f} s{batch}, {feeder.batches} delivered{feeder.place}"
