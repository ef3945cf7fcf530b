"""Feed threads: what each is doing, its priority, and how threads go through in the order of their numbers."""

from __future__ import annotations

import os
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from staging_tf1.arguments import whole
from staging_tf1.fork import refuse_if_forked

WAITING_FOR_SOURCE = "in the source"
WAITING_FOR_SHARE = "waiting for batches that the chief hands out"
WAITING_IN_ORDER = "waiting for the batches before its own"
PUTTING = "putting"
BETWEEN_STEPS = "between two steps"
PARKED = "parked by AUTOTUNE"
ENDED = "ended"
NOT_STARTED = "not started"

# The lowest priority; see nice(2).
_LOWEST = 19
# The CPU time of one batch in this many is measured: reading that clock takes 0.6 us.
_MEASURED_ONE_IN = 8


@dataclass
class ThreadState:
    """One feed thread: its name, what it is doing and since when, and what it has done. Read without a lock."""

    name: str
    doing: str = NOT_STARTED
    since: float = field(default_factory=time.perf_counter)
    # Its index among the threads of its producer.
    index: int = 0
    batch: int = -1
    batches: int = 0
    ignored: int = 0
    records: int = 0
    # The bytes of everything delivered.
    bytes: int = 0
    # The bytes of its strings.
    string_bytes: int = 0
    # The same two of what was counted last.
    last_size: tuple[int, int] = (0, 0)
    source_secs: float = 0.0
    # Seconds in the source, of the batches that were measured.
    measured_secs: float = 0.0
    # CPU seconds meanwhile.
    measured_cpu_secs: float = 0.0
    put_secs: float = 0.0
    thread: threading.Thread | None = None

    def count(self, arrays: list[np.ndarray[Any, Any]], records: int, batches: int = 1) -> None:
        """Count what was delivered; its strings are `bytes` objects."""
        self.last_size = 0, 0
        for array in arrays:
            size = _bytes_of(array)
            self.last_size = self.last_size[0] + size, self.last_size[1] + size * array.dtype.hasobject
        self.count_sized(records, batches)

    def count_sized(self, records: int, batches: int, times: int = 1) -> None:
        """Count what was delivered, if it is `times` as large as what was counted last."""
        self.batches += batches
        self.records += records
        self.bytes += times * self.last_size[0]
        self.string_bytes += times * self.last_size[1]

    def enter_source(self) -> float | None:
        """Enter the source; return what `leave_source` needs."""
        self.now(WAITING_FOR_SOURCE)
        return None if self.batches % _MEASURED_ONE_IN else time.thread_time()

    def leave_source(self, cpu_began: float | None, doing: str) -> float:
        """Count the time in the source, and enter the state `doing`. Return the seconds."""
        cpu_ended = None if cpu_began is None else time.thread_time()
        lasted = self.now(doing)
        self.source_secs += lasted
        if cpu_began is not None and cpu_ended is not None:
            self.measured_secs += lasted
            self.measured_cpu_secs += cpu_ended - cpu_began
        return lasted

    @property
    def cores_in_source(self) -> float:
        """The share of a core that it uses while it is in the source."""
        return self.measured_cpu_secs / self.measured_secs if self.measured_secs else 0.0

    def now(self, doing: str) -> float:
        """Enter the state `doing`; return the seconds that the one before it lasted."""
        at = time.perf_counter()
        lasted = at - self.since
        # One thread writes and others only read: a reader sees the old pair or the new one, give or take a field.
        self.doing, self.since = doing, at
        return lasted


def _bytes_of(array: np.ndarray[Any, Any]) -> int:
    # nbytes would count the pointers to strings.
    return sum(map(len, array.reshape(-1).tolist())) if array.dtype.hasobject else array.nbytes


def check_nice(nice: Any, caller: str) -> int:
    """`nice` as an int.

    Raises:
      TypeError, ValueError: not a whole number from 0 to 19.
    """
    return whole(caller, "nice", nice, 0, _LOWEST)


def be_nice(nice: int) -> None:
    """Lowers the priority of the calling thread, which cannot raise it again; does nothing except on Linux."""
    if nice and sys.platform == "linux":
        # Contrary to POSIX, Linux keeps a priority per thread.
        thread = threading.get_native_id()
        now = os.getpriority(os.PRIO_PROCESS, thread)
        os.setpriority(os.PRIO_PROCESS, thread, min(now + nice, _LOWEST))


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
        return self._sequencer.at(round * self.towers + tower)

    def stop(self) -> None:
        self._sequencer.stop()
