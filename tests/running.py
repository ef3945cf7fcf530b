"""The threads that a test has left running."""

from __future__ import annotations

import threading
import time

# Threads that belong to nobody's test but live as long as the process: pytest's timer, tqdm's monitor, and
# TensorFlow's writer of summaries, which it keeps for whoever writes to that folder next.
_LASTING = ("pytest_timeout", "TMonitor", "_EventLoggerThread")


def left_over(before: set[threading.Thread], grace_secs: float) -> list[str]:
    """The names of the threads that have been started since `before` and still run.

    One that has done its work may still be leaving its last function: all of them together have `grace_secs` for it.
    """
    deadline = time.monotonic() + grace_secs
    while True:
        running = [thread for thread in threading.enumerate() if thread not in before and not _lasts(thread)]
        if not running or time.monotonic() > deadline:
            return [thread.name for thread in running]
        for thread in running:
            # One whose start a Ctrl-C has cut short cannot be joined until it has begun, in a moment.
            if thread.ident is not None:
                thread.join(max(0.0, deadline - time.monotonic()))


def _lasts(thread: threading.Thread) -> bool:
    return any(word in f"{type(thread).__name__} {thread.name}" for word in _LASTING)


def feed_threads() -> list[str]:
    """The names of our threads that run."""
    return sorted(t.name for t in threading.enumerate() if t.name.startswith(("feed:", "staging:")))
