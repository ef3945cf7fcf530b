"""`GatedRuns`: lets the runs of a worker's session stand still while the chief copies the model for a checkpoint."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager
from functools import partial
from typing import Any

from staging_tf1._tf import run_unwrapped, tf
from staging_tf1.cluster.cluster import Cluster
from staging_tf1.cluster.pause import PAUSE
from staging_tf1.cluster.snapshot import copies_of, is_broken, is_save, saved_from, saver_of
from staging_tf1.errors import StagingWarning, warn
from staging_tf1.feed.chain import Handler, Look, Run, Stage, chain_of
from staging_tf1.feed.counts import read_counts
from staging_tf1.feed.pipeline import areas_taken, pipelines_of
from staging_tf1.feed.pipeline_run import runs_in
from staging_tf1.feed.tally import Tally
from staging_tf1.graph.position import Position
from staging_tf1.graph.sync_tokens import sync_tokens_of

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
      session: a `tf.Session` of a worker, whose graph is complete.
      cluster: the cluster; distributed.
      tally: counts the batches of the steps.
    """

    def __init__(self, session: Any, cluster: Cluster, tally: Tally) -> None:
        self._session, self._cluster, self._gate = session, cluster, cluster.member.gate
        self._tally = tally
        self._pipelines = [pipeline for pipeline in pipelines_of(session.graph) if pipeline.cluster is not None]
        position = next((pipeline.position for pipeline in self._pipelines), None)
        self._in_step = SyncPause(cluster, session, position) if cluster.sync else None
        self._sinks = list(areas_taken(self._pipelines).values())
        self._gate.only_wait = self._only_wait

    def stage(self, look: Look) -> Stage:
        """See base class."""
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
        if not self._tally.is_settled:
            return False
        if any(run.is_putting() for run in runs_in(self._session, self._pipelines)):
            return False
        # A get takes a token, counts, and only then gives its slot back. So one that has its token is seen in the
        # first run or in the second.
        before = read_counts(self._sinks, self._session)
        after = read_counts(self._sinks, self._session)
        staged = any(count.ready or count.held or count.free < sink.capacity for sink, count in before.items())
        return not staged and all(count.taken == self._tally.expected(sink) for sink, count in after.items())

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


def gate_runs(session: Any, cluster: Cluster) -> None:
    """Make the runs of `session` stand still in each pause of the cluster. May be called again."""
    chain = chain_of(session)
    if not any(isinstance(handler, GatedRuns) for handler in chain.handlers):
        tally = Tally(session, areas_taken(pipelines_of(session.graph)).values())
        chain.install([*chain.handlers, tally, GatedRuns(session, cluster, tally)])
