"""Measures one step function: warm-up, then as many steps as fit into the time."""

from __future__ import annotations

import resource
import sys
import time
from dataclasses import asdict, dataclass
from typing import Any

from staging_tf1.bench.task import Step

__all__ = ["Measurement", "measure"]

# The warm-up has at least so many steps, so that queues and areas are as full as they will be.
_WARM_UP_STEPS = 20


@dataclass(frozen=True)
class Measurement:
    """What one process measured of one system on one workload."""

    # Milliseconds a step: on the clock, and of all cores together.
    wall_ms: float
    cpu_ms: float
    # How many steps that is the mean of.
    steps: int
    # The most memory that the process ever held, in MB.
    peak_mb: float

    def as_dict(self) -> dict[str, Any]:
        """For JSON."""
        return asdict(self)


def measure(step: Step, secs: float, steps: int | None = None) -> Measurement:
    """Runs `step` for about `secs` seconds, after a warm-up of a third of that time.

    The number of steps is settled before the clock starts, from the second half of the warm-up: looking at the
    clock after every step would cost as much as the smallest of them does.

    Args:
      step: runs one step.
      secs: how long the measured part should take.
      steps: measure exactly so many, after as many for warm-up.
    """
    count = steps or _steps_that_fit(step, secs)
    if steps:
        _run(step, steps)
    wall, cpu = time.perf_counter(), time.process_time()
    _run(step, count)
    wall, cpu = time.perf_counter() - wall, time.process_time() - cpu
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
    return peak / (2**20 if sys.platform == "darwin" else 2**10)  # bytes there, kilobytes here
