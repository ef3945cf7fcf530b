"""The CPU time of this process and of the processes that it has started."""

from __future__ import annotations

import contextlib
import os
import sys
import time

__all__ = ["cpu_secs"]

# The fields of /proc/PID/stat after the name, which may contain spaces: the parent, and the ticks in user and system.
_PARENT, _USER, _SYSTEM = 1, 11, 12


def cpu_secs() -> float:
    """Return the CPU seconds of this process and, on Linux, of its running descendants, in ticks of 10 ms."""
    if sys.platform != "linux":
        return time.process_time()
    stats = _stats()
    ours, ticks = {os.getpid()}, 0
    while True:
        children = {pid for pid, fields in stats.items() if int(fields[_PARENT]) in ours} - ours
        if not children:
            return time.process_time() + ticks / os.sysconf("SC_CLK_TCK")
        ticks += sum(int(stats[pid][field]) for pid in children for field in (_USER, _SYSTEM))
        ours |= children


def _stats() -> dict[int, list[str]]:
    """Return the fields of all processes of the machine, from the state on."""
    stats = {}
    for name in os.listdir("/proc"):
        # A process may end at any moment.
        with contextlib.suppress(OSError):
            if name.isdigit():
                with open(f"/proc/{name}/stat", encoding="utf-8", errors="replace") as file:
                    stats[int(name)] = file.read().rpartition(")")[2].split()
    return stats
