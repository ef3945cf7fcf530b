"""A worker's session in a cluster: where its pipelines begin, which batches it gets, and when its runs stand still."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, Any

from staging_tf1._tf import run_unwrapped, tf
from staging_tf1.cluster.cluster import Cluster
from staging_tf1.cluster.dealer import Dealer
from staging_tf1.cluster.fence import fence_of
from staging_tf1.cluster.pause import PAUSE
from staging_tf1.cluster.shared_input import CONTENT
from staging_tf1.cluster.snapshot import copies_of, is_broken, is_save, saved_from, saver_of
from staging_tf1.errors import StagingWarning, warn
from staging_tf1.feed.accounts import read_counts
from staging_tf1.feed.chain import Handler, Look, Run, Stage
from staging_tf1.feed.pipeline import Pipeline, areas_taken, pipelines_of
from staging_tf1.feed.resume import Start, points_of_run, resume_points
from staging_tf1.feed.supply import LeasedSupply, LocalSupply, Supply
from staging_tf1.graph.acked import Acked
from staging_tf1.graph.position import SHARE, Position
from staging_tf1.graph.sync_tokens import sync_tokens_of
from staging_tf1.sources import Source
from staging_tf1.sources.records import RecordSource

if TYPE_CHECKING:
    from staging_tf1.feed.feeding import Feeding

# How often a checkpoint is tried. A pause fails only if the chief itself stood still for long during it.
_MOST_TRIES = 3
# A round has been applied when the global step and the sync tokens have not changed for so long.
_SETTLE_SECS = 0.1
# A step that has lasted this much longer than the others waits for their gradients.
_WAITS_SECS = 0.5


class SyncPause:
    """A pause between two steps of the chief. Without its next gradient no further round is complete.

    Args:
      cluster: a cluster whose workers train in step.
      session: this worker's session.
      position: how many steps each worker has begun; None if that is unknown.
    """

    def __init__(self, cluster: Cluster, session: Any, position: Position | None) -> None:
        self._cluster, self._session, self._position = cluster, session, position
        sync_tokens, step = sync_tokens_of(session.graph), tf.train.get_global_step(session.graph)
        # Tensors that change when a round is applied, and their last values.
        self._applied = [] if sync_tokens is None or step is None else [step, sync_tokens.size]
        self._pending = None if sync_tokens is None else sync_tokens.pending
        self._applied_before: list[Any] | None = None
        self._settles_at = 0.0

    def is_settled(self, secs: float) -> bool:
        """Whether no round of gradients is being applied, on the chief; see `Pauses.pause`."""
        applied = run_unwrapped(self._session, self._applied)
        if applied != self._applied_before or secs < self._settles_at - _SETTLE_SECS:
            self._applied_before, self._settles_at = applied, secs + _SETTLE_SECS
        return secs >= self._settles_at

    def waits_for_others(self) -> bool:
        """Whether the steps of this worker that are under way only wait for the gradients of the others."""
        return self._cluster.member.gate.closed_secs > _WAITS_SECS

    def saved_instead(self) -> dict[Any, Any]:
        """Return the tensors of the position that savers write, with the values for the checkpoint.

        Some workers may have made a step more than others. While the round of that step is not complete, its gradients
        are not in the model. The optimizer may also have taken them for the round before, and dropped those of another
        worker. The position is then left as it is, so that no batch is trained twice.
        """
        if self._position is None or self._pending is None:
            return {}
        member, workers = self._cluster.member, self._cluster.layout.workers
        value = run_unwrapped(self._session, self._position.saved[0]).reshape(len(workers), -1).copy()
        ended, gone = member.stopped_workers(member.read())
        going = [index for index, task in enumerate(workers) if task not in ended + gone]
        begun = value.min(axis=1)
        ahead = [index for index in going if begun[index] == begun[going].min() + 1]
        if not ahead or run_unwrapped(self._session, self._pending) < len(ahead):
            return {}
        value[ahead] -= 1
        return dict.fromkeys(saved_from(self._session.graph, self._position.variables[0]), value.ravel())


class GatedRuns(Handler):
    """Makes runs wait in the pauses of a cluster, and those that save a checkpoint begin one.

    The innermost handler: a step that waits for a lockstep source, or for the other workers, is not under way.

    Args:
      feeding: what runs in the session of a worker, whose graph is complete.
      cluster: the cluster; distributed.
    """

    def __init__(self, feeding: Feeding, cluster: Cluster) -> None:
        self._feeding, self._cluster, self._gate = feeding, cluster, cluster.member.gate
        self._session = session = feeding.session
        self._pipelines = [pipeline for pipeline in pipelines_of(session.graph) if pipeline.cluster is not None]
        position = next((pipeline.position for pipeline in self._pipelines), None)
        self._in_step = SyncPause(cluster, session, position) if cluster.sync else None
        self._sinks = list(areas_taken(self._pipelines).values())
        self._gate.only_wait = self._only_wait

    def stage(self, look: Look) -> Stage:
        savers = frozenset(saver_of(op) for op in look.ops.values() if is_save(op))
        if savers and self._cluster.is_chief:
            return Stage(before=partial(self._make_saving, savers))
        takes = any(pipeline.cluster is not None for pipeline in look.pipelines) and not savers
        leave = partial(self._leave, takes)
        whole = "in a cluster, a batch and all that a step does with it are one run. Fetch all of them in one run()."
        return Stage(partial(self._enter, takes, savers), leave, leave, whole if takes else "")

    def _enter(self, takes: bool, savers: frozenset[str], run: Run) -> None:
        if savers:
            warn(
                f"{self._cluster.member_task} saves a checkpoint with the saver {_named(savers)}. Only on the chief do "
                f"the other workers stand still for it, so this one may hold a batch without its gradient. Save on the "
                f"chief.",
                StagingWarning,
            )
        self._gate.enter(takes)

    def _leave(self, takes: bool, run: Run, error: BaseException | None = None) -> None:
        self._gate.leave(takes)

    def _make_saving(self, savers: frozenset[str], run: Run) -> None:
        run.call = partial(self._save, savers, run.call)

    def _only_wait(self) -> bool:
        """Whether all runs under way that take a batch still wait for it, or for other workers."""
        if self._in_step is not None and self._in_step.waits_for_others():
            return True
        # A step that has failed may have taken a batch.
        if not self._feeding.accounts.is_settled:
            return False
        if any(run.is_putting() for run in self._feeding.runs_of(self._pipelines)):
            return False
        # A get takes a token, counts, and only then gives its slot back. So one that has its token is seen in the
        # first run or in the second.
        before = read_counts(self._sinks, self._session)
        after = read_counts(self._sinks, self._session)
        staged = any(count.ready or count.held or count.free < sink.capacity for sink, count in before.items())
        return not staged and all(count.taken == self._feeding.accounts.expected(sink) for sink, count in after.items())

    def _save(
        self, savers: frozenset[str], call: Callable[[list[Any], Any], Any], puts: list[Any], feeds: Mapping[Any, Any]
    ) -> Any:
        cluster = self._cluster
        copies = copies_of(self._session.graph)
        # Otherwise the workers stand still until the checkpoint is written.
        is_copied = copies is not None and savers <= copies.savers
        for _ in range(_MOST_TRIES):
            with self._pause() as text:
                fed = dict(feeds or {})
                if self._in_step is not None:
                    fed |= self._in_step.saved_instead()
                if is_copied and copies is not None:
                    fed[copies.pause] = text
                try:
                    result = call(puts, fed)
                except tf.errors.InvalidArgumentError as error:
                    if not is_broken(error):
                        raise
                    continue
                if is_copied or PAUSE in cluster.member.ledger.read([PAUSE]):
                    return result
        raise tf.errors.AbortedError(None, None, f"The workers have not stood still for the saver {_named(savers)}.")

    def _pause(self) -> AbstractContextManager[str]:
        pauses = self._cluster.member.pauses
        return pauses.pause() if self._in_step is None else pauses.pause(settled=self._in_step.is_settled)


def _named(savers: frozenset[str]) -> str:
    return ", ".join(repr(saver) for saver in sorted(savers))


def gate_runs(feeding: Feeding, cluster: Cluster) -> None:
    """Make the runs of a session stand still in each pause of the cluster. May be called again."""
    chain = feeding.chain
    if not any(isinstance(handler, GatedRuns) for handler in chain.handlers):
        chain.install([*chain.handlers, feeding.accounts, GatedRuns(feeding, cluster)])


def starts_in_cluster(feeding: Feeding, pipelines: Sequence[Pipeline]) -> list[list[Start]]:
    """Return each producer of this worker's pipelines with its first batch, and let its steps count.

    Raises:
      ClusterError: the chief does not answer in time, or has another pipeline.
      ResumeError, CheckpointError: as `resume_points`, on the chief.
    """
    cluster, session = pipelines[0].cluster, feeding.session
    assert cluster is not None
    gate_runs(feeding, cluster)
    inputs = {pipeline.name: _input_of(pipeline) for pipeline in pipelines if pipeline.position is not None}
    if cluster.is_chief:
        if feeding.continues_run:
            # Before anything that tells the others of an error: they train, and do not need this chief.
            cluster.member.check_inputs(inputs)
        with cluster.member.telling_failures():
            return _as_chief(feeding, pipelines, inputs)
    if not (inputs or cluster.sync):
        return points_of_run(pipelines, session)
    while True:
        run = cluster.member.await_run(inputs, cluster.start_timeout_secs)
        if cluster.sync:
            cluster.member.await_everybody(cluster.start_timeout_secs)
        if inputs:
            fence_of(cluster, session.graph).take(session)
        cluster.member.pauses.await_none()
        try:
            starts = points_of_run(pipelines, session)
        except tf.errors.FailedPreconditionError:
            # A parameter server has restarted since. The chief will restore the variables.
            continue
        # The chief may have begun to restore in between.
        if cluster.member.is_current(run):
            return starts


def _input_of(pipeline: Pipeline) -> dict[str, Any]:
    """Return what must be the same in all workers, and is not in the fingerprint that they compare."""
    source = pipeline.producers[0].source
    is_own = pipeline.position is None or pipeline.position.fingerprint.get(SHARE) == "own"
    if is_own or not isinstance(source, RecordSource):
        return {}
    return {"epochs": source.epochs, "transform": source.transform_name, CONTENT: source.content_sample()}


def _as_chief(feeding: Feeding, pipelines: Sequence[Pipeline], inputs: Mapping[str, Any]) -> list[list[Start]]:
    cluster, session = pipelines[0].cluster, feeding.session
    assert cluster is not None
    member = cluster.member
    continues = feeding.continues_run
    if continues is None:
        # A session made by hand may have initialized the variables again.
        member.begin_run()
    sync_tokens = sync_tokens_of(session.graph)
    if sync_tokens is not None and not continues:
        # With sync tokens of an earlier run, workers would begin a round too early, and their gradients be dropped.
        run_unwrapped(session, sync_tokens.drain)
    starts = resume_points(pipelines, session, feeding.going_on, before_change=member.begin_run if continues else None)
    if inputs:
        fence_of(cluster, session.graph).take(session)
    member.mark_initialized(inputs)
    if cluster.sync:
        member.await_everybody(cluster.start_timeout_secs)
    return starts


@dataclass(frozen=True)
class _InTask:
    """What feeds a pipeline in this task."""

    supply: LeasedSupply
    # On the chief.
    dealer: Dealer | None

    def stop(self) -> None:
        if self.dealer is not None:
            self.dealer.stop()

    def give_back(self) -> None:
        self.supply.give_back()


def supplied(pipeline: Pipeline, starts: Sequence[Start], session: Any) -> list[Start]:
    """Return `starts` with a supply, if the workers share the batches dynamically. The chief begins to deal."""
    position = pipeline.position
    if position is None or position.skip is None:
        return list(starts)
    ((producer, first),) = starts
    assert isinstance(producer.source, Source)
    supply = _supply(pipeline, position, position.skip, producer.source.num_batches, session)
    return [(replace(producer, supply=supply), first)]


def _supply(
    pipeline: Pipeline, position: Position, skips: tuple[Any, Any], num_batches: int | None, session: Any
) -> Supply:
    sink, cluster, variable = pipeline.sinks[0], pipeline.cluster, position.saved[0]

    def skip(batch: int) -> None:
        run_unwrapped(session, skips[0], {skips[1]: batch})

    def look() -> tuple[int, Acked]:
        staged, cells = run_unwrapped(session, (sink.size, variable))
        return int(staged), Acked(cells)

    if cluster is None:
        return LocalSupply(Acked(run_unwrapped(session, variable)), num_batches, skip)
    supply = LeasedSupply(cluster, pipeline.name, look, skip)
    dealer = Dealer(cluster.member, pipeline.name, position.name, num_batches) if cluster.is_chief else None
    cluster.member.register(pipeline.name, _InTask(supply, dealer))
    if dealer is not None:
        dealer.start()
    return supply
