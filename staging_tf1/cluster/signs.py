"""`Signs`: when each task last gave a sign of life, and which tasks are gone."""

from __future__ import annotations

import threading
import time
from typing import Any

from staging_tf1.cluster.layout import Layout, Task


class Signs:
    """The signs of life that this task has seen in the ledger. Thread-safe.

    Args:
      layout: the cluster.
      silence_secs: seconds without a sign of life after which a task counts as gone.
      start_secs: the same for a task that has given none yet.
    """

    def __init__(self, layout: Layout, silence_secs: float, start_secs: float) -> None:
        self._layout = layout
        self._silence_secs, self._start_secs = silence_secs, start_secs
        self._lock = threading.Lock()
        # The last sign of each task, and when it came.
        self._seen: dict[Task, tuple[Any, float]] = {}
        self._began = time.monotonic()

    def forget(self) -> None:
        """Begins again, as if no task had given a sign."""
        with self._lock:
            self._seen = {}
            self._began = time.monotonic()

    def note(self, entries: dict[str, Any]) -> None:
        """Takes note of the signs among the entries of the ledger."""
        now = time.monotonic()
        with self._lock:
            for task in [*self._layout.workers, *self._layout.servers]:
                sign = entries.get(f"task/{task}")
                # The clocks of two machines differ, so a sign counts as of when it is seen.
                if sign is not None and (task not in self._seen or self._seen[task][0] != sign):
                    self._seen[task] = (sign, now)

    def silent_secs(self, task: Task) -> float:
        """Returns for how many seconds `task` has given no sign of life."""
        with self._lock:
            last = self._seen[task][1] if task in self._seen else self._began
            return time.monotonic() - last

    def is_gone(self, task: Task) -> bool:
        """Returns whether `task` has been silent for too long."""
        return self.silent_secs(task) > (self._silence_secs if self._knows(task) else self._start_secs)

    def described(self, task: Task) -> str:
        """Returns `task` with its address and its last sign of life, for messages."""
        said = f"silent for {self.silent_secs(task):.0f} s" if self._knows(task) else "never seen"
        return f"{task} at {self._layout.address(task)} ({said})"

    def _knows(self, task: Task) -> bool:
        with self._lock:
            return task in self._seen
