"""The program of a worker process: receives a source, and makes the batches that are requested.

It must not import TensorFlow, which takes seconds, hundreds of megabytes and, on a GPU, all of its memory.
"""

from __future__ import annotations

import faulthandler
import heapq
import os
import select
import signal
from collections.abc import Sequence
from typing import Any, NamedTuple

from staging_tf1.signals import die_with
from staging_tf1.sources.aligned import allocate_with
from staging_tf1.sources.base import Source
from staging_tf1.sources.files.remote import note_reads
from staging_tf1.workers import reports
from staging_tf1.workers.arena import Arena
from staging_tf1.workers.batches import TooSmall, packed
from staging_tf1.workers.failures import described
from staging_tf1.workers.lanes import Drop, Failed, Lane, Made, Make, PeerGone, TooLarge, lane_at
from staging_tf1.workers.setup import IDLE, Setup, Status, trace_signal
from staging_tf1.workers.shipping import unloaded

__all__ = ["main"]


def main(life: int, status: int, traces: int, shipped: int, *lanes: int) -> None:
    """Serve requests until the training process closes a lane, or ends, which closes `life`.

    All arguments are inherited descriptors.
    """
    for descriptor in (life, traces):
        # Otherwise a program that the source starts would keep them open.
        os.set_inheritable(descriptor, False)
    die_with(life)
    # The training process decides what a Ctrl-C ends. It may ignore SIGTERM, which a new process would ignore, too.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    faulthandler.enable()
    faulthandler.register(trace_signal(), file=traces, all_threads=False)
    # The trace signal was blocked until here, because by default it ends a process. Others may be blocked in the thread
    # that started this process.
    signal.pthread_sigmask(signal.SIG_SETMASK, [signal.SIGINT])
    note = Status(status)
    os.close(status)
    try:
        _Worker([lane_at(descriptor) for descriptor in lanes], note, shipped).serve()
    except PeerGone:
        return


class _Batch(NamedTuple):
    number: int
    arrays: Any
    # The size of a buffer that would have held everything allocated while the batch was made.
    peak: int


class _Worker:
    def __init__(self, lanes: Sequence[Lane], status: Status, shipped: int) -> None:
        self._lanes = {lane.fileno(): lane for lane in lanes}
        self._status = status
        self._arenas: dict[int, Arena] = {}
        self._source: Source | None = None
        self._poller = select.poll()
        for descriptor in self._lanes:
            self._poller.register(descriptor, select.POLLIN)
        # Requests that are read but not answered, the earliest batch first.
        self._requests: list[tuple[int, int, Make]] = []
        # Batches that wait for a larger buffer, which may never come; by the descriptor of their lane.
        self._too_large: dict[int, _Batch] = {}
        # The answer to every request if the source cannot be loaded.
        self._cannot: bytes | None = None
        self._pid = os.getpid()
        # The lane of the request that is being answered.
        self._lane: Lane | None = None
        setup, _ = lanes[0].receive()
        assert isinstance(setup, Setup)
        try:
            setup.apply()
            reports.forward(setup.name, lambda: self._lane)
            self._source = unloaded(shipped)[setup.source_index]
        except BaseException as error:
            self._cannot = described(error)
        note_reads(status.reading)
        status.making(IDLE)

    def serve(self) -> None:
        while True:
            self._read_requests()
            _, descriptor, request = heapq.heappop(self._requests)
            self._lane = self._lanes[descriptor]
            self._lane.send(self._answer(request, descriptor))

    def _read_requests(self) -> None:
        while True:
            for descriptor, _ in self._poller.poll(0 if self._requests else None):
                message, descriptors = self._lanes[descriptor].receive()
                if isinstance(message, Drop):
                    self._arenas.pop(message.buffer, None)
                    continue
                for new in descriptors:
                    self._arenas[message.buffer] = Arena(new, message.nbytes)
                    os.close(new)
                heapq.heappush(self._requests, (message.batch, descriptor, message))
            if self._requests:
                return

    def _answer(self, request: Make, lane: int) -> Made | TooLarge | Failed:
        if self._cannot is not None:
            return Failed(request.batch, self._cannot, is_loaded=False)
        arena = self._arenas[request.buffer]
        self._status.making(request.batch)
        arena.begin()
        allocate_with(arena.allocate)
        try:
            return self._made(request.batch, lane, arena)
        except BaseException as error:
            return Failed(request.batch, described(error), is_loaded=True)
        finally:
            allocate_with(None)
            if os.getpid() != self._pid:
                os._exit(1)  # the source forked, and this is the child
            self._status.making(IDLE)

    def _made(self, number: int, lane: int, arena: Arena) -> Made | TooLarge:
        """Make a batch, or move it to the larger buffer that it needs."""
        assert self._source is not None
        batch = self._too_large.pop(lane, None)
        if batch is None or batch.number != number:
            batch = None  # frees it
            batch = _Batch(number, self._source.batch(number), arena.peak)
        try:
            return Made(number, packed(batch.arrays, arena, keeps=not self._source.gives_away))
        except TooSmall as error:
            # Other batches can be made meanwhile: all others may wait for an earlier one.
            self._too_large[lane] = batch
            wanted = max(batch.peak, error.nbytes)
            return TooLarge(number, error.nbytes, wanted if wanted > arena.size else arena.peak)
