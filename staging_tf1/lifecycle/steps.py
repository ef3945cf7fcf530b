"""`Steps`: what acts around the steps of one session, and in which order; `make_stepper`: a step as a fast callable."""

from __future__ import annotations

import itertools
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from functools import partial
from typing import Any

from staging_tf1._tf import fast_callable, plain_callable, run_unwrapped, tf
from staging_tf1.cluster.cluster import Cluster
from staging_tf1.errors import StagingWarning, warn
from staging_tf1.feed.accounts import counts_of
from staging_tf1.feed.chain import Chain, Handler, Look, Run, RunPlan, Stage
from staging_tf1.feed.feeding import Feeding
from staging_tf1.feed.in_cluster import GatedRuns
from staging_tf1.feed.pipeline import Pipeline, cluster_of
from staging_tf1.feed.repair import Repair
from staging_tf1.feed.source_errors import naming_unfed
from staging_tf1.feed.threads import ThreadState
from staging_tf1.graph.callsite import site_of_op
from staging_tf1.graph.dependencies import ancestors, calls_functions, can_end, elements_of
from staging_tf1.lifecycle.classic import ClassicLoops
from staging_tf1.lifecycle.in_step import InStep
from staging_tf1.lifecycle.lockstep import Lockstep, LockstepPuts
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


class Mispaired(Handler):
    """Warns of a step that combines staged tensors with tensors that they were made of: those are of another batch."""

    def __init__(self) -> None:
        self._warned: set[Pipeline] = set()

    def stage(self, look: Look) -> Stage | None:
        for pipeline in set(look.pipelines) - self._warned:
            for op in _taken_twice(look, pipeline):
                self._warned.add(pipeline)
                site = site_of_op(op)
                made = "" if site is None else f" (made at {site})"
                warn(
                    f"the step takes from {op.name!r}{made} itself, and also uses '{pipeline.name}' (made at "
                    f"{pipeline.plan.made_at}), which stages what another run has taken from it. So the step combines "
                    f"records of two batches. Stage all that the step uses: staged((images, labels)).",
                    StagingWarning,
                )
                break
        return None


def _taken_twice(look: Look, pipeline: Pipeline) -> Iterator[Any]:
    """The ops that take the next batch, of those that both the step and what `pipeline` stages depend on."""
    values = [entry.values for entry in pipeline.plan.inputs if entry.is_computed]
    leaves = tf.nest.flatten(values, expand_composites=True)
    computed = ancestors(leaf for leaf in leaves if isinstance(leaf, tf.Tensor))
    return (op for op in computed if op.name in look.ops and can_end(op))


def make_stepper(steps: Steps, fetches: Any, feed_list: Sequence[Any] | None) -> Callable[..., Any]:
    """Return a callable of the values of `feed_list` that runs `fetches` as a step."""
    chain = steps.chain
    plain = plain_callable(chain.session, fetches, feed_list or None)
    in_turn = steps.in_turn(fetches, feed_list)
    if feed_list:
        # TensorFlow's callable goes through the session's run, which enters the chain.
        def run(*values: Any) -> Any:
            with in_turn:
                return plain(*values)

        return run
    plan, call = chain.plan(fetches, None), _Call(chain, fetches, plain).run
    if in_turn is NO_TURN:
        return lambda: chain.execute(plan, fetches, None, call)

    def step() -> Any:
        with in_turn:
            return chain.execute(plan, fetches, None, call)

    return step


# For a run of the user's: within the operation timeout of the session's config.
_AS_CONFIGURED = tf.RunOptions()


class _Call:
    """Runs fetches, alone or with puts and feeds. There is one callable for each set of these."""

    def __init__(self, chain: Chain, fetches: Any, plain: Callable[[], Any]) -> None:
        self._chain, self._fetches, self._plain = chain, fetches, plain
        # In the order of `tf.nest`, which sorts the keys of a dict: it also packs the values.
        graph, leaves = chain.session.graph, tf.nest.flatten(fetches)
        elements = [element for leaf in leaves for element in elements_of(graph, leaf)]
        self._is_tensor = [not isinstance(element, tf.Operation) for element in elements]
        self._tensors = list(itertools.compress(elements, self._is_tensor))
        self._ops = [element for element in elements if isinstance(element, tf.Operation)]
        self._is_list = fetches.__class__ is list and not any(map(tf.nest.is_nested, fetches))
        # Only the session's run can fetch a SparseTensor.
        self._is_fast = not any(map(_is_composed, leaves))
        # These callables have executors of their own, in which functions draw their random numbers from the beginning.
        self._calls_functions = calls_functions(ancestors(elements))
        self._callables: dict[tuple[str, ...], Callable[..., Any]] = {}

    def run(self, puts: Sequence[Any], feeds: Mapping[Any, Any] | None) -> Any:
        feeds, alone = feeds or {}, not (puts or feeds)
        if alone and not (self._is_fast and not self._calls_functions):
            return self._plain()
        # Only the session's run can fetch a tensor that is fed.
        if not self._is_fast or any(tensor is fed for tensor in self._tensors for fed in feeds):
            return run_unwrapped(self._chain.session, [self._fetches, puts], feeds, _AS_CONFIGURED)[0]
        names = () if alone else tuple([tensor.name for tensor in (*puts, *feeds)])
        call = self._callables.get(names)
        if call is None:
            call = self._callables[names] = fast_callable(
                self._chain.session,
                feeds=list(feeds),
                targets=[*self._ops, *puts],
                fetches=self._tensors,
                as_configured=True,
            )
        results = iter(call(*feeds.values()))
        values = [next(results) if is_tensor else None for is_tensor in self._is_tensor]
        return values if self._is_list else tf.nest.pack_sequence_as(self._fetches, values)


def _is_composed(fetch: Any) -> bool:
    return isinstance(fetch, tf.SparseTensor | tf.RaggedTensor | tf.IndexedSlices)
