"""`WorkerPool`: the worker processes of one source, which make its batches by number."""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, NamedTuple

from staging_tf1.fork import disown_in_child
from staging_tf1.workers.batches import unpacked
from staging_tf1.workers.buffers import Buffer, Buffers, PoolStopped
from staging_tf1.workers.deaths import Deaths
from staging_tf1.workers.failures import CannotStart, cannot_load, cannot_start, raised
from staging_tf1.workers.lanes import Drop, Failed, Lane, Made, Make, PeerGone, Report, TooLarge
from staging_tf1.workers.process import LANES_EACH, WorkerProcess, waiting_for
from staging_tf1.workers.reports import Shown
from staging_tf1.workers.setup import Setup, occupy_standard_descriptors
from staging_tf1.workers.shipping import Shipment

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
    shipment: Shipment
    source_index: int = 0
    nice: int = 0
    # The most bytes of shared memory for batches, which the earliest batch may exceed; 0 is no limit.
    memory_limit: int = 0
    # Bytes of a batch; None if unknown.
    batch_bytes: int | None = None


class _Free(NamedTuple):
    """A lane that no thread uses, and its worker."""

    worker: WorkerProcess
    lane: Lane


class WorkerPool:
    """The worker processes of one source. They start with the first batch, side by side. Thread-safe.

    A worker that dies is replaced, and its batches are made again. As many threads may wait for batches as there are
    workers times `LANES_EACH`. The pools of `concurrent.futures` and `multiprocessing` end with the first worker that
    dies, or lose its batches, and copy each batch through a pipe.
    """

    def __init__(self, options: PoolOptions) -> None:
        self._options = options
        self.name, self.processes = options.name, options.processes
        self.workers = [f"{self.name}:{number}" for number in range(self.processes)]
        # Held while workers are started.
        self._starting = threading.Lock()
        self._buffers = Buffers(options.memory_limit, options.batch_bytes, f"'{self.name}'")
        self._shown = Shown()
        self._deaths = Deaths(self.name)
        self._changed = threading.Condition()
        self._running: list[WorkerProcess] = []
        self._free: list[_Free] = []
        self._started = self._stopped = self._ended = False
        disown_in_child(self)

    @property
    def memory_bytes(self) -> int:
        """The most shared memory that its batches have had, in bytes."""
        return self._buffers.most_bytes

    @property
    def pids(self) -> list[int]:
        """The process ids of the workers that run."""
        with self._changed:
            return [worker.pid for worker in self._running]

    @property
    def starting(self) -> str:
        """What is still starting, for messages; empty if a worker has begun to serve, or could not be started."""
        with self._changed:
            begun = self._stopped or not all(worker.starting for worker in self._running)
        return "" if begun else f"worker processes {', '.join(map(repr, self.workers))}"

    # A thread that waits until the source is shipped waits for the pool.
    url = ""

    def stack(self) -> str:
        """Return nothing: no process has a stack yet."""
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
          CannotStart: no worker can load the source, or there is no memory for the batch.
          SourceError: several workers have died over this batch.
          BaseException: what the source raised.
        """
        self._buffers.draw(number)
        try:
            if not self._started:
                with waiting_for(self):
                    self._start()
            while True:
                free = self._take_lane()
                try:
                    with waiting_for(free.worker):
                        batch = self._made(free, number)
                    self._deaths.forgive(number)
                    return batch
                except PeerGone:
                    self._bury(free.worker, number)
                finally:
                    self._give_lane(free)
        finally:
            self._buffers.done(number)

    def stop(self) -> None:
        """Wake all waiting threads with PoolStopped, and tell the workers to end. May be called more than once."""
        with self._changed:
            self._stopped = True
            workers = list(self._running)
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
        for worker in self._running:
            worker.end(max(0.0, deadline - time.perf_counter()))
            worker.close()
        with self._changed:
            # Frees their memory.
            self._running.clear()
            self._free.clear()
        self._options.shipment.close()

    def disown(self) -> None:
        """Release the workers in a fork of the training process."""
        self._stopped = self._ended = True
        for worker in self._running:
            worker.close()

    def _made(self, free: _Free, number: int) -> Any:
        """Ask a worker for a batch. Raises PeerGone if it has died, and otherwise as `make`."""
        least = wanted = 0
        while True:
            buffer = self._asked(free, number, least, wanted)
            try:
                reply = self._reply(free, number)
            except BaseException:
                self._buffers.give_back(buffer)
                raise
            if isinstance(reply, Made):
                # The buffer returns when its memory is freed.
                return unpacked(reply.payload, self._buffers.lend(buffer))
            if isinstance(reply, TooLarge):
                self._buffers.drop(buffer)
                least, wanted = reply.least, reply.wanted
                continue
            self._buffers.give_back(buffer)
            error = raised(reply.payload, free.worker.name)
            raise error if reply.is_loaded else cannot_load(free.worker.name, error)

    def _asked(self, free: _Free, number: int, least: int, wanted: int) -> Buffer:
        """Request a batch, with a buffer for it."""
        try:
            buffer, forgotten = self._buffers.take(free.worker, number, least, wanted)
        except OSError as error:
            raise cannot_start(self.name, error, "make shared memory for a batch") from error
        try:
            for dropped in forgotten:
                with contextlib.suppress(PeerGone):  # its memory is gone with it
                    dropped.owner.lanes[0].send(Drop(dropped.number))
            new = [] if buffer.descriptor < 0 else [buffer.descriptor]
            free.lane.send(Make(number, buffer.number, buffer.size), *new)
            buffer.sent()
        except BaseException:
            self._buffers.give_back(buffer)
            raise
        return buffer

    def _reply(self, free: _Free, number: int) -> Made | TooLarge | Failed:
        """Wait for the reply to the request for a batch. Shows what the worker logs and warns of in the meantime."""
        try:
            while isinstance(reply := free.lane.receive()[0], Report):
                self._shown.show(reply.payload)
        except PeerGone:
            raise
        except BaseException:
            # The reply is still to come. The next request on this lane would receive it.
            free.worker.end(0.0)
            raise
        assert isinstance(reply, (Made, TooLarge, Failed))
        if reply.batch != number:  # that of a request which was given up
            free.worker.end(0.0)
            raise PeerGone
        return reply

    def _start(self) -> None:
        with self._starting:
            if self._started or self._stopped:
                return
            with self._stopping_at_a_failure():
                occupy_standard_descriptors()
                for name in self.workers:
                    self._add(name)
            self._started = True

    @contextlib.contextmanager
    def _stopping_at_a_failure(self) -> Iterator[None]:
        """Stop the pool if a worker cannot be started: a retry would fail, too, and threads would wait forever."""
        try:
            yield
        except BaseException as error:
            self.stop()
            if not isinstance(error, Exception):
                raise
            raise cannot_start(self.name, error) from error

    def _add(self, name: str) -> None:
        setup = Setup.of_this_process(name, self._options.source_index, self._options.nice)
        worker = WorkerProcess(setup, self._options.shipment.descriptor)
        self._buffers.add_owner(worker)
        with self._changed:
            self._running.append(worker)
            self._free += [_Free(worker, lane) for lane in worker.lanes]
            self._changed.notify_all()
            stopped = self._stopped
        if stopped:
            worker.stop()

    def _take_lane(self) -> _Free:
        """Take a lane of the worker with the fewest requests."""
        with self._changed:
            self._changed.wait_for(lambda: self._free or self._stopped)
            if self._stopped:
                raise PoolStopped
            free = min(self._free, key=lambda free: free.worker.requests)
            self._free.remove(free)
            free.worker.requests += 1
            return free

    def _give_lane(self, free: _Free) -> None:
        with self._changed:
            free.worker.requests -= 1
            if free.worker in self._running:
                self._free.append(free)
                self._changed.notify()
            elif not free.worker.requests:
                # It was replaced, and no other thread uses it any more.
                free.worker.close()

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
            if worker in self._running:
                with self._changed:
                    self._running.remove(worker)
                    self._free = [free for free in self._free if free.worker is not worker]
                status = worker.end(0.0)
                self._buffers.forget(worker)
                self._deaths.note(worker.name, worker.status.doing, status)
                with self._stopping_at_a_failure():
                    self._add(worker.name)
            error = self._deaths.error_for(number)
            if error is not None:
                raise error
