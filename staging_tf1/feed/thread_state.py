"""What a feed thread is doing at this moment, readable from any thread without a lock."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np

WAITING_FOR_SOURCE = "in the source"
WAITING_FOR_TURN = "waiting for the batches before its own"
PUTTING = "putting"
BETWEEN_STEPS = "between two steps"
ENDED = "ended"
NOT_STARTED = "not started"


@dataclass
class ThreadState:
    """One feed thread: its name, what it does, since when; and what it has done so far."""

    name: str
    doing: str = NOT_STARTED
    since: float = field(default_factory=time.perf_counter)
    batch: int = -1
    batches: int = 0
    ignored: int = 0
    records: int = 0
    bytes: int = 0
    source_secs: float = 0.0
    put_secs: float = 0.0
    thread: threading.Thread | None = None
    # Raises an error from the step that waits for this thread; None where the thread is the step's own.
    give_up: Callable[[BaseException], None] | None = None
    # Told of each state that it leaves, with its start and end; for a timeline.
    on_left: Callable[[ThreadState, float, float], None] | None = None

    def count(self, arrays: list[np.ndarray[Any, Any]]) -> None:
        """Counts a batch that has been delivered."""
        self.batches += 1
        self.records += len(arrays[0]) if arrays and arrays[0].ndim else 1
        self.bytes += sum(array.nbytes for array in arrays)

    def now(self, doing: str) -> float:
        """Enters `doing`; returns the seconds that the state before it lasted."""
        at = time.perf_counter()
        lasted = at - self.since
        if self.on_left is not None:
            self.on_left(self, self.since, at)
        # One thread writes, others only read: a reader sees the old pair or the new one, give or take a field.
        self.doing, self.since = doing, at
        return lasted
