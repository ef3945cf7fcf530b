"""`GatedRuns`: the runs of a worker's session, which stand still while the chief copies the model for a checkpoint."""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Callable
from contextlib import AbstractContextManager
from functools import partial
from typing import Any, NamedTuple

from staging_tf1._tf import run_unwrapped, tf
from staging_tf1.cluster.cluster import Cluster
from staging_tf1.cluster.pause import PAUSE
from staging_tf1.cluster.snapshot import copies_of, is_broken, is_save, saved_from, saver_of
from staging_tf1.errors import StagingWarning, warn
from staging_tf1.feed.pipeline import pipelines_of
from staging_tf1.feed.pipeline_run import runs_in
from staging_tf1.graph.dependencies import ByFetches, ops_of_run
from staging_tf1.graph.get_stats import GetStats
from staging_tf1.graph.position import Position
from staging_tf1.graph.sink import Sink
from staging_tf1.graph.state import session_state_of
from staging_tf1.graph.sync_tokens import sync_tokens_of

# How often a checkpoint is tried. A pause fails only if the chief itself stood still for long during it.
_MOST_TRIES = 3
# A round has been applied when the global step and the sync tokens have not changed for so long.
_SETTLE_SECS = 0.1
# A step that has lasted this much longer than the others waits for their gradients.
_WAITS_SECS = 0.5


class _Kind(NamedTuple):
    """What a run does."""

    # The sinks from which it takes a batch.
    sinks: frozenset[Sink]
    # The savers that it writes a checkpoint with.
    savers: frozenset[str]


_OTHER = _Kind(frozenset(), frozenset())


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


class GatedRuns:
    """Wraps `run` of one session, as an attribute of that session.

    Other ways to run ops, such as a callable, go through `call`.

    Args:
      session: a `tf.Session` of a worker, whose graph is complete.
      cluster: the cluster; distributed.
    """

    def __init__(self, session: Any, cluster: Cluster) -> None:
        self._session, self._cluster, self._gate = session, cluster, cluster.member.gate
        self._pipelines = [pipeline for pipeline in pipelines_of(session.graph) if pipeline.cluster is not None]
        position = next((pipeline.position for pipeline in self._pipelines), None)
        self._in_step = SyncPause(cluster, session, position) if cluster.sync else None
        self._sinks = {
            sink.take.name: sink for pipeline in self._pipelines for sink in pipeline.sinks if sink.take is not None
        }
        self._kinds = ByFetches(self._look_up)
        # The batches that ended runs have taken.
        self._taken: Counter[Sink] = Counter()
        # Whether a run has failed: it may have taken a batch.
        self._is_unsure = False
        self._lock = threading.Lock()
        self._run_before = session.run
        session.run = self._run
        self._gate.only_wait = self._only_wait

    def _run(
        self, fetches: Any, feed_dict: Any | None = None, options: Any | None = None, run_metadata: Any | None = None
    ) -> Any:
        kind = self._kinds.of(fetches, feed_dict) or _OTHER
        if kind.savers:
            return self._save(kind.savers, fetches, feed_dict, options, run_metadata)
        return self._pass(kind, self._run_before, fetches, feed_dict, options, run_metadata)

    def call(self, fetches: Any, call: Callable[..., Any]) -> Callable[..., Any]:
        """Return `call`, which runs `fetches` past the session's `run`, as a run that waits in pauses."""
        return partial(self._pass, self._kinds.of(fetches, None) or _OTHER, call)

    def _look_up(self, fetches: Any, fed: list[Any]) -> _Kind | None:
        try:
            ops = ops_of_run(self._session.graph, fetches, fed)
        except (KeyError, TypeError, ValueError):
            # Only Session.run understands these fetches, or can say what is wrong.
            return None
        sinks = frozenset(sink for name, sink in self._sinks.items() if name in ops)
        return _Kind(sinks, frozenset(saver_of(op) for op in ops.values() if is_save(op)))

    def _pass(self, kind: _Kind, run: Callable[..., Any], *args: Any) -> Any:
        with self._gate.passing(takes=bool(kind.sinks)):
            try:
                result = run(*args)
            except BaseException:
                self._is_unsure = self._is_unsure or bool(kind.sinks)
                raise
            if kind.sinks:
                # Before the run leaves the gate.
                with self._lock:
                    self._taken.update(kind.sinks)
            return result

    def _only_wait(self) -> bool:
        """Whether all runs under way that take a batch still wait for it, or for other workers."""
        if self._in_step is not None and self._in_step.waits_for_others():
            return True
        sinks = list(self._sinks.values())
        repairs = [sink.repair for sink in sinks if sink.repair is not None]
        if self._is_unsure or len(repairs) < len(sinks):
            return False
        if any(run.is_putting() for run in runs_in(self._session, self._pipelines)):
            return False
        # A get takes a token, counts, and only then removes its element. So one that has its token is seen in the
        # first run or in the second.
        held = run_unwrapped(self._session, [[sink.size for sink in sinks], [repair.held for repair in repairs]])
        sums = run_unwrapped(self._session, [sink.stats.value for sink in sinks])
        taken = [GetStats.batches(gets) for gets in sums]
        with self._lock:
            return not any(map(any, held)) and taken == [self._taken[sink] for sink in sinks]

    def _save(self, savers: frozenset[str], fetches: Any, feed_dict: Any, options: Any, run_metadata: Any) -> Any:
        cluster = self._cluster
        named = ", ".join(repr(saver) for saver in sorted(savers))
        if not cluster.is_chief:
            warn(
                f"{cluster.member_task} saves a checkpoint with the saver {named}. Only on the chief do the other "
                f"workers stand still for it, so this one may hold a batch without its gradient. Save on the chief.",
                StagingWarning,
            )
            return self._pass(_OTHER, self._run_before, fetches, feed_dict, options, run_metadata)
        copies = copies_of(self._session.graph)
        # Otherwise the workers stand still until the checkpoint is written.
        is_copied = copies is not None and savers <= copies.savers
        for _ in range(_MOST_TRIES):
            with self._pause() as text:
                fed = dict(feed_dict or {})
                if self._in_step is not None:
                    fed |= self._in_step.saved_instead()
                if is_copied and copies is not None:
                    fed[copies.pause] = text
                try:
                    result = self._run_before(fetches, fed, options, run_metadata)
                except tf.errors.InvalidArgumentError as error:
                    if not is_broken(error):
                        raise
                    continue
                if is_copied or PAUSE in cluster.member.ledger.read([PAUSE]):
                    return result
        raise tf.errors.AbortedError(None, None, f"The workers have not stood still for the saver {named}.")

    def _pause(self) -> AbstractContextManager[str]:
        pauses = self._cluster.member.pauses
        return pauses.pause() if self._in_step is None else pauses.pause(settled=self._in_step.is_settled)


def gate_runs(session: Any, cluster: Cluster) -> GatedRuns:
    """Make the runs of `session` stand still in each pause of the cluster. May be called again."""
    state = session_state_of(session)
    if state.gated is None:
        state.gated = GatedRuns(session, cluster)
    gated: GatedRuns = state.gated
    return gated


def gated_runs(session: Any) -> GatedRuns | None:
    """Return what `gate_runs` has made; None outside a cluster."""
    gated: GatedRuns | None = session_state_of(session).gated
    return gated
