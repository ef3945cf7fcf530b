"""`SyncPause`: what a checkpoint waits for, and what it holds, where the workers of a cluster train in step."""

from __future__ import annotations

from typing import Any

from staging_tf1._tf import run_unwrapped, tf
from staging_tf1.cluster.cluster import Cluster
from staging_tf1.cluster.snapshot import saved_from
from staging_tf1.graph.position import Position
from staging_tf1.graph.sync_tokens import sync_tokens_of

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
