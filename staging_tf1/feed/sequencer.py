"""`Sequencer` and `Rotation`: let threads through in the order of their numbers."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager

from staging_tf1.fork import refuse_if_forked


class Stopped(Exception):
    """A feed thread was told to stop while it waited for its number or for a free slot."""


class Sequencer:
    """Lets threads through one at a time, in the order of their numbers."""

    def __init__(self, first: int = 0) -> None:
        self._next = first
        self._stopped = False
        self._changed = threading.Condition()

    @contextmanager
    def at(self, number: int, count: int = 1) -> Iterator[None]:
        """Wait until all smaller numbers have gone through. The body runs alone, for `count` numbers.

        Raises:
          Stopped: `stop` was called.
        """
        refuse_if_forked("A feed thread")
        with self._changed:
            self._changed.wait_for(lambda: self._stopped or self._next == number)
            if self._stopped:
                raise Stopped
        yield
        # Not in a `finally`, because no batch may follow one that failed.
        with self._changed:
            self._next += count
            self._changed.notify_all()

    def stop(self) -> None:
        """Wake every waiting thread with `Stopped`."""
        with self._changed:
            self._stopped = True
            self._changed.notify_all()


class Rotation:
    """The order in which towers take from an input that they share: one batch each, round by round.

    Args:
      towers: the number of towers.
      first: how many batches all towers together have consumed before.
    """

    def __init__(self, towers: int, first: int = 0) -> None:
        self.towers, self.first = towers, first
        self._sequencer = Sequencer(first)

    def at(self, round: int, tower: int) -> AbstractContextManager[None]:
        """Wait for the turn of `tower` in `round`. The body runs alone."""
        return self._sequencer.at(round * self.towers + tower)

    def stop(self) -> None:
        """Wake every waiting tower with `Stopped`."""
        self._sequencer.stop()
