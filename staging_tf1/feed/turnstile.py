"""Lets the threads of one lane deliver in order."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager

from staging_tf1.fork import refuse_if_forked


class Stopped(Exception):
    """A feed thread was told to stop while it waited, for its turn or for room."""


class Turnstile:
    """Lets threads through in the order of their batch numbers, so that threads do not change the sequence."""

    def __init__(self, start: int = 0) -> None:
        self._next = start
        self._stopped = False
        self._changed = threading.Condition()

    @contextmanager
    def turn(self, index: int) -> Iterator[None]:
        """Waits until all batches before `index` have gone through; the body runs alone."""
        refuse_if_forked("A feed thread")
        with self._changed:
            self._changed.wait_for(lambda: self._stopped or self._next == index)
            if self._stopped:
                raise Stopped
        yield
        # Not in a `finally`: after a batch that failed, none may follow.
        with self._changed:
            self._next += 1
            self._changed.notify_all()

    def stop(self) -> None:
        """Wakes everybody who waits, with `Stopped`."""
        with self._changed:
            self._stopped = True
            self._changed.notify_all()
