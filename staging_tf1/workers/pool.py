"""`WorkerPool`: the worker processes of one source, which make its batches by number."""

from __future__ import annotations

import contextlib
import os
import pickle
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from staging_tf1.fork import disown_in_child
from staging_tf1.workers.buffers import Buffers
from staging_tf1.workers.channel import PeerGone, Start
from staging_tf1.workers.deaths import Deaths
from staging_tf1.workers.failures import CannotStart, cannot_start
from staging_tf1.workers.process import LANES_EACH, WorkerProcess, waiting_for
from staging_tf1.workers.requests import Lane, PoolStopped, Requests
from staging_tf1.workers.setup import Setup, Status, occupy_standard_descriptors
from staging_tf1.workers.shipping import SharedShipment

__all__ = ["LANES_EACH", "CannotStart", "PoolOptions", "PoolStopped", "WorkerPool"]

# How long a worker may take to end by itself.
_GRACE_SECS = 0.3


@dataclass(frozen=True)
class PoolOptions:
    """How many workers a pool has, and what they read."""

    # For messages: "train".
    name: str
    processes: int
    # It contains the source, at this index.
    shipment: SharedShipment
    source_index: int = 0
    nice: int = 0
    # The most bytes of shared memory for batches, which the earliest batch may exceed; 0 is no limit.
    memory_limit: int = 0
    # Bytes of a batch; None if unknown.
    batch_bytes: int | None = None


class WorkerPool:
    """The worker processes of one source. They start with the first batch, side by side. Thread-safe.

    A worker that dies is replaced, and its batches are made again. As many threads may wait for batches as there are
    workers times `LANES_EACH`.
    """

    def __init__(self, options: PoolOptions) -> None:
        self._options = options
        self._lock = threading.Lock()
        # Held while workers are started.
        self._starting = threading.Lock()
        self._buffers = Buffers(options.memory_limit, options.batch_bytes, f"'{options.name}'")
        self._requests = Requests(options.name, self._buffers)
        self._workers: list[WorkerProcess] = []
        self._free: list[Lane] = []
        self._changed = threading.Condition(self._lock)
        self._deaths = Deaths(options.name)
        self._dead: list[WorkerProcess] = []
        self._status_file = -1
        self._started = self._stopped = self._ended = False
        disown_in_child(self)

    @property
    def memory_bytes(self) -> int:
        """The most shared memory that its batches have had, in bytes."""
        return self._buffers.most_bytes

    @property
    def name(self) -> str:
        """Its name, for messages."""
        return self._options.name

    @property
    def processes(self) -> int:
        """How many workers it has."""
        return self._options.processes

    @property
    def workers(self) -> list[str]:
        """The names of the workers."""
        return [f"{self._options.name}:{number}" for number in range(self._options.processes)]

    @property
    def pids(self) -> list[int]:
        """The process ids of the workers that run."""
        with self._lock:
            return [worker.pid for worker in self._workers]

    @property
    def starting(self) -> str:
        """What is still starting, for messages; empty if a worker has begun to serve, or could not be started."""
        with self._lock:
            begun = self._stopped or not all(worker.starting for worker in self._workers)
        return "" if begun else f"worker processes {', '.join(map(repr, self.workers))}"

    @property
    def url(self) -> str:
        """Return nothing, as `stack`."""
        return ""

    def stack(self) -> str:
        """Return nothing, for a thread that waits until the source is shipped to all of them."""
        return ""

    def draw(self, number: int) -> None:
        """Note that batch `number` is the next one in the order of delivery.

        Memory is given out in that order, see `memory_limit`. Threads that take numbers under a lock call `make` in any
        order, so they call this under the lock. Without this call, the order is that of `make`.
        """
        self._buffers.draw(number)

    def make(self, number: int) -> Any:
        """Have a worker make batch `number`, and return it in arrays that nothing else uses.

        Raises:
          PoolStopped: `stop` was called.
          CannotStart: no worker can load the source.
          SourceError: several workers have died over this batch.
          BaseException: what the source raised.
        """
        self._buffers.draw(number)
        try:
            return self._request(number)
        finally:
            self._buffers.done(number)

    def _request(self, number: int) -> Any:
        if not self._started:
            with waiting_for(self):
                self._start()
        while True:
            lane = self._take_lane()
            try:
                with waiting_for(lane.worker):
                    batch = self._requests.request(lane, number)
                self._deaths.forgive(number)
                return batch
            except PeerGone:
                self._bury(lane.worker, number)
            finally:
                self._give_lane(lane)

    def stop(self) -> None:
        """Wake all waiting threads with PoolStopped, and tell the workers to end. May be called more than once."""
        with self._lock:
            self._stopped = True
            workers = list(self._workers)
            self._changed.notify_all()
        for worker in workers:
            worker.stop()
        self._buffers.close()

    def end(self) -> None:
        """End the workers, by force if they take long. No thread may wait for a batch. May be called twice."""
        self.stop()
        with self._starting:
            if self._ended:
                return
            self._ended = True
        deadline = time.perf_counter() + _GRACE_SECS
        for worker in [*self._workers, *self._dead]:
            worker.end(max(0.0, deadline - time.perf_counter()))
        with self._lock:
            # Frees their memory and descriptors.
            self._workers.clear()
            self._dead.clear()
            self._free.clear()
        self._options.shipment.close()
        if self._status_file >= 0:
            os.close(self._status_file)

    def _start(self) -> None:
        with self._starting:
            if self._started or self._stopped:
                return
            with self._ending_at_a_failure():
                occupy_standard_descriptors()
                self._status_file = os.memfd_create("staging_tf1 status")
                os.ftruncate(self._status_file, Status.bytes_for(self._options.processes))
                for number in range(self._options.processes):
                    self._add(self._new(number))
            self._started = True

    @contextlib.contextmanager
    def _ending_at_a_failure(self) -> Iterator[None]:
        """Stop the pool if a worker cannot be started: a retry would fail, too, and threads would wait forever."""
        try:
            yield
        except BaseException as error:
            self.stop()
            if not isinstance(error, Exception):
                raise
            raise cannot_start(self._options.name, error) from error

    def _new(self, number: int) -> WorkerProcess:
        name = self.workers[number]
        shipped = self._options.shipment.descriptor()
        setup = Setup.of_this_process(name, number, self._options.source_index, self._options.nice)
        settings = pickle.dumps(setup)
        worker = WorkerProcess(name, number, self._status_file)
        with contextlib.suppress(PeerGone):  # it has died already: its first request will raise
            worker.channels[0].send(Start(settings, [shipped]))
        return worker

    def _add(self, worker: WorkerProcess) -> None:
        self._buffers.add_owner(worker)
        with self._lock:
            self._workers.append(worker)
            self._free += [Lane(worker, channel) for channel in worker.channels]
            self._changed.notify_all()
            stopped = self._stopped
        if stopped:
            worker.stop()

    def _take_lane(self) -> Lane:
        """Take a lane of the worker with the fewest requests."""
        with self._lock:
            while not self._free and not self._stopped:
                self._changed.wait()
            if self._stopped:
                raise PoolStopped
            lane = min(self._free, key=lambda lane: lane.worker.requests)
            self._free.remove(lane)
            lane.worker.requests += 1
            return lane

    def _give_lane(self, lane: Lane) -> None:
        with self._lock:
            lane.worker.requests -= 1
            if lane.worker in self._workers:
                self._free.append(lane)
                self._changed.notify()
                return
            if lane.worker.requests or lane.worker not in self._dead:
                return
            self._dead.remove(lane.worker)
        # No other thread uses it any more.
        lane.worker.end(0.0)

    def _bury(self, worker: WorkerProcess, number: int) -> None:
        """Replace a worker that has died, unless another thread has. The caller requests batch `number` again.

        Raises:
          PoolStopped: `stop` ended it.
          SourceError: too many workers have died over that batch.
          CannotStart: too many workers have died before their first batch.
        """
        with self._starting:
            if self._stopped:
                raise PoolStopped
            if worker in self._workers:
                self._replace(worker)
            error = self._deaths.error_for(number)
            if error is not None:
                raise error

    def _replace(self, worker: WorkerProcess) -> None:
        with self._lock:
            self._workers.remove(worker)
            self._free = [lane for lane in self._free if lane.worker is not worker]
            self._dead.append(worker)
        worker.kill()
        status = worker.exit_status()
        self._buffers.forget(worker)
        self._deaths.note(worker.name, worker.status.doing, status)
        with self._ending_at_a_failure():
            self._add(self._new(worker.number))

    def disown(self) -> None:
        """Release the workers in a fork of the training process."""
        self._stopped = self._ended = True
        for worker in [*self._workers, *self._dead]:
            worker.disown()
