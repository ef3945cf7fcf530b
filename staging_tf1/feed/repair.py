"""`Repair`: restores what a failed step has lost, from the counts of the sinks after it.

TensorFlow cancels a step as soon as one of its ops fails. A get that has its element by then cannot give its slot back,
because an enqueue refuses a cancelled step. Each such step loses one slot, until the feed threads wait forever.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from staging_tf1._tf import run_unwrapped, tf
from staging_tf1.feed.accounts import Count
from staging_tf1.feed.chain import Handler, Look, Run, Stage
from staging_tf1.feed.pipeline import Pipeline
from staging_tf1.feed.pipeline_run import PipelineRun
from staging_tf1.graph.sink import RepairOps, Sink

if TYPE_CHECKING:
    from staging_tf1.feed.feeding import Feeding

# A put that holds a slot stages its element within microseconds. One that has not staged after this time holds none.
_PATIENCE_SECS = 0.005


class Repair(Handler):
    """Finds out what a failed step took, and restores the slots and the rounds of the towers.

    Args:
      feeding: what runs in the session.
      pipelines: the pipelines of its graph, started.
    """

    def __init__(self, feeding: Feeding, pipelines: Sequence[Pipeline]) -> None:
        self._feeding, self._pipelines = feeding, pipelines
        self._in_lockstep = [sink for pipeline in pipelines if pipeline.lockstep for sink in pipeline.sinks]

    def stage(self, look: Look) -> Stage | None:
        return Stage(failed=self._failed) if look.sinks else None

    def _failed(self, run: Run, error: BaseException) -> None:
        # In a run that is stopping, nothing waits for a slot.
        runs = [each for each in self._feeding.runs_of(self._pipelines) if not each.delivery.stopping]
        fed = [sink for each in runs for sink in each.pipeline.sinks]
        run.counts = self._feeding.accounts.settle_after(run, error, [*fed, *self._in_lockstep])
        # Otherwise the session is gone, and there is nothing to repair.
        with suppress(tf.errors.OpError, RuntimeError):
            repair_all(runs, run.counts)


def repair_all(runs: Sequence[PipelineRun], counts: Mapping[Sink, Count]) -> None:
    """Restore what a failed step has lost in all `runs` of one session, between two steps.

    Args:
      runs: none of them is stopping.
      counts: of their sinks, after the step.
    """
    for run in runs:
        for sink in run.sinks:
            repair_slots(sink.sink, counts, run.session, sink.puts)
        if run.delivery.barrier is not None and counts.keys() >= {*run.pipeline.sinks}:
            run.delivery.note_taken([counts[sink].taken for sink in run.pipeline.sinks])
        for producer in run.producers:
            for call in producer.on_failed_step:
                call()


def repair_slots(
    sink: Sink, counts: Mapping[Sink, Count], session: Any, puts: Callable[[], tuple[int, int]] = lambda: (0, 0)
) -> int:
    """Give lost slots of a sink back, between two steps. Return how many there were.

    If a running put is so slow that its slot looks lost, the area holds one element more than its capacity until the
    next repair takes the slot away again.

    Args:
      sink: the sink. A queue loses nothing.
      counts: of the sinks, after the step that failed.
      puts: returns how many puts have begun and how many have ended.
    """
    ops, count = sink.repair, counts.get(sink)
    if ops is None or count is None or sink.capacity == count.free + count.held:
        return 0
    lost = _lost_slots(sink, ops, session, puts)
    for _ in range(lost):
        run_unwrapped(session, ops.give_back)
    for _ in range(-lost):
        take_away(ops, session)
    return lost


def release_stranded(sink: Sink, counts: Mapping[Sink, Count], session: Any, fed: Mapping[Any, Any]) -> int:
    """Release elements that were staged in a step that failed before their release. Return how many.

    Only for lockstep, where no put is running between two steps.

    Args:
      counts: of the sinks, after the step that failed.
      fed: the feeds of that step's put.
    """
    ops, count = sink.repair, counts.get(sink)
    if ops is None or ops.release is None or count is None:
        return 0
    stamp = {sink.put.stamp: fed[sink.put.stamp]} if sink.put.stamp in fed else {}
    for _ in range(count.held - count.ready):
        run_unwrapped(session, ops.release, stamp)
    return count.held - count.ready


def take_away(ops: RepairOps, session: Any) -> None:
    """Remove one free slot, if there is one."""
    try:
        run_unwrapped(session, ops.take_away, options=tf.RunOptions(timeout_in_ms=int(1000 * _PATIENCE_SECS)))
    except tf.errors.DeadlineExceededError:
        # A feed thread was quicker. There is still one slot too many, which the next repair finds.
        return


def _lost_slots(sink: Sink, ops: RepairOps, session: Any, puts: Callable[[], tuple[int, int]]) -> int:
    until = time.perf_counter() + _PATIENCE_SECS
    while True:
        before = puts()
        free, held = (int(n) for n in run_unwrapped(session, [ops.free, ops.held]))
        begun, ended = after = puts()
        lost = sink.capacity - free - held
        if lost == 0:
            return 0
        if before == after and begun == ended:
            # No put is running, so nothing else can hold a slot. A slot too many can be removed only if it is free.
            return max(lost, -free)
        if lost < 0 or time.perf_counter() > until:
            return max(lost, 0)
