"""`InStep`: the steps of all workers in synchronous training, and their common end.

A step of `tf.train.SyncReplicasOptimizer` waits for as many gradients as there are workers. It does not matter which
worker sends them, so a fast worker makes the steps of a slow one. If the data of one worker has ended, or it is gone,
the others may wait forever (TensorFlow issues 5022, 7970, 24338).
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Sequence
from typing import Any

from absl import logging

from staging_tf1._tf import run_unwrapped, tf
from staging_tf1.cluster.cluster import Cluster
from staging_tf1.cluster.layout import Task
from staging_tf1.cluster.reach import unreachable
from staging_tf1.errors import ClusterError
from staging_tf1.feed.chain import Handler, Look, Run, Stage
from staging_tf1.graph.position import Position
from staging_tf1.graph.sync_tokens import SyncTokens, sends_gradients, sync_tokens_of
from staging_tf1.lifecycle.timed import TimedRuns

_POLL_SECS = 0.01
_LOG_SECS = 10.0
# A run of a parameter server that stands still would wait in silence.
_BOUNDED = tf.RunOptions(timeout_in_ms=5000)
# A step that has just been given its token is not woken.
_PATIENCE_LOOKS = 4
# Another worker may take the last sync token between the look and the dequeue.
_SHORT = tf.RunOptions(timeout_in_ms=1000)


class InStep(Handler):
    """Lets no worker run ahead of the others, and wakes a step whose gradients nobody else will complete.

    A round of `SyncReplicasOptimizer` is complete with as many gradients as there are workers, from any of them. So a
    worker sends one gradient a round: its next step begins when the round has been applied. When others have
    ended, the rest share their gradients, so that the rounds stay complete. The sync tokens alone do not keep this
    order: the optimizer's hook adds some at the start, a worker that is killed leaves one, and a step that is woken had
    one too many. For each of these, the optimizer drops a gradient as too old.

    Without a `SyncReplicasOptimizer`, a worker begins its next step when every other worker has begun as many as it
    has.

    Args:
      cluster: a cluster whose workers train in step.
      session: this worker's session.
      position: how many steps each worker has begun; None if that is unknown.
      timed: times the runs of the session, and shows the waits between them to the watchdog.
      ends_with_first: whether the loop ends with the first worker whose data ends. Without it, the shares have the same
        number of batches, and each worker takes all of its own.
    """

    def __init__(
        self,
        cluster: Cluster,
        session: Any,
        position: Position | None,
        timed: TimedRuns,
        *,
        ends_with_first: bool,
    ) -> None:
        self._cluster, self._session, self._timed = cluster, session, timed
        self._member = cluster.member
        self._position, self._ends_with_first = position, ends_with_first
        self._stopped: set[int] = set()
        self._sync_tokens = sync_tokens_of(session.graph)
        tokens = self._sync_tokens
        self._begin: Any = None if tokens is None else tokens.begin
        self._take: Any = None if tokens is None else tokens.take
        # The present round, and how many gradients this worker has sent for it. None before the first step, and after
        # one that has failed.
        self._round: int | None = None
        self._sent = 0
        # How often in succession a step still waited although its round had been applied.
        self._looks = 0
        self._reason = ""
        self._error: ClusterError | None = None
        self._member.on_news = self._note

    def stage(self, look: Look) -> Stage | None:
        """See base class. Without an optimizer that collects gradients, every step counts."""
        if not look.sinks or (self._begin is not None and not sends_gradients(look.ops.values())):
            return None
        return Stage(self._before, None if self._begin is None else self._after, self._failed)

    def _before(self, run: Run) -> None:
        with self._timed.waits([]):
            self.await_turn()

    def await_turn(self) -> None:
        """Wait until this worker may begin a step that sends gradients.

        Raises:
          tf.errors.OutOfRangeError: the data of another worker has ended.
          ClusterError: another worker is gone, or a parameter server does not answer.
        """
        self._raise_if_over()
        if self._begin is None:
            self._wait(lambda: not self._slower_workers())
        else:
            # The positions, too: a run of a server that stands still is bounded here, and in the step it is not.
            self._look_at_round([] if self._position is None else [self._position.saved[0]])
        # The news may have come while the servers were read.
        self._raise_if_over()
        self._sent += 1

    def _after(self, run: Run) -> None:
        """Wait until the round is applied: a checkpoint between two steps is then between two rounds."""
        with self._timed.waits([] if self._take is None else [self._take]):
            self._await_round()

    def _await_round(self) -> None:
        if self._may_send():
            return
        # The step took a sync token that was too many.
        self._wait(self._may_send)
        if not (self._stopped or self._reason or self._error):
            with contextlib.suppress(tf.errors.DeadlineExceededError):
                run_unwrapped(self._session, self._take, options=_SHORT)

    def _failed(self, run: Run, error: BaseException) -> None:
        """Let the next step begin at once: the failed one may have sent nothing."""
        self._round = None

    def _wait(self, is_over: Callable[[], bool]) -> None:
        began = time.monotonic()
        while not (self._reason or self._error or is_over()):
            if time.monotonic() - began > _LOG_SECS:
                began = time.monotonic()
                slower = self._slower_workers()
                others = f"the steps of {', '.join(map(str, slower))}" if slower else "the gradients of the others"
                logging.info("%s waits for %s", self._cluster.member_task, others)
            time.sleep(_POLL_SECS)

    def _may_send(self) -> bool:
        self._look_at_round()
        return self._sent < self._quota()

    def _look_at_round(self, others: Sequence[Any] = ()) -> None:
        """Note the number of the present round, which the gradients of the next step are for. Read `others`, too."""
        number = int(self._read([self._begin, *others])[0])
        if number != self._round:
            self._round, self._sent = number, 0

    def _quota(self) -> int:
        """Return how many gradients of a round this worker sends: one, and more when other workers have ended."""
        workers, own = len(self._cluster.layout.workers), self._cluster.worker_index
        going = [index for index in range(workers) if index == own or index not in self._stopped]
        share, rest = divmod(workers, len(going))
        return share + (own in going[:rest])

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
        begun = self._read(self._position.saved[0]).reshape(len(workers), tower_range.towers).min(axis=1)
        own = self._cluster.worker_index
        others = [index for index in range(len(workers)) if index != own and index not in self._stopped]
        return [workers[index] for index in others if begun[index] < begun[own]]

    def _read(self, tensors: Any) -> Any:
        """Return the values of `tensors`, which are on parameter servers."""
        layout, logged = self._cluster.layout, ""
        while True:
            try:
                return run_unwrapped(self._session, tensors, options=_BOUNDED)
            except tf.errors.DeadlineExceededError:
                self._member.check_servers()
                # The watchdog does not see this run, which is no step.
                reason = "; ".join(unreachable(layout, layout.servers)) or "the parameter servers answer slowly"
                if reason != logged:
                    logging.warning("%s cannot read the positions of the other workers: %s", layout.task, reason)
                logged = reason

    def this_one_ended(self) -> None:
        if not self._reason:
            self._member.mark_ended()

    def close(self) -> None:
        """See base class. Stops listening to the other workers."""
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
        # Last, because a step looks at the others first.
        self._stopped = {member.layout.workers.index(task) for task in ended}
        if self._sync_tokens is None or not self._timed.pending:
            self._looks = 0
        # Without these, the round may be complete only with further gradients of this worker.
        elif ended or gone or self._lacks_token(self._sync_tokens):
            run_unwrapped(self._session, self._sync_tokens.wake, options=_BOUNDED)

    def _lacks_token(self, tokens: SyncTokens) -> bool:
        """Whether a step waits for the sync token of a round that has been applied.

        A worker that is killed while it waits leaves its dequeue running on the server, where it swallows the sync
        token of another worker.
        """
        over = tokens.applied is not None and self._round is not None
        over = over and run_unwrapped(self._session, tokens.applied, options=_BOUNDED) > self._round
        self._looks = self._looks + 1 if over else 0
        return self._looks > 0 and self._looks % _PATIENCE_LOOKS == 0
