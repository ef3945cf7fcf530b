"""Lets threads through in the order of their numbers."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager

from staging_tf1.fork import refuse_if_forked


class Stopped(Exception):
    """A feed thread was told to stop while it waited for its number or for room."""


class Sequencer:
    """Lets threads through one at a time, in the order of their numbers."""

    def __init__(self, first: int = 0) -> None:
        self._next = first
        self._stopped = False
        self._changed = threading.Condition()

    @contextmanager
    def at(self, number: int) -> Iterator[None]:
        """Waits until all smaller numbers have gone through; the body runs alone.

        Raises:
          Stopped: `stop` was called.
        """
        refuse_if_forked("A feed thread")
        with self._changed:
            self._changed.wait_for(lambda: self._stopped or self._next == number)
            if self._stopped:
                raise Stopped
        yield
        # Not in a `finally`: no batch may follow one that failed.
        with self._changed:
            self._next += 1
            self._changed.notify_all()

    def stop(self) -> None:
        """Wakes every thread that waits, with `Stopped`."""
        with self._changed:
            self._stopped = True
            self._changed.notify_all()


class Rotation:
    """The order in which towers take from an input that they share: one batch each, round by round.

    Args:
      towers: how many.
      first: how many batches they have taken before, together.
    """

    def __init__(self, towers: int, first: int = 0) -> None:
        self.towers, self.first = towers, first
        self._sequencer = Sequencer(first)

    def at(self, round: int, tower: int) -> AbstractContextManager[None]:
        """Waits until it is `tower`'s batch of `round`; the body runs alone."""
        return self._sequencer.at(round * self.towers + tower)

    def stop(self) -> None:
        """Wakes every tower that waits, with `Stopped`."""
        self._sequencer.stop()
