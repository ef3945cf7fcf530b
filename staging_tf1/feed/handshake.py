"""`FeederSide`: the feeder's side of a hand-shake. It fills the queue, lets the taker take once, and fills it again."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from staging_tf1._tf import fast_callable
from staging_tf1.errors import SpecError
from staging_tf1.feed.delivery import Delivery
from staging_tf1.feed.threads import Stopped
from staging_tf1.graph.feed_queue import Handshake
from staging_tf1.graph.sink import Sink


class FeederSide:
    """Fills the queue whenever its taker may take, so that what the taker finds does not depend on timing."""

    def __init__(self, handshake: Handshake, sink: Sink, delivery: Delivery) -> None:
        session = delivery.session
        self._name, self._capacity, self._handshake, self._delivery = sink.name, sink.capacity, handshake, delivery
        self._size = _reader(session, [sink.size])
        self._seen = _reader(session, handshake.seen)
        self._grant = fast_callable(session, feeds=(), targets=[handshake.grant], in_caller_thread=True)
        self._end = fast_callable(session, feeds=(), targets=[handshake.end], in_caller_thread=True)
        self._wakes = _reader(session, [handshake.wakes])
        self._wake = fast_callable(session, feeds=(), targets=[handshake.wake], in_caller_thread=True)
        # Elements in the queue; and grants that the taker has not used, as far as is known.
        self._held = self._granted = 0

    def make_room(self, records: int) -> None:
        """Let the taker take until there is room for `records` more.

        Raises:
          SpecError: the queue is too small for batches of this size; the put would wait forever.
          Stopped: the pipeline was stopped.
        """
        needed = self._handshake.needed
        while self._held + records > self._capacity:
            if self._held < max(1, needed):
                raise SpecError(
                    f"'{self._name}' got a batch of {records} records for a queue with capacity={self._capacity}, and "
                    f"each dequeue needs {needed}. Expected a capacity of at least {needed + records}."
                )
            self._let_take()
        self._held += records

    def have_put(self) -> None:
        """Let the taker take from a full queue while the next batch is read: whatever its size, it does not fit."""
        if self._held == self._capacity:
            self._give_grant()

    def serve_rest(self) -> None:
        """Let the taker take until a closed queue is empty, then end the hand-shake."""
        (self._held,) = self._size()
        while self._held:
            self._let_take()
        self._end()

    def wake(self) -> None:
        """Wake the feeder, so that it checks how much the queue holds. Does not block."""
        if not self._wakes()[0]:
            self._wake()

    def _give_grant(self) -> None:
        if not self._granted:
            self._grant()
            self._granted = 1

    def _let_take(self) -> None:
        self._give_grant()
        seen = self._seen()
        if self._delivery.stopping:
            # The queue's cancel woke us.
            raise Stopped
        self._held, self._granted = seen


def _reader(session: Any, numbers: Sequence[Any]) -> Callable[[], list[int]]:
    read = fast_callable(session, feeds=(), targets=(), fetches=numbers, in_caller_thread=True)
    return lambda: list(map(int, read()))
