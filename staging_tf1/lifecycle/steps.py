"""`Steps`: what acts around the steps of one session, and in which order."""

from __future__ import annotations

import threading
from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from functools import partial
from typing import Any

from staging_tf1._tf import run_unwrapped, tf
from staging_tf1.cluster.cluster import Cluster
from staging_tf1.feed.accounts import counts_of
from staging_tf1.feed.chain import Handler, Look, Run, RunPlan, Stage
from staging_tf1.feed.feeding import Feeding
from staging_tf1.feed.in_cluster import GatedRuns
from staging_tf1.feed.pipeline import Pipeline, cluster_of
from staging_tf1.feed.repair import Repair
from staging_tf1.feed.source_errors import naming_unfed
from staging_tf1.feed.threads import ThreadState
from staging_tf1.lifecycle.classic import ClassicLoops
from staging_tf1.lifecycle.in_step import InStep
from staging_tf1.lifecycle.lockstep import Lockstep, LockstepPuts
from staging_tf1.lifecycle.mispaired import Mispaired
from staging_tf1.lifecycle.timed import TimedRuns
from staging_tf1.signals import InterruptWatcher
from staging_tf1.watch.waiting import WaitMeter

# Where steps need not wait for each other.
NO_TURN = nullcontext()


class Steps:
    """The handlers of one session, in the order in which they act (`feed/chain.py`).

    A hot step goes down the list and up again. A failed one goes up from where it failed, and the end of the session
    goes up once more. For each set of fetches, the chain keeps the handlers that have something to do.

    Args:
      feeding: what runs in the session of the steps.
      pipelines: the pipelines of its graph, started.
      watcher: knows an interrupt that Python dropped.
      waits_for_workers: whether the step that finds the end of shared data waits on the chief for the other workers.

    Attributes:
      chain: the chain of the session.
      timed: times the steps.
    """

    def __init__(
        self,
        feeding: Feeding,
        pipelines: Sequence[Pipeline],
        watcher: InterruptWatcher,
        *,
        waits_for_workers: bool = False,
    ) -> None:
        session = feeding.session
        self._feeding, self._pipelines = feeding, pipelines
        feeding.is_watched = True
        # The workers of a cluster take an error of one for the end of its data.
        cluster = self._cluster = cluster_of(pipelines)
        self._lockstep = {pipeline: Lockstep(pipeline, feeding) for pipeline in pipelines if pipeline.lockstep}
        self.chain = feeding.chain
        gates = [handler for handler in self.chain.handlers if isinstance(handler, GatedRuns)]
        self.timed = TimedRuns(session.graph, WaitMeter(session, pipelines, self.states_of), watcher, cluster)
        self._turns = Turns(self._lockstep)
        feeding.renewals.lockstep = self._lockstep
        in_step = self._in_step(cluster) if cluster is not None and cluster.sync else None
        self.chain.install(
            [
                self._turns,
                feeding.renewals,
                *([] if in_step is None else [in_step]),
                *([] if cluster is None else [SharedEnd(cluster, in_step, waits_for_workers)]),
                Demand(feeding),
                Mispaired(),
                LockstepPuts(self._lockstep),
                # After the others, because it takes elements from a queue for this step.
                ClassicLoops(feeding, pipelines, self.timed),
                Repair(feeding, pipelines),
                feeding.accounts,
                self.timed,
                *gates,
            ]
        )
        self.chain.raise_cause = self._raise_cause

    def _in_step(self, cluster: Cluster) -> InStep:
        return InStep(
            cluster,
            self._feeding.session,
            next((pipeline.position for pipeline in self._pipelines if pipeline.cluster is not None), None),
            self.timed,
            ends_with_first=any(pipeline.has_unknown_length for pipeline in self._pipelines),
        )

    def _raise_cause(self, run: Run, error: BaseException) -> None:
        """Raise what has made a run fail; return if that is `error` itself."""
        self.timed.raise_cause(error)
        # TensorFlow cancels a partial run that meets the end of the data.
        ended = self._ended_for(run.plan) if run.is_part and isinstance(error, tf.errors.CancelledError) else []
        if self._cluster is None and (ended or isinstance(error, tf.errors.OutOfRangeError)):
            self._feeding.raise_source_error(run.plan.pipelines)
        if ended:
            raise tf.errors.OutOfRangeError(None, None, f"End of data: {', '.join(ended)}.") from error

    def _ended_for(self, plan: RunPlan) -> list[str]:
        """Return the names of the sinks of `plan` that have ended, and from which a failed run has taken nothing."""
        runs = self._feeding.runs_of(plan.pipelines)
        over = [sink.sink for run in runs for sink in run.sinks if sink.over and sink.sink in plan.sinks]
        counts = counts_of(over, self._feeding.session)
        return [sink.name for sink, count in counts.items() if count.taken == self._feeding.accounts.expected(sink)]

    def warm_up(self) -> None:
        """Put the first batch of every lockstep pipeline."""
        with naming_unfed(list(self._lockstep)):
            ready = [(lockstep, *lockstep.first_puts()) for lockstep in self._lockstep.values()]
            if any(puts for _, puts, _ in ready):
                # One run for all.
                feeds = {key: value for _, _, fed in ready for key, value in fed.items()}
                every = [puts for _, puts, _ in ready]
                try:
                    with self.timed.waits(every):
                        run_unwrapped(self._feeding.session, every, feeds)
                except BaseException as error:
                    self.timed.raise_cause(error)
                    raise
        for lockstep, _, _ in ready:
            lockstep.have_put()

    @property
    def reading_states(self) -> list[ThreadState]:
        """The states of the sources that steps read themselves: one per tower in lockstep."""
        return [state for pipeline in self._lockstep for state in self.states_of(pipeline)]

    def states_of(self, pipeline: Pipeline) -> list[ThreadState]:
        """Return the states of `pipeline`'s towers, if it is in lockstep; else an empty list."""
        lockstep = self._lockstep.get(pipeline)
        return [] if lockstep is None else [tower.state for tower in lockstep.towers]

    def in_turn(self, fetches: Any, feed_dict: Any | None) -> AbstractContextManager[Any]:
        """Return a context for a run of `fetches`. Steps in lockstep wait there for each other."""
        taken = self.chain.plan(fetches, feed_dict).pipelines
        return NO_TURN if self._lockstep.keys().isdisjoint(taken) else self._turns.lock

    def drain(self) -> None:
        """Stop reading from the sources."""
        for run in self._feeding.runs.values():
            run.drain()
        self.drain_lockstep()

    def drain_lockstep(self) -> None:
        """Let no step in lockstep read its source again."""
        for lockstep in self._lockstep.values():
            lockstep.drain()


class Turns(Handler):
    """Lets one step in lockstep run at a time: two at once would put one batch twice.

    Attributes:
      lock: held by a step in lockstep. A thread that holds it may run steps.
    """

    def __init__(self, lockstep: Mapping[Pipeline, Lockstep]) -> None:
        self.lock = threading.RLock()
        self._lockstep = lockstep

    def stage(self, look: Look) -> Stage | None:
        """See base class."""
        names = [pipeline.name for pipeline in look.pipelines if pipeline in self._lockstep]
        whole = (
            f"'{names[0]}' is in lockstep, so each run that takes a batch also puts the next one. Fetch all of them in "
            f"one run(), or use staged(lockstep=False)."
            if names
            else ""
        )
        return Stage(partial(self._enter, names[0]), self._leave, self._leave, whole) if names else None

    def _enter(self, name: str, run: Run) -> None:
        # Does not wait, because the caller may hold a lock of the other thread.
        if not self.lock.acquire(blocking=False):
            raise RuntimeError(
                f"'{name}' is in lockstep, and two threads run steps of it at once. Run them in one thread, or with "
                f"StagingSession.run, which runs one after the other; or use staged(lockstep=False)."
            )

    def _leave(self, run: Run, error: BaseException | None = None) -> None:
        self.lock.release()


class SharedEnd(Handler):
    """Tells the other workers of a cluster that the data they share has ended."""

    def __init__(self, cluster: Cluster, in_step: InStep | None, waits_for_workers: bool) -> None:
        self._cluster, self._in_step, self._waits_for_workers = cluster, in_step, waits_for_workers

    def stage(self, look: Look) -> Stage | None:
        """See base class."""
        shared = any(pipeline.cluster is not None for pipeline in look.pipelines)
        return Stage(failed=self._failed) if shared else None

    def _failed(self, run: Run, error: BaseException) -> None:
        if not isinstance(error, tf.errors.OutOfRangeError):
            return
        if self._in_step is not None:
            self._in_step.this_one_ended()
        if self._waits_for_workers:
            # The saver of a MonitoredTrainingSession comes before our hook at the end, and must find everybody's
            # position.
            self._cluster.wait_for_workers()


class Demand(Handler):
    """Tells pipelines with feed threads what the next step takes: from which towers, and that it is there at all."""

    def __init__(self, feeding: Feeding) -> None:
        self._feeding = feeding

    def stage(self, look: Look) -> Stage | None:
        """See base class."""
        waiting = self._feeding.renewals.need_initializers(look.pipelines)
        with_towers = [pipeline for pipeline in look.pipelines if len(pipeline.sinks) > 1 and not pipeline.lockstep]
        towers = [(pipeline, frozenset(look.towers_of(pipeline))) for pipeline in with_towers]

        def before(run: Run) -> None:
            for pipeline_run in self._feeding.runs_of(waiting):
                pipeline_run.delivery.is_needed.set()
            for pipeline, wanted in towers:
                for pipeline_run in self._feeding.runs_of([pipeline]):
                    pipeline_run.delivery.expect_towers(wanted)

        return Stage(before) if waiting or towers else None
