"""`Crew`: how many of a producer's feed threads work; the others are parked."""

from __future__ import annotations

import threading

from staging_tf1.feed.threads import PARKED, ThreadState


class Crew:
    """The feed threads of one producer in one session, of which the first `number` work.

    A thread parks between two batches, where it holds none. So the number may change at any moment: the batches and
    their order stay the same.

    Args:
      number: how many threads work at first.

    Attributes:
      number: how many work now.
      ended: whether the parked threads have been told to end.
    """

    def __init__(self, number: int) -> None:
        self.number = number
        self.ended = False
        self._changed = threading.Condition()

    def admit(self, state: ThreadState) -> bool:
        """Park the calling thread until it is among those that work. Return False if it is to end instead."""
        if state.index < self.number:
            return True
        state.now(PARKED)
        with self._changed:
            self._changed.wait_for(lambda: self.ended or state.index < self.number)
            return not self.ended

    def resize(self, number: int) -> None:
        """Let the first `number` threads work. Others park after their current batch."""
        with self._changed:
            self.number = number
            self._changed.notify_all()

    def end(self) -> None:
        """Wake the parked threads, which end. May be called twice."""
        with self._changed:
            self.ended = True
            self._changed.notify_all()

    def wait_for_end(self, secs: float) -> bool:
        """Wait for `end`, at most `secs` seconds. Return whether it was called."""
        with self._changed:
            return self._changed.wait_for(lambda: self.ended, secs)
