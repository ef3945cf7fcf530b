"""`Pulse`: a thread that gives signs of life."""

from __future__ import annotations

import threading
from collections.abc import Callable

from staging_tf1.garbage import join_thread

_BEAT_SECS, _SYNC_BEAT_SECS = 2.0, 0.5


def beat_secs(workers: int, *, sync: bool = False) -> float:
    """Return the seconds between two signs of life of a task, in a cluster with so many workers.

    Each task reads the signs of all others, so what they cost the server grows with the square of their number. From
    100 workers on they come less often.
    """
    return (_SYNC_BEAT_SECS if sync else _BEAT_SECS) * max(1.0, workers / 100)


class Pulse:
    """Calls a function again and again in a thread. May be started again after `stop`.

    Args:
      name: that of the thread.
      secs: the pause between two calls, in seconds.
      beat: called with how often it has been called since the start. It must not raise.
    """

    def __init__(self, name: str, secs: float, beat: Callable[[int], None]) -> None:
        self._name, self._secs, self._beat = name, secs, beat
        self._stop = threading.Event()
        self._thread: threading.Thread | None = None

    @property
    def is_beating(self) -> bool:
        """Whether the thread is alive."""
        return self._thread is not None and self._thread.is_alive()

    def start(self) -> None:
        """Start the thread."""
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, args=(self._stop,), name=self._name, daemon=True)
        self._thread.start()

    def stop(self) -> None:
        """End the thread and wait for it. May be called again."""
        self._stop.set()
        join_thread(self._thread)

    def _run(self, stop: threading.Event) -> None:
        number = 0
        while True:
            self._beat(number)
            if stop.wait(self._secs):
                return
            number += 1
