"""The current slowdown of this machine because of other load."""

from __future__ import annotations

import os
import time

# CPU seconds: long enough to be preempted a few times on a busy machine.
_SAMPLE_SECS = 0.05


def slowdown() -> float:
    """Return the wall seconds that one CPU second takes now; 1 on an idle machine.

    Multiply limits that test a promise in seconds by it, because the promise is about an idle machine. Limits that only
    detect hangs are generous and do not need it.
    """
    began, worked = time.perf_counter(), time.thread_time()
    while time.thread_time() - worked < _SAMPLE_SECS:
        pass
    taken = (time.perf_counter() - began) / (time.thread_time() - worked)
    # The sample is short; the system's load is an average over the last minute.
    return max(1.0, taken, os.getloadavg()[0] / len(os.sched_getaffinity(0)))
