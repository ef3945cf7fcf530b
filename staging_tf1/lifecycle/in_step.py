"""`InStep`: the steps of all workers in synchronous training, and their common end.

A step of `tf.train.SyncReplicasOptimizer` waits for as many gradients as there are workers. It does not matter which
worker sends them, so a fast worker makes the steps of a slow one. If the data of one worker has ended, or it is gone,
the others may wait forever (TensorFlow issues 5022, 7970, 24338).
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

from absl import logging

from staging_tf1._tf import run_unwrapped, tf
from staging_tf1.cluster.cluster import Cluster
from staging_tf1.cluster.layout import Task
from staging_tf1.cluster.reach import unreachable
from staging_tf1.errors import ClusterError
from staging_tf1.graph.position import Position
from staging_tf1.graph.sync_tokens import sync_tokens_of

_POLL_SECS = 0.01
_LOG_SECS = 10.0
# A run of a parameter server that stands still would wait in silence.
_BOUNDED = tf.RunOptions(timeout_in_ms=5000)


class InStep:
    """Lets no worker run ahead of the others, and wakes a step whose gradients nobody else will complete.

    A worker begins its next step when every other worker has begun as many as it has. One that is behind catches up
    alone: its own gradients complete rounds, if its steps do not wait for the others.

    Args:
      cluster: a cluster whose workers train in step.
      session: this worker's session.
      position: how many steps each worker has begun; None if that is unknown.
      is_waiting: whether a step of this worker is under way.
      ends_with_first: whether the loop ends with the first worker whose data ends. Without it, the shares have the same
        number of batches, and each worker takes all of its own.
    """

    def __init__(
        self,
        cluster: Cluster,
        session: Any,
        position: Position | None,
        is_waiting: Callable[[], bool],
        *,
        ends_with_first: bool,
    ) -> None:
        self._cluster, self._session, self._is_waiting = cluster, session, is_waiting
        self._member = cluster.member
        self._position, self._ends_with_first = position, ends_with_first
        self._stopped: set[int] = set()
        # Whether the others have begun more steps than this worker.
        self._is_behind = False
        self._sync_tokens = sync_tokens_of(session.graph)
        self._reason = ""
        self._error: ClusterError | None = None
        self._member.on_news = self._note

    def before_step(self) -> None:
        """Wait until the other workers have begun as many steps as this one.

        Raises:
          tf.errors.OutOfRangeError: the data of another worker has ended.
          ClusterError: another worker is gone, or a parameter server does not answer.
        """
        began = time.monotonic()
        while True:
            self._raise_if_over()
            slower = self._slower_workers()
            if not slower:
                # One that has stopped while the positions were read is not among the slower ones.
                self._raise_if_over()
                return
            if time.monotonic() - began > _LOG_SECS:
                began = time.monotonic()
                logging.info("%s waits for the steps of %s", self._cluster.member_task, ", ".join(map(str, slower)))
            time.sleep(_POLL_SECS)

    def _raise_if_over(self) -> None:
        if self._error is not None:
            raise self._error
        if self._reason:
            raise tf.errors.OutOfRangeError(None, None, self._reason)

    def _slower_workers(self) -> list[Task]:
        """Return the workers that have begun fewer steps than this one, and have not stopped."""
        if self._position is None:
            return []
        tower_range, workers = self._position.tower_range, self._cluster.layout.workers
        begun = self._begun(self._position).reshape(len(workers), tower_range.towers).min(axis=1)
        own = self._cluster.worker_index
        others = [index for index in range(len(workers)) if index != own and index not in self._stopped]
        self._is_behind = any(begun[index] > begun[own] for index in others)
        return [workers[index] for index in others if begun[index] < begun[own]]

    def _begun(self, position: Position) -> Any:
        """Return how many steps each tower of all workers has begun."""
        layout, said = self._cluster.layout, ""
        while True:
            try:
                return run_unwrapped(self._session, position.saved[0], options=_BOUNDED)
            except tf.errors.DeadlineExceededError:
                self._member.check_servers()
                # The watchdog does not see this run, which is no step.
                reason = "; ".join(unreachable(layout, layout.servers)) or "the parameter servers answer slowly"
                if reason != said:
                    logging.warning("%s cannot read the positions of the other workers: %s", layout.task, reason)
                said = reason

    def this_one_ended(self) -> None:
        """Tell the other workers that the data of this one has ended."""
        if not self._reason:
            self._member.mark_ended()

    def stop(self) -> None:
        """Stop watching."""
        # A session that failed at its start may be closed after the next one was created.
        if self._member.on_news == self._note:
            self._member.on_news = None

    def _note(self, entries: dict[str, Any]) -> None:
        member = self._member
        ended, gone = member.stopped_workers(entries)
        if ended and self._ends_with_first and not self._reason:
            self._reason = (
                f"End of data for steps of all workers: {', '.join(map(str, ended))} has no batch left, so the "
                f"gradients of a further step would never be complete."
            )
        elif gone and self._error is None:
            named = ", ".join(map(member.signs.described, gone))
            self._error = ClusterError(
                f"{member.task} waits for the gradients of {named}, in synchronous training. Start "
                f"it again; everybody can resume from the last checkpoint."
            )
        # Last, because `before_step` looks at it first.
        self._stopped = {member.layout.workers.index(task) for task in ended}
        alone = bool(ended or gone or self._is_behind)
        if alone and self._is_waiting() and self._sync_tokens is not None:
            run_unwrapped(self._session, self._sync_tokens.wake, options=_BOUNDED)
