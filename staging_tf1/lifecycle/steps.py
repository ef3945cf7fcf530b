"""`Steps`: the steps of one session: what each takes, what is added to it, and what a failed one has lost."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from functools import partial
from typing import Any, NamedTuple

from staging_tf1._tf import run_unwrapped, tf
from staging_tf1.feed.pipeline import Pipeline, cluster_of
from staging_tf1.feed.pipeline_run import PipelineRun, repair_all, run_in, runs_in
from staging_tf1.feed.threads import ThreadState
from staging_tf1.feed.unfed import naming_unfed
from staging_tf1.fork import refuse_if_forked
from staging_tf1.graph.dependencies import ByFetches, ops_of_run
from staging_tf1.graph.sink import Sink
from staging_tf1.graph.state import session_state_of
from staging_tf1.graph.sync_tokens import sends_gradients
from staging_tf1.lifecycle.classic import NO_USE, AreaUse, ClassicLoops
from staging_tf1.lifecycle.in_step import InStep
from staging_tf1.lifecycle.interrupt import InterruptWatcher
from staging_tf1.lifecycle.lockstep import Lockstep, repair_lockstep
from staging_tf1.lifecycle.renewal import Renewals
from staging_tf1.lifecycle.timed import TimedRuns
from staging_tf1.watch.failed_batches import FailedBatches
from staging_tf1.watch.waiting import WaitMeter

# In TensorFlow's profile: a run that takes no batch, as far as is known.
RUN = "run"
# Where steps need not wait for each other.
_NO_TURN = nullcontext()


class Demand(NamedTuple):
    """What one run takes and puts."""

    # The sinks that it takes an element from.
    sinks: frozenset[Sink]
    # Its name in TensorFlow's profile.
    event: str
    # Which towers these are, for each threaded pipeline with several towers.
    towers: tuple[tuple[Pipeline, frozenset[int]], ...]
    # Which towers these are, for each pipeline in lockstep.
    lockstep: tuple[tuple[Lockstep, tuple[int, ...]], ...]
    # What it does with plain areas.
    use: AreaUse
    # Whether it sends gradients in synchronous training.
    sends: bool
    # The pipelines whose iterators it initializes.
    begins_anew: tuple[Pipeline, ...]
    # The pipelines that it takes from and whose iterators the program initializes.
    on_iterators: tuple[Pipeline, ...]


class Steps:
    """Runs the steps of one session.

    It adds the lockstep puts, keeps towers and workers together, and repairs what a failed step has lost. Several
    threads may run steps at once. Each step goes through::

        run                 the session's own `run`, wrapped: what the step takes is looked up
        step                before it: towers are told, puts and feeds are found. After it: counted or repaired
        TimedRuns.step      the run itself, timed for the watchdog and the figures

    A callable of `make_stepper` looks up once what it takes, and then begins at `step`.

    Args:
      session: the session of the steps, whose `run` is not wrapped yet.
      pipelines: the pipelines of its graph, started.
      watcher: knows what a signal owes to the main thread.
      interruptible: whether a step must be able to stop waiting for a lockstep source.
      waits_for_workers: whether the step that finds the end of shared data waits on the chief for the other workers.

    Attributes:
      timed: times the steps.
      in_step: in synchronous training, keeps the workers in step.
      failed_batches: the batches that went to failed steps.
      last_is_torn: whether the last step has failed, but taken a batch. The positions are then ahead of the model.
    """

    def __init__(
        self,
        session: Any,
        pipelines: Sequence[Pipeline],
        watcher: InterruptWatcher,
        *,
        interruptible: bool = False,
        waits_for_workers: bool = False,
    ) -> None:
        self.session, self._pipelines = session, pipelines
        session_state_of(session).is_watched = True
        self._run_before = session.run
        self._cluster = cluster_of(pipelines)
        self._waits_for_workers = waits_for_workers
        self._of_cluster = {sink for pipeline in pipelines if pipeline.cluster is not None for sink in pipeline.sinks}
        self.timed = TimedRuns(session.graph, WaitMeter(session, pipelines, self.states_of), watcher, self._cluster)
        self.in_step = self._new_in_step()
        self._loops = ClassicLoops(session, pipelines, self.timed)
        # By the name of the op that every get depends on.
        self._sinks = {
            sink.take.name: sink for pipeline in pipelines for sink in pipeline.sinks if sink.take is not None
        }
        self.failed_batches = FailedBatches(session, list(self._sinks.values()))
        self._lockstep = {
            pipeline: Lockstep(pipeline, session, interruptible=interruptible)
            for pipeline in pipelines
            if pipeline.lockstep
        }
        self._renewals = Renewals(session, pipelines, self._lockstep)
        self._demands = ByFetches(self._look_up)
        # Held by a step in lockstep: two at once would put one batch twice.
        self._one_at_a_time = threading.RLock()
        self._lock = threading.Lock()
        self._under_way = 0
        self.last_is_torn = False
        # Whether the batches of a failed step are still to be found.
        self._unsettled = False

    def _new_in_step(self) -> InStep | None:
        if self._cluster is None or not self._cluster.sync:
            return None
        return InStep(
            self._cluster,
            self.session,
            next((pipeline.position for pipeline in self._pipelines if pipeline.cluster is not None), None),
            lambda: bool(self.timed.pending),
            ends_with_first=any(pipeline.has_unknown_length for pipeline in self._pipelines),
        )

    @property
    def _runs(self) -> list[PipelineRun]:
        return runs_in(self.session, self._pipelines)

    def warm_up(self) -> None:
        """Put the first batch of every lockstep pipeline."""
        with naming_unfed(list(self._lockstep)):
            ready = [(lockstep, *lockstep.first_puts()) for lockstep in self._lockstep.values()]
            if any(puts for _, puts, _ in ready):
                # One run for all.
                feeds = {key: fed for _, _, of_lockstep in ready for key, fed in of_lockstep.items()}
                every = [puts for _, puts, _ in ready]
                self.timed.run(every, None, run_unwrapped, self.session, every, feeds)
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

    def demand(self, fetches: Any, feed_dict: Any | None) -> Demand | None:
        """Return what a run of `fetches` takes and puts; None if it does neither."""
        return self._demands.of(fetches, feed_dict)

    def _look_up(self, fetches: Any, fed: list[Any]) -> Demand | None:
        try:
            ops = ops_of_run(self.session.graph, fetches, fed)
        except (KeyError, TypeError, ValueError):
            # Only Session.run understands these fetches, or can say what is wrong.
            return None
        sinks = frozenset(sink for name, sink in self._sinks.items() if name in ops)
        use = self._loops.use(fetches, fed)
        begins_anew = self._renewals.of_run(ops)
        if not (sinks or begins_anew) and use is NO_USE:
            return None
        towers = {
            pipeline: tuple(tower for tower, sink in enumerate(pipeline.sinks) if sink in sinks)
            for pipeline in self._pipelines
            if not sinks.isdisjoint(pipeline.sinks)
        }
        return Demand(
            sinks,
            " ".join(["step", *(pipeline.name for pipeline in towers)]),
            tuple(
                (pipeline, frozenset(taken))
                for pipeline, taken in towers.items()
                if len(pipeline.sinks) > 1 and not pipeline.lockstep
            ),
            tuple((lockstep, towers[pipeline]) for pipeline, lockstep in self._lockstep.items() if pipeline in towers),
            use,
            # Without an optimizer that collects gradients, every step counts.
            self.in_step is not None and (sends_gradients(ops.values()) or not self.in_step.has_rounds),
            begins_anew,
            self._renewals.need_initializers(tuple(towers)),
        )

    def in_turn(self, fetches: Any, feed_dict: Any | None) -> AbstractContextManager[Any]:
        """Return a context for a run of `fetches`. Steps in lockstep wait there for each other."""
        if not self._lockstep:
            return _NO_TURN
        demand = self.demand(fetches, feed_dict)
        return self._one_at_a_time if demand is not None and demand.lockstep else _NO_TURN

    @contextmanager
    def _alone(self, name: str) -> Iterator[None]:
        """A context for a step that must not wait, because its caller may hold a lock of the other thread.

        Raises:
          RuntimeError: another thread is running a step in lockstep.
        """
        if not self._one_at_a_time.acquire(blocking=False):
            raise RuntimeError(
                f"'{name}' is in lockstep, and two threads run steps of it at once. Run them in one thread, or with "
                f"StagingSession.run, which runs one after the other; or use staged(lockstep=False)."
            )
        try:
            yield
        finally:
            self._one_at_a_time.release()

    def run(
        self, fetches: Any, feed_dict: Any | None = None, options: Any | None = None, run_metadata: Any | None = None
    ) -> Any:
        """Run a step, or what takes nothing, in place of the session's own `run`."""
        refuse_if_forked("A session")
        demand = self.demand(fetches, feed_dict)
        if demand is None:
            return self.timed.step(RUN, fetches, feed_dict, self._run_before, fetches, feed_dict, options, run_metadata)
        call = partial(self.run_session, fetches, options, run_metadata)
        with self._alone(demand.lockstep[0][0].name) if demand.lockstep else _NO_TURN:
            return self.step(demand, fetches, feed_dict, call)

    def run_session(self, fetches: Any, options: Any, run_metadata: Any, puts: Sequence[Any], feed_dict: Any) -> Any:
        """Return the values of `fetches`, from the session's own `run` together with `puts`."""
        if not puts:
            return self._run_before(fetches, feed_dict, options, run_metadata)
        return self._run_before([fetches, puts], feed_dict, options, run_metadata)[0]

    def step(self, demand: Demand, fetches: Any, feed_dict: Any, call: Callable[[list[Any], Any], Any]) -> Any:
        """Run one step.

        Args:
          demand: what the step takes and puts.
          fetches: what it fetches.
          feed_dict: what it feeds.
          call: called with the puts to add to the step, and all feeds. Returns the values of `fetches`.

        Raises:
          tf.errors.OutOfRangeError: a pipeline, or the queue behind a put of the step, has no batch left.
        """
        if demand.begins_anew:
            taken = [pipeline for pipeline in self._pipelines if not demand.sinks.isdisjoint(pipeline.sinks)]
            with self._renewals.around(demand.begins_anew, taken):
                return self.step(demand._replace(begins_anew=()), fetches, feed_dict, call)
        if self._unsettled:
            self.settle()
        if demand.sends:
            assert self.in_step is not None
            self.timed.run([], None, self.in_step.before_step)
        try:
            puts, feeds = self._before(demand)
        except tf.errors.OutOfRangeError:
            self._data_has_ended(demand)
            raise
        if feeds:
            feed_dict = {**(feed_dict or {}), **feeds}
        wanted = [fetches, puts] if puts else fetches
        with self._lock:
            self._under_way += 1
        try:
            result = self.timed.step(demand.event, wanted, feed_dict, call, puts, feed_dict)
        except BaseException as error:
            self._failed(demand, error)
            raise
        with self._lock:
            self.failed_batches.succeeded(demand.sinks)
            self._under_way -= 1
        self.last_is_torn = False
        for lockstep, towers in demand.lockstep:
            lockstep.after(towers)
        if demand.sends and self.in_step is not None:
            self.timed.run(self.in_step.waits_for, None, self.in_step.after_step)
        return result

    def _before(self, demand: Demand) -> tuple[list[Any], dict[Any, Any]]:
        for pipeline in demand.on_iterators:
            if (run := run_in(self.session, pipeline)) is not None:
                run.delivery.is_needed.set()
        for pipeline, wanted in demand.towers:
            if (run := run_in(self.session, pipeline)) is not None:
                run.delivery.expect_towers(wanted)
        puts: list[Any] = []
        feeds: dict[Any, Any] = {}
        for lockstep, towers in demand.lockstep:
            more_puts, more_feeds = lockstep.before(towers)
            puts += more_puts
            feeds.update(more_feeds)
        if demand.use is not NO_USE:
            # Last, because it takes elements from a queue for this step.
            feeds.update(self._loops.before(demand.use))
        return puts, feeds

    def _failed(self, demand: Demand, error: BaseException) -> None:
        """Repair what a failed step has lost."""
        if demand.sends and self.in_step is not None:
            self.in_step.step_failed()
        before = self.failed_batches.counts(demand.sinks)
        self._repair(demand)
        self.last_is_torn = _is_torn(before, self.failed_batches.counts(demand.sinks), error)
        if isinstance(error, tf.errors.OutOfRangeError):
            self._data_has_ended(demand)

    def _data_has_ended(self, demand: Demand) -> None:
        """Called by the step that finds the end of its data, which the workers of a cluster may share."""
        if self._of_cluster.isdisjoint(demand.sinks):
            return
        if self.in_step is not None:
            self.in_step.this_one_ended()
        if self._waits_for_workers and self._cluster is not None:
            # The saver of a MonitoredTrainingSession comes before our hook at the end, and must find everybody's
            # position.
            self._cluster.wait_for_workers()

    def _repair(self, demand: Demand) -> None:
        with self._lock:
            self.failed_batches.failed(demand.sinks)
            self._under_way -= 1
            self._unsettled = True
        try:
            # At once, because a feed thread may wait for a slot.
            repair_all(self._runs)
            if demand.lockstep:
                repair_lockstep([lockstep for lockstep, _ in demand.lockstep], self.session)
        except (tf.errors.OpError, RuntimeError):
            # The session is gone; there is nothing to repair.
            return
        self.settle()

    def settle(self) -> None:
        """Find the batches that failed steps took. Do nothing while a step is running, which has taken some, too."""
        with self._lock:
            if self._under_way or not self._unsettled:
                return
            self._unsettled = False
            try:
                self.failed_batches.settle()
            except (tf.errors.OpError, RuntimeError):
                return

    def drain(self) -> None:
        """Stop reading from the sources."""
        for run in self._runs:
            run.drain()
        for lockstep in self._lockstep.values():
            lockstep.drain()

    def stop(self) -> None:
        """Tell the threads that read for lockstep pipelines to end. May be called twice."""
        for lockstep in self._lockstep.values():
            lockstep.stop()

    def join(self, deadline_secs: float) -> list[ThreadState]:
        """Join those threads. Return the states of those still in a source after `deadline_secs`."""
        return [state for lockstep in self._lockstep.values() for state in lockstep.join(deadline_secs)]

    def warn_of_leftovers(self) -> None:
        """Warn of plain areas that still hold elements after the end of the data."""
        self._loops.warn_of_leftovers()


def _is_torn(before: list[int], after: list[int], error: BaseException) -> bool:
    """Whether a step took a batch and was not applied.

    A signal interrupts a step only while it waits for a pipeline: if it took from all, it had succeeded.
    """
    took = [new > old for old, new in zip(before, after, strict=True)]
    return any(took) and (isinstance(error, Exception) or not all(took))
