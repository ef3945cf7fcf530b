"""Supplies: tell feed threads which batches to read, where workers share a source dynamically."""

from __future__ import annotations

import itertools
import threading
from collections import deque
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

from absl import logging

from staging_tf1._tf import tf
from staging_tf1.cluster.cluster import Cluster
from staging_tf1.cluster.dealing import Lease, Names
from staging_tf1.cluster.fence import after_refusal, refused
from staging_tf1.cluster.waiting import Backoff
from staging_tf1.errors import ClusterError
from staging_tf1.graph.acked import Acked

# The time between two looks for batches that were asked for ahead.
_POLL_SECS = 0.1
# The most batches that a worker asks for ahead.
_MOST_AHEAD = 1024
# A step acknowledges a batch as soon as it has it. A batch that is not acknowledged after this time is lost.
_LOST_SECS = 2.0


class NextBatch(NamedTuple):
    """One batch to read."""

    # Its place in the order in which this process delivers, from 0.
    place: int
    # Its index in the source.
    batch: int


class LocalSupply:
    """Supplies all batches that have not been consumed, to the only process.

    Args:
      acked: which have been consumed.
      num_batches: how many there are; None if endless.
      skip: acknowledges a batch.
    """

    def __init__(self, acked: Acked, num_batches: int | None, skip: Callable[[int], None]) -> None:
        rest = itertools.count(acked.end) if num_batches is None else range(acked.end, num_batches)
        gaps = [batch for batch in acked.unacked(acked.end) if num_batches is None or batch < num_batches]
        self._named = itertools.starmap(NextBatch, enumerate(itertools.chain(gaps, rest)))
        self._stopped = False
        self._lock = threading.Lock()
        self.skip = skip

    def next(self) -> NextBatch | None:
        """Return the next batch to read; None at the end."""
        with self._lock:
            return None if self._stopped else next(self._named, None)

    def step_failed(self) -> None:
        """Do nothing: a restored run reads the batch again."""

    def stop(self) -> None:
        """Let `next` return None from now on."""
        self._stopped = True


class Pace:
    """How many batches to ask for ahead: those of about a second, at the pace of the last two seconds."""

    def __init__(self) -> None:
        self._taken: deque[float] = deque()

    def took(self, now: float) -> None:
        self._taken.append(now)

    def ahead(self, now: float) -> int:
        """Return the number, at least 1."""
        while self._taken and self._taken[0] < now - 2:
            self._taken.popleft()
        return max(1, min(len(self._taken) // 2, _MOST_AHEAD))


class LeasedSupply:
    """Supplies the batches that the chief gives to this worker.

    Args:
      cluster: the cluster, whose run this worker has joined.
      pipeline: the name of the pipeline.
      look: returns how many elements are staged, and which batches are acknowledged.
      skip: acknowledges a batch.
    """

    def __init__(
        self,
        cluster: Cluster,
        pipeline: str,
        look: Callable[[], tuple[int, Acked]],
        skip: Callable[[int], None],
    ) -> None:
        self._cluster, self._member = cluster, cluster.member
        self._worker, self._names = cluster.member_task, Names(pipeline)
        names = self._names
        self._read_names = [
            "run",
            names.deal,
            names.fence(self._worker),
            names.ask(self._worker),
            names.lease(self._worker),
        ]
        # It counts only the seconds in which this process could hear of batches, and its steps acknowledge some.
        self._now, self._pauses = cluster.member.clock.now, Backoff(cluster.layout)
        self._fence_key, self._run = cluster.member.fence_key, cluster.member.run_id
        self._look, self._skip = look, skip
        # Batches given by the chief, and not yet returned by `next`.
        self._left: deque[int] = deque()
        self._given = self._asked = self._place = 0
        self._pace = Pace()
        # When the ledger was read last; and when it answered last, or the present wait began.
        self._read_at = self._answered_at = 0.0
        self._step_failed = self._has_given_back = False
        # What failed steps seem to have taken, and since when.
        self._lost: tuple[list[int], float] = ([], 0.0)
        self._stopped = threading.Event()
        # Reentrant: the garbage collector may close the session in the thread that waits, which then gives back.
        self._lock = threading.RLock()

    def next(self) -> NextBatch | None:
        """Return the next batch to read; None at the end. May wait until the chief hands out more.

        Raises:
          tf.errors.AbortedError: the chief has begun another run, or has given this worker's batches to others. A
            MonitoredSession begins again.
          ClusterError: the chief is gone.
        """
        # The other threads wait for the lock, while this one waits for the chief.
        with self._lock:
            self._answered_at = self._now()
            while not self._stopped.is_set():
                now = self._now()
                if self._left:
                    self._pauses.restart()
                    self._pace.took(now)
                    self._prepare(now)
                    self._place += 1
                    return NextBatch(self._place - 1, self._left.popleft())
                if self._is_over():
                    return None
        return None

    def skip(self, batch: int) -> None:
        """Acknowledge a bad batch, which no step will."""
        try:
            self._skip(batch)
        except tf.errors.InvalidArgumentError as error:
            if refused(error):
                raise after_refusal(self._cluster) from error
            raise

    def step_failed(self) -> None:
        """Note that a step has failed, which may have consumed a batch without acknowledging it."""
        self._step_failed = True

    def stop(self) -> None:
        self._stopped.set()

    def give_back(self) -> None:
        """Give the batches that this worker has not consumed to the others. It must run no further step."""
        self._stopped.set()
        with self._lock:
            if self._has_given_back:
                return
            self._has_given_back = True
            try:
                self._write_ask()
            except tf.errors.OpError as error:
                # If the server is gone, so is the ledger. Otherwise the chief notices that this worker is silent.
                logging.vlog(1, "%s could not give its batches back: %s", self._worker, error)

    def _prepare(self, now: float) -> None:
        """Ask for more batches in time, and take those that have come. Does not wait."""
        try:
            self._ask(now)
            if self._asked > self._given and now - self._read_at > _POLL_SECS:
                self._take(self._read())
        except tf.errors.OpError as error:
            # The steps notice it, or the wait for the next batch.
            logging.vlog(1, "%s: the ledger does not answer: %s", self._worker, error)

    def _ask(self, now: float) -> None:
        ahead = self._pace.ahead(now)
        if len(self._left) + self._asked - self._given > ahead:
            return
        before = self._asked
        # For twice as many, so the ledger is written only once for every `ahead` batches.
        self._asked = self._given - len(self._left) + 1 + 2 * ahead
        try:
            self._write_ask()
        except tf.errors.OpError:
            self._asked = before
            raise

    def _write_ask(self) -> None:
        ask = {"token": self._fence_key, "total": self._asked, "closed": self._has_given_back}
        self._member.ledger.write({self._names.ask(self._worker): ask})

    def _read(self) -> dict[str, Any]:
        self._read_at = self._now()
        entries = self._member.ledger.read(self._read_names)
        self._answered_at = self._now()
        return entries

    def _take(self, entries: Mapping[str, Any]) -> Lease | None:
        """Take the batches that were given since the last call. Return the lease."""
        if entries.get(self._names.ask(self._worker), {}).get("token") != self._fence_key:
            # An earlier session, whose start failed, was closed late and has overwritten the request.
            self._asked = self._given
        entry = entries.get(self._names.lease(self._worker))
        if entry is None or entry["token"] != self._fence_key:
            return None
        lease = Lease.from_json(entry)
        for before, first, end in lease.spans:
            if before >= self._given:
                self._left.extend(range(first, end))
        self._given = lease.given
        return lease

    def _is_over(self) -> bool:
        """Look for batches once, and wait a little if there are none. Return whether all are acknowledged."""
        try:
            self._ask(self._now())
            entries = self._read()
        except tf.errors.OpError as error:
            silent_secs = self._now() - self._answered_at
            self._check_answer(silent_secs, str(self._cluster.layout.servers[0]), error)
            self._stopped.wait(self._pauses.next())
            return False
        if self._has_ended(entries):
            return True
        lease = self._take(entries)
        if not self._left and lease is not None and self._step_failed:
            self._find_lost(lease)
        if not self._left:
            chief = self._cluster.layout.chief
            self._check_answer(self._member.signs.silent_secs(chief), str(chief), None)
            self._stopped.wait(self._pauses.next())
        return False

    def _has_ended(self, entries: Mapping[str, Any]) -> bool:
        run = entries.get("run")
        if run is None or run["id"] != self._run or entries.get(self._names.fence(self._worker)) != self._fence_key:
            raise after_refusal(self._cluster)
        if run["state"] == "ended":
            raise ClusterError(f"{self._worker}: the chief has ended the run without this worker, which was silent.")
        if run["state"] == "failed":
            raise ClusterError(f"{self._worker}: {self._cluster.layout.chief} could not begin again: {run['why']}")
        deal = entries.get(self._names.deal)
        if deal is None or deal["run"] != self._run:
            return False
        if deal["state"] == "failed":
            raise ClusterError(f"{self._worker}: the chief cannot hand out batches any more: {deal['why']}")
        return True

    def _check_answer(self, secs: float, task: str, error: BaseException | None) -> None:
        if secs > self._cluster.start_timeout_secs:
            raise ClusterError(
                f"{self._worker} waits for batches that the chief hands out, and {task} has been silent for "
                f"{secs:.0f} s. Restart it, or see its log."
            ) from error

    def _find_lost(self, lease: Lease) -> None:
        """Supply again what failed steps have taken and not acknowledged. Otherwise all workers would wait for it."""
        try:
            staged, acked = self._look()
        except tf.errors.OpError:
            return
        given = (batch for _, first, end in lease.spans for batch in range(first, end))
        lost = [] if staged else [batch for batch in given if not acked.has(batch)]
        now = self._now()
        if lost != self._lost[0]:
            self._lost = lost, now
        elif lost and now - self._lost[1] > _LOST_SECS:
            logging.warning("%s: batches that failed steps have taken come again: %s", self._worker, lost)
            self._left.extend(lost)
            self._step_failed, self._lost = False, ([], 0.0)


Supply = LocalSupply | LeasedSupply
