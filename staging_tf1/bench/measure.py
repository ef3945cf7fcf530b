"""Measures one step function: a warm-up, then as many steps as fit into the given time."""

from __future__ import annotations

import resource
import sys
import time
from dataclasses import asdict, dataclass
from typing import Any

from staging_tf1.bench.case import Step
from staging_tf1.bench.cpu import cpu_secs

__all__ = ["Measurement", "measure"]

# The minimum number of warm-up steps, after which queues and areas have reached their usual fill.
_WARM_UP_STEPS = 20


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

    def as_dict(self) -> dict[str, Any]:
        """Return the fields as a dict, for JSON."""
        return asdict(self)


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
