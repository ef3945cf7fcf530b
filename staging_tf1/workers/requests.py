"""`Requests`: how a worker is asked for one batch, with a buffer for it, and how its replies are read."""

from __future__ import annotations

import contextlib
from typing import Any, NamedTuple

from staging_tf1.workers.batches import unpacked
from staging_tf1.workers.buffers import Buffer, Buffers, BuffersClosed
from staging_tf1.workers.channel import CannotLoad, Channel, Drop, Failed, Log, Made, Make, Move, Need, PeerGone, Warn
from staging_tf1.workers.failures import CannotStart, cannot_start, raised
from staging_tf1.workers.process import WorkerProcess
from staging_tf1.workers.reports import Shown

__all__ = ["Lane", "PoolStopped", "Requests"]


class PoolStopped(Exception):
    """The pool was stopped while a thread waited for a batch."""


class Lane(NamedTuple):
    """A channel to a worker, for one request at a time."""

    worker: WorkerProcess
    channel: Channel


class Requests:
    """The requests of one pool. Thread-safe; only one thread uses a lane at a time.

    Args:
      owner: the name of the pool, for messages.
      buffers: the memory for its batches.
    """

    def __init__(self, owner: str, buffers: Buffers) -> None:
        self._owner, self._buffers = owner, buffers
        self._shown = Shown()

    def request(self, lane: Lane, number: int) -> Any:
        """Ask a worker for batch `number`, and return it in arrays that nothing else uses.

        Raises:
          PeerGone: the worker has died.
          PoolStopped: the buffers were closed.
          CannotStart: the worker cannot load the source, or there is no memory for the batch.
          BaseException: what the source raised.
        """
        buffer: Buffer | None = None
        try:
            buffer = self.send_buffer(lane, Make, number)
            while True:
                reply = self._reply(lane, number)
                if isinstance(reply, Made):
                    memory = self._buffers.lend(buffer)
                    # From here on, the buffer returns when `memory` is freed.
                    buffer = None
                    return unpacked(reply.payload, memory)
                if isinstance(reply, Need):
                    self._buffers.drop(buffer, number)
                    buffer = None
                    buffer = self.send_buffer(lane, Move, number, reply.least, reply.wanted)
                else:
                    raise self._failure(reply, lane.worker)
        except BuffersClosed:
            self._buffers.given_up(number, buffer)
            raise PoolStopped from None
        except BaseException:
            self._buffers.given_up(number, buffer)
            raise

    def _reply(self, lane: Lane, number: int) -> Made | Need | Failed | CannotLoad:
        """Wait for the reply to the request for a batch. Shows what the worker logs and warns of in the meantime."""
        try:
            while isinstance(reply := lane.channel.receive(), (Log, Warn)):
                self._shown.show(reply)
        except PeerGone:
            raise
        except BaseException:
            # The reply is still to come. The next request on this lane would receive it.
            lane.worker.kill()
            raise
        if not isinstance(reply, (Made, Need, Failed, CannotLoad)) or reply.batch != number:
            lane.worker.kill()
            raise PeerGone
        return reply

    def send_buffer(
        self, lane: Lane, record: type[Make] | type[Move], number: int, least: int = 0, wanted: int = 0
    ) -> Buffer:
        """Send a request with a buffer for batch `number`."""
        try:
            buffer, forgotten = self._buffers.take(lane.worker, number, least, wanted)
        except OSError as error:
            raise cannot_start(self._owner, error, "make shared memory for a batch") from error
        try:
            for dropped in forgotten:
                self._drop(dropped)
            new = [] if buffer.descriptor < 0 else [buffer.descriptor]
            lane.channel.send(record(number, buffer.number, buffer.size, new))
            buffer.sent()
        except BaseException:
            self._buffers.given_up(number, buffer)
            raise
        return buffer

    def _drop(self, buffer: Buffer) -> None:
        """Tell a worker to forget a buffer. If it has died, its memory is gone anyway."""
        with contextlib.suppress(PeerGone):
            buffer.owner.channels[0].send(Drop(buffer.number))

    def _failure(self, reply: Failed | CannotLoad, worker: WorkerProcess) -> BaseException:
        error = raised(reply.payload, worker.name)
        if isinstance(reply, Failed):
            return error
        kind = type(error).__name__
        cannot = CannotStart(
            f"worker process '{worker.name}' cannot load the source: {kind}: {error}. A worker imports the modules "
            f"that the source was defined in, with this process's sys.path and working directory. Fix that exception, "
            f"or use num_threads= instead."
        )
        cannot.__cause__ = error.__cause__
        return cannot
