"""The threads of one lane: take a batch, check it, own it, put it."""

from __future__ import annotations

import threading
from contextlib import AbstractContextManager, nullcontext
from functools import partial
from typing import Any, Protocol

import numpy as np

from staging_tf1._tf import tf
from staging_tf1.feed.filling import Filling
from staging_tf1.feed.inputs import Inputs
from staging_tf1.feed.lane import Lane
from staging_tf1.feed.priority import be_nice
from staging_tf1.feed.reading import Numbered, Reader
from staging_tf1.feed.sink_run import SinkRun
from staging_tf1.feed.skipping import Skips
from staging_tf1.feed.source_errors import errors_only
from staging_tf1.feed.thread_state import PUTTING, WAITING_FOR_SOURCE, WAITING_FOR_TURN, ThreadState
from staging_tf1.feed.turnstile import Stopped, Turnstile
from staging_tf1.fork import refuse_if_forked


class Listener(Protocol):
    """What a lane tells its feed."""

    session: Any

    @property
    def stopping(self) -> bool: ...

    def staged_one(self, tower: int) -> None: ...

    def lane_ended(self, lane: Lane, sink: SinkRun) -> None: ...


class LaneRun:
    """One lane in one session; `feed` is the body of each of its threads."""

    def __init__(self, lane: Lane, sink: SinkRun, listener: Listener, inputs: Inputs, start: int) -> None:
        self.lane, self.sink = lane, sink
        self.states = [ThreadState(f"feed:{lane.name}:{i}") for i in range(lane.num_threads)]
        self.skips = Skips(lane.name, lane.ignored)
        self._listener = listener
        self._open_threads = lane.num_threads
        self._finishing = threading.Event()
        self._lock = threading.Lock()
        self._turnstile = Turnstile(start)
        self._takes_turns = lane.in_order and lane.num_threads > 1
        self._inputs = inputs
        self._reader = inputs.reader(lane, start)
        self._round = start
        # The source's batches before this number have been put, or skipped and told of.
        self._passed = start
        self._filling = (
            None if lane.turns is None else Filling(lane.turns, lane.sink, listener.session, lambda: listener.stopping)
        )

    def stop(self) -> None:
        """Wakes the threads that wait for their turn."""
        self._turnstile.stop()
        self._inputs.stop()

    def finish(self) -> None:
        """Lets the threads end as if their source had, after the batch that they have in hand."""
        if self.lane.chained:
            # The feed before it ends, too; its queue closes, and what that holds has been read already.
            return
        self._finishing.set()
        self._inputs.stop()

    def wake(self) -> None:
        """Lets a feeder that waits for its taker look again, after the taker has failed."""
        if self._filling is not None:
            self._filling.tell()

    def feed(self, state: ThreadState) -> None:
        """Carries batches until there are no more or the feed stops."""
        state.now(WAITING_FOR_SOURCE)
        be_nice(self.lane.nice)
        try:
            if self._reader is None:
                self._feed_from_graph(state)
            else:
                self._feed_from_source(state, self._reader)
        except Stopped:
            if self._listener.stopping:
                raise
        with self._lock:
            self._open_threads -= 1
            if self._open_threads:
                return
        if not self._listener.stopping:
            if self._filling is not None:
                self.sink.close()
                self._filling.serve_rest()
            self._listener.lane_ended(self.lane, self.sink)

    def _feed_from_graph(self, state: ThreadState) -> None:
        while not (self._listener.stopping or self._finishing.is_set()):
            state.now(PUTTING)
            with self._rotation():
                if not self._put_computed(state):
                    return
            state.put_secs += state.now(WAITING_FOR_SOURCE)
            state.batches += 1
            self._listener.staged_one(self.lane.tower)

    def _put_computed(self, state: ThreadState) -> bool:
        """Puts the next batch that is not skipped; False at the end.

        A bad batch costs a tower no turn: it would fall behind the others, until they wait for it with full areas.
        """
        while not self._listener.stopping:
            try:
                self.sink.put()
            except (tf.errors.OutOfRangeError, Stopped):
                # Before what may be skipped, which may be any Exception.
                return False
            except self.skips.types as error:
                self._skip(state, error)
            else:
                return True
        return False

    def _skip(self, state: ThreadState, error: BaseException) -> None:
        self.skips.skip(error)
        state.ignored += 1

    def _rotation(self) -> AbstractContextManager[None]:
        if not self.lane.rotates:
            return nullcontext()
        with self._lock:
            number = self._round
            self._round += 1
        return self._inputs.rotation.turn(number * self._inputs.towers + self.lane.tower)

    def _feed_from_source(self, state: ThreadState, reader: Reader) -> None:
        skip = partial(self._skip, state)
        while not (self._listener.stopping or self._finishing.is_set()):
            state.now(WAITING_FOR_SOURCE)
            with errors_only(f"'{self.lane.name}'"):
                numbered = reader.take(skip)
                # The source may have forked, and in the child any of our locks and runs may wait forever.
                refuse_if_forked("A feed thread")
                if numbered is None:
                    return
                state.batch = numbered.number
                arrays = self._arrays_or_skip(numbered, state)
            state.source_secs += state.now(WAITING_FOR_TURN)
            with self._turn(numbered.number):
                if arrays is None:
                    continue
                state.now(PUTTING)
                self._put(numbered.number, arrays)
                state.put_secs += state.now(WAITING_FOR_SOURCE)
            state.count(arrays)

    def _arrays_or_skip(self, numbered: Numbered, state: ThreadState) -> list[np.ndarray[Any, Any]] | None:
        try:
            if numbered.error is not None:
                raise numbered.error
            return self.lane.arrays(numbered.number, numbered.batch)
        except self.skips.types as error:
            self._skip(state, error)
            return None

    def _turn(self, index: int) -> AbstractContextManager[None]:
        return self._turnstile.turn(index) if self._takes_turns else nullcontext()

    def _put(self, number: int, arrays: list[np.ndarray[Any, Any]]) -> None:
        if self._filling is not None:
            self._filling.make_room(len(arrays[0]))
        passed, self._passed = self._passed, number + 1
        self.sink.put(*arrays, count=self._passed - passed)
        self._listener.staged_one(self.lane.tower)
