"""`Clock`: counts the seconds in which this process runs, to measure how long other tasks are silent."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable

# How often a thread must look at the clock. Between two looks that are further apart than `_MOST_SECS`, the process
# stood still: it was stopped (SIGSTOP, Ctrl-Z) or frozen with its machine or container.
TICK_SECS = 0.25
_MOST_SECS = 1.0


class Clock:
    """Seconds that pass only while this process runs. Thread-safe.

    `time.monotonic` goes on while a process is stopped. A process that was stopped could not hear the others, so that
    time does not count as their silence. A thread must call `now` every `TICK_SECS`.

    >>> seconds = iter([0.0, 0.5, 60.5, 61.0, 61.0])
    >>> clock = Clock(lambda: next(seconds))
    >>> [clock.now() for _ in range(3)], clock.stood_still_secs
    ([0.5, 0.75, 1.25], 59.75)
    """

    def __init__(self, monotonic: Callable[[], float] = time.monotonic) -> None:
        self._monotonic = monotonic
        self._lock = threading.Lock()
        self._last = monotonic()
        self._lost = 0.0

    def now(self) -> float:
        """Return the seconds, from any moment on."""
        with self._lock:
            now = self._monotonic()
            passed, self._last = now - self._last, now
            if passed > _MOST_SECS:
                self._lost += passed - TICK_SECS
            return now - self._lost

    @property
    def stood_still_secs(self) -> float:
        """The seconds that this process has stood still in all, as far as it has noticed."""
        self.now()
        with self._lock:
            return self._lost
