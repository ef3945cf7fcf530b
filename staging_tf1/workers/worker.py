"""The program of a worker process: receives a source, and makes the batches that are requested.

It must not import TensorFlow, which takes seconds, hundreds of megabytes and, on a GPU, all of its memory.
"""

from __future__ import annotations

import faulthandler
import fcntl
import heapq
import os
import pickle
import select
import signal
from collections.abc import Sequence
from typing import Any, NamedTuple

from staging_tf1.sources.aligned import allocate_with
from staging_tf1.sources.base import Source
from staging_tf1.sources.files.remote import note_reads
from staging_tf1.workers import reports
from staging_tf1.workers.arena import Arena
from staging_tf1.workers.batches import TooSmall, packed
from staging_tf1.workers.channel import (
    CannotLoad,
    Channel,
    Drop,
    Failed,
    Made,
    Make,
    Move,
    Need,
    PeerGone,
    Start,
    channel_at,
)
from staging_tf1.workers.failures import described
from staging_tf1.workers.setup import LANES, LIFE, STATUS, TRACES, Setup, Status, trace_signal
from staging_tf1.workers.shipping import unloaded

__all__ = ["main"]


def main(lanes: int) -> None:
    """Serve requests until the training process closes a channel. The descriptors are those of `setup.py`."""
    for descriptor in (LIFE, STATUS, TRACES):
        # Otherwise a program that the source starts would keep them open.
        os.set_inheritable(descriptor, False)
    die_with(LIFE)
    # The training process decides what a Ctrl-C ends.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    faulthandler.enable()
    faulthandler.register(trace_signal(), file=TRACES, all_threads=False)
    # Blocked until here, because by default it ends a process.
    signal.pthread_sigmask(signal.SIG_UNBLOCK, [trace_signal()])
    channels = [channel_at(LANES + lane) for lane in range(lanes)]
    try:
        start = channels[0].receive()
        assert isinstance(start, Start)
        _Worker(start, channels).serve()
    except PeerGone:
        return


def die_with(life: int) -> None:
    """Have the kernel kill this process when the other end of the socket `life` is closed, whatever runs here.

    A thread that waits for that would need the GIL, which a long call in C may hold. PR_SET_PDEATHSIG would kill this
    process as soon as the *thread* that started it ends.
    """
    fcntl.fcntl(life, fcntl.F_SETOWN, os.getpid())
    fcntl.fcntl(life, fcntl.F_SETSIG, signal.SIGKILL)
    fcntl.fcntl(life, fcntl.F_SETFL, fcntl.fcntl(life, fcntl.F_GETFL) | os.O_ASYNC)
    poller = select.poll()
    poller.register(life, select.POLLIN)
    if poller.poll(0):  # it was closed before that
        os.kill(os.getpid(), signal.SIGKILL)


class _Batch(NamedTuple):
    arrays: Any
    # The size of a buffer that would have held everything allocated while the batch was made.
    peak: int


class _Worker:
    def __init__(self, start: Start, channels: Sequence[Channel]) -> None:
        self._channels = {channel.fileno(): channel for channel in channels}
        self._setup: Setup = pickle.loads(start.payload)
        self._status = Status(STATUS, self._setup.number)
        self._arenas: dict[int, Arena] = {}
        self._source: Source | None = None
        self._poller = select.poll()
        for descriptor in self._channels:
            self._poller.register(descriptor, select.POLLIN)
        # Requests that are read but not answered, the earliest batch first.
        self._requests: list[tuple[int, int, Make | Move]] = []
        # Batches that wait for a larger buffer, which may never come; by the descriptor of their lane.
        self._too_large: dict[int, _Batch] = {}
        # The answer to every request if the source cannot be loaded.
        self._cannot: bytes | None = None
        self._pid = os.getpid()
        # The channel of the request that is being answered.
        self._lane: Channel | None = None
        (shipped,) = start.descriptors
        try:
            self._setup.apply()
            reports.forward(self._setup.name, lambda: self._lane)
            self._source = unloaded(shipped)[self._setup.source_index]
        except BaseException as error:
            self._cannot = described(error)
        note_reads(self._status.reading)
        self._status.making(None)

    def serve(self) -> None:
        while True:
            self._read_requests()
            _, descriptor, request = heapq.heappop(self._requests)
            self._lane = self._channels[descriptor]
            self._answer(self._lane, request)

    def _read_requests(self) -> None:
        while True:
            for descriptor, _ in self._poller.poll(0 if self._requests else None):
                message = self._channels[descriptor].receive()
                if isinstance(message, Drop):
                    self._arenas.pop(message.buffer, None)
                    continue
                assert isinstance(message, (Make, Move))
                heapq.heappush(self._requests, (message.batch, descriptor, message))
            if self._requests:
                return

    def _answer(self, lane: Channel, request: Make | Move) -> None:
        if self._cannot is not None:
            for descriptor in request.descriptors:
                os.close(descriptor)
            lane.send(CannotLoad(request.batch, self._cannot))
            return
        arena = self._arena(request)
        self._status.making(request.batch)
        arena.begin()
        allocate_with(arena.allocate)
        reply: Made | Need | Failed
        try:
            reply = self._make(request, arena)
        except BaseException as error:
            reply = Failed(request.batch, described(error))
        finally:
            allocate_with(None)
        if os.getpid() != self._pid:
            os._exit(1)  # the source forked, and this is the child
        self._status.making(None)
        lane.send(reply)

    def _make(self, request: Make | Move, arena: Arena) -> Made | Need:
        """Make the requested batch, or move it to the larger buffer that it needs."""
        assert self._source is not None and self._lane is not None
        batch = self._too_large.pop(self._lane.fileno(), None)
        was_empty = arena.is_empty
        if isinstance(request, Make):
            batch = None  # frees it
            batch = _Batch(self._source.batch(request.batch), arena.peak)
        assert batch is not None
        try:
            payload = packed(batch.arrays, arena, keeps=not self._source.gives_away)
        except TooSmall as error:
            if isinstance(request, Move) and was_empty and error.nbytes <= arena.size:
                raise RuntimeError(
                    f"batch {request.batch} needs {error.nbytes:,} bytes, and does not fit into an empty slot of "
                    f"{arena.size:,} bytes. Please report this as a bug."
                ) from None
            # Other batches can be made meanwhile: all others may wait for an earlier one.
            self._too_large[self._lane.fileno()] = batch
            wanted = max(batch.peak, error.nbytes)
            return Need(request.batch, error.nbytes, wanted if wanted > arena.size else arena.peak)
        return Made(request.batch, payload)

    def _arena(self, request: Make | Move) -> Arena:
        """Return the buffer that a request names. A new buffer comes with its descriptor."""
        for descriptor in request.descriptors:
            self._arenas[request.buffer] = Arena(descriptor, request.nbytes)
            os.close(descriptor)
        return self._arenas[request.buffer]
