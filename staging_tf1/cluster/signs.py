"""Signs of life: `Pulse` gives those of this task, `Signs` knows when each task last gave one, and which are gone."""

from __future__ import annotations

import itertools
import threading
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from staging_tf1.background import Background
from staging_tf1.cluster.clock import Clock
from staging_tf1.cluster.layout import Layout, Task

_BEAT_SECS, _SYNC_BEAT_SECS = 2.0, 0.5
# How much of the silence that is allowed counts between two answers of the ledger.
_MOST_BETWEEN = 0.25


def beat_secs(workers: int, *, sync: bool = False) -> float:
    """Return the seconds between two signs of life of a task, in a cluster with so many workers.

    The first parameter server pays for each, so from 100 workers on they come less often.
    """
    return (_SYNC_BEAT_SECS if sync else _BEAT_SECS) * max(1.0, workers / 100)


class Pulse:
    """Calls a function again and again in a thread. May be started again after `stop`.

    Args:
      name: that of the thread.
      secs: the pause between two calls, in seconds.
      beat: called with how often it has been called since the start. It must not raise.
    """

    def __init__(self, name: str, secs: float, beat: Callable[[int], object]) -> None:
        self._name, self._secs, self._beat = name, secs, beat
        self._thread: Background | None = None

    @property
    def is_beating(self) -> bool:
        """Whether the thread is alive."""
        return self._thread is not None and self._thread.is_alive()

    def start(self) -> None:
        """Start the thread."""
        self._thread = Background(self._name, self._beats)
        self._thread.start()

    def stop(self) -> None:
        """End the thread and wait for it. May be called again."""
        if self._thread is not None:
            self._thread.stop()

    def _beats(self) -> Iterator[float]:
        for number in itertools.count():
            self._beat(number)
            yield self._secs


class Signs:
    """The signs of life that this task has seen in the ledger. Thread-safe.

    A task is gone after `silence_secs` without a sign of life, or `start_secs` if it has given none yet. It is silent
    while this one listens and hears nothing of it. Time in which the ledger does not answer, or this task does not ask,
    hardly counts: if its server stands still, nobody's signs arrive.
    """

    def __init__(self, layout: Layout, silence_secs: float, start_secs: float, clock: Clock) -> None:
        self._layout, self._clock = layout, clock
        self._silence_secs, self._start_secs = silence_secs, start_secs
        self._lock = threading.Lock()
        self.forget()

    def forget(self) -> None:
        """Begin again, as if no task had given a sign."""
        with self._lock:
            # The last sign of each task, with the value of `_listened` when it came.
            self._seen: dict[Task, tuple[Any, float]] = {}
            # The seconds that this task has listened.
            self._listened = 0.0
            self._heard_at = self._clock.now()

    def note(self, entries: Mapping[str, Any], silent: Mapping[str, float] | None = None) -> None:
        """Take note of the signs among the entries that the ledger has just answered.

        Args:
          entries: what it answered.
          silent: for how many seconds tasks have been silent, as another task knows that hears them all the time.
        """
        with self._lock:
            now = self._clock.now()
            self._listened += min(now - self._heard_at, _MOST_BETWEEN * self._silence_secs)
            self._heard_at = now
            for task in [*self._layout.workers, *self._layout.servers]:
                sign = entries.get(f"task/{task}")
                # The clocks of two machines differ, so a sign counts as of when it is seen.
                if sign is not None and (task not in self._seen or self._seen[task][0] != sign):
                    self._seen[task] = (sign, self._listened - (silent or {}).get(str(task), 0.0))

    def silent_secs(self, task: Task) -> float:
        """Return for how many seconds this task has listened without a sign of life of `task`."""
        with self._lock:
            return self._listened - (self._seen[task][1] if task in self._seen else 0.0)

    def is_gone(self, task: Task) -> bool:
        """Return whether `task` has been silent for too long."""
        return self.silent_secs(task) > (self._silence_secs if self.knows(task) else self._start_secs)

    def described(self, task: Task) -> str:
        """Return `task` with its address and its last sign of life, for messages."""
        last_sign = f"silent for {self.silent_secs(task):.0f} s" if self.knows(task) else "never seen"
        return f"{task} at {self._layout.address(task)} ({last_sign})"

    def knows(self, task: Task) -> bool:
        """Return whether `task` has given a sign of life."""
        with self._lock:
            return task in self._seen
