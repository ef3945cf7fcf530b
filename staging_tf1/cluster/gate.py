"""`Gate`: where the runs of this task's sessions wait while the cluster stands still, so that a checkpoint is exact."""

from __future__ import annotations

import threading
from collections.abc import Callable

from staging_tf1.cluster.clock import Clock

# How often a closed gate looks again at what does not wake it.
_LOOK_SECS = 0.02


class Gate:
    """Open, it costs a run a microsecond. Closed, no run begins. Thread-safe.

    A run that waits for its batch may last until another worker goes on, so it counts as at rest: nothing that depends
    on the batch has happened, and while the gate is closed no batch is put.

    Attributes:
      only_wait: whether all runs under way that take a batch still wait for it.
    """

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self.only_wait: Callable[[], bool] = lambda: False
        self._changed = threading.Condition()
        self._closed = False
        self._closed_at = 0.0
        # The thread whose runs pass while the gate is closed.
        self._holder: int | None = None
        # The runs under way that take a batch.
        self._taking = 0
        # The other runs under way.
        self._others = 0

    @property
    def is_closed(self) -> bool:
        """Whether runs wait."""
        return self._closed

    @property
    def closed_secs(self) -> float:
        """The seconds since the gate was closed, if it is."""
        return self._clock.now() - self._closed_at

    def close(self, holder: int | None = None) -> None:
        """Let no further run begin, but those of the thread `holder`."""
        with self._changed:
            self._closed, self._holder, self._closed_at = True, holder, self._clock.now()

    def open(self) -> None:
        """Let runs begin."""
        with self._changed:
            self._closed, self._holder = False, None
            self._changed.notify_all()

    def await_open(self, secs: float) -> None:
        """Wait until the gate is open, for at most `secs` seconds."""
        with self._changed:
            self._changed.wait_for(lambda: not self._closed, secs)

    def enter(self, takes: bool) -> None:
        """Wait until the gate is open, and begin a run. `takes` tells whether the run takes a batch."""
        with self._changed:
            self._changed.wait_for(lambda: not self._closed or self._holder == threading.get_ident())
            self._add(takes, 1)

    def leave(self, takes: bool) -> None:
        """End a run that has begun with the same argument."""
        with self._changed:
            self._add(takes, -1)
            if self._closed:
                self._changed.notify_all()

    def _add(self, takes: bool, number: int) -> None:
        if takes:
            self._taking += number
        else:
            self._others += number

    def is_at_rest(self) -> bool:
        """Whether no run is under way, but for those that wait for their batch. Call it while the gate is closed."""
        with self._changed:
            taking, others = self._taking, self._others
        if others or not taking:
            return not others
        return self.only_wait()

    def await_rest(self, secs: float) -> bool:
        """Wait until the runs under way have ended, for at most `secs` seconds. Return `is_at_rest()`."""
        end = self._clock.now() + secs
        while not self.is_at_rest():
            if self._clock.now() > end:
                return False
            with self._changed:
                self._changed.wait_for(lambda: not (self._taking or self._others), _LOOK_SECS)
        return True
