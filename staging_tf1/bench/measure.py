"""Measures one step function, in wall time and CPU time: a warm-up, then as many steps as fit into the given time."""

from __future__ import annotations

import contextlib
import os
import resource
import sys
import time
from dataclasses import dataclass

from staging_tf1.bench.case import Step

__all__ = ["Measurement", "cpu_secs", "measure"]

# The minimum number of warm-up steps, after which queues and areas have reached their usual fill.
_WARM_UP_STEPS = 20
# The fields of /proc/PID/stat after the name, which may contain spaces: the parent, and the ticks in user and system.
_PARENT, _USER, _SYSTEM = 1, 11, 12


@dataclass(frozen=True)
class Measurement:
    """The figures of one system on one workload, measured by one process."""

    # Milliseconds per step: wall time, and CPU time of all cores together, of this process and those that it started.
    wall_ms: float
    cpu_ms: float
    # The number of measured steps.
    steps: int
    # The peak memory of the process, in MB.
    peak_mb: float


def measure(step: Step, secs: float, steps: int | None = None) -> Measurement:
    """Run `step` for about `secs` seconds, after a warm-up of a third of that time.

    The second half of the warm-up determines the number of steps. Reading the clock after every step would cost as
    much as the smallest step. With `steps`, measure exactly this number, after as many warm-up steps.
    """
    count = steps or _steps_that_fit(step, secs)
    if steps:
        _run(step, steps)
    wall, cpu = time.perf_counter(), cpu_secs()
    _run(step, count)
    wall, cpu = time.perf_counter() - wall, cpu_secs() - cpu
    return Measurement(wall * 1e3 / count, cpu * 1e3 / count, count, _peak_mb())


def _run(step: Step, count: int) -> None:
    for _ in range(count):
        step()


def _steps_that_fit(step: Step, secs: float) -> int:
    half = secs / 6
    done, start = 0, time.perf_counter()
    while done < _WARM_UP_STEPS / 2 or time.perf_counter() - start < half:
        step()
        done += 1
    start = time.perf_counter()
    _run(step, done)
    return max(1, round(secs * done / (time.perf_counter() - start)))


def _peak_mb() -> float:
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak / (
        2**20 if sys.platform == "darwin" else 2**10
    )  # ru_maxrss is in bytes on macOS, in kilobytes on Linux


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
