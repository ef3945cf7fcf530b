"""The feeder's side of `Turns`: fill the queue, let the taker take once, fill it again."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from staging_tf1._tf import fast_callable
from staging_tf1.errors import SpecError
from staging_tf1.feed.turnstile import Stopped
from staging_tf1.graph.sink import Sink
from staging_tf1.graph.turns import Turns


class Filling:
    """Keeps a queue full whenever its taker may take, so that what the taker finds does not depend on timing."""

    def __init__(self, turns: Turns, sink: Sink, session: Any, stopping: Callable[[], bool]) -> None:
        self._name, self._capacity, self._turns, self._stopping = sink.name, sink.capacity, turns, stopping
        self._size = session.make_callable(sink.size)
        self._pending = session.make_callable(turns.pending)
        self._grant = fast_callable(session, feeds=(), targets=[turns.grant], in_caller_thread=True)
        self._wait_taken = fast_callable(session, feeds=(), targets=[turns.wait_taken.op], in_caller_thread=True)
        self._end = fast_callable(session, feeds=(), targets=[turns.end], in_caller_thread=True)
        self._told = session.make_callable(turns.told)
        self._tell = fast_callable(session, feeds=(), targets=[turns.tell], in_caller_thread=True)
        self._held = 0

    def make_room(self, records: int) -> None:
        """Lets the taker take until `records` more fit.

        Raises:
          SpecError: the queue is too small for batches of this size; it would wait for ever.
          Stopped: the feeding was stopped.
        """
        while self._held + records > self._capacity:
            if self._held < max(1, self._turns.needed):
                raise SpecError(
                    f"'{self._name}' got a batch of {records} records for a queue with capacity={self._capacity} of "
                    f"which a taker needs {self._turns.needed}. Wanted a capacity of at least "
                    f"{self._turns.needed + records}."
                )
            self._let_take()
        self._held += records

    def serve_rest(self) -> None:
        """Lets the taker take until a closed queue is empty, then ends the turns."""
        self._held = int(self._size())
        while self._held:
            self._let_take()
        self._end()

    def tell(self) -> None:
        """Wakes the feeder, which then looks how much the queue holds. Does not block."""
        if not self._told():
            self._tell()

    def _let_take(self) -> None:
        if not self._pending():
            self._grant()
        self._wait_taken()
        if self._stopping():
            # It was the queue's cancel that woke us.
            raise Stopped
        self._held = int(self._size())
