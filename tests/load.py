"""How much slower this machine is at the moment, because of what else runs on it."""

from __future__ import annotations

import os
import time

# Of the processor's time: long enough to be taken off the processor a few times on a busy machine.
_SAMPLE_SECS = 0.05


def slowdown() -> float:
    """The seconds that one second of work takes now; 1 on an idle machine.

    For limits that are promises in seconds. The promise is about a machine that is free for it; what only must not hang
    has a limit of its own, a generous one.
    """
    began, worked = time.perf_counter(), time.thread_time()
    while time.thread_time() - worked < _SAMPLE_SECS:
        pass
    taken = (time.perf_counter() - began) / (time.thread_time() - worked)
    # The sample is short, the load that the system reports is that of the last minute.
    return max(1.0, taken, os.getloadavg()[0] / len(os.sched_getaffinity(0)))
