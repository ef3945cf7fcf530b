"""Measures one system on one workload: what each process of `bench.py` runs.

Its arguments are a request in JSON and the file for the answer, an object with one key: `measured`, or `skipped` with
the reason.
"""

from __future__ import annotations

import contextlib
import json
import os
import resource
import sys
import time
from dataclasses import dataclass, field
from typing import Any

import tensorflow.compat.v1 as tf
from common import Step, run_steps, steps_that_fit
from peers import SYSTEMS
from systems import BOUNDS, Case
from workloads import WORKLOADS, NotApplicable

_QUICK_STEPS = 5
# The fields of /proc/PID/stat after the name, which may contain spaces: the parent, and the ticks in user and system.
_PARENT, _USER, _SYSTEM = 1, 11, 12


@dataclass(frozen=True)
class Request:
    """A measurement to make."""

    workload: str
    system: str
    threads: int = 1
    # Fields of `tf.ConfigProto`, as in {"inter_op_parallelism_threads": 1}.
    pools: dict[str, Any] = field(default_factory=dict)
    secs: float = 1.5
    # Few records and steps.
    quick: bool = False
    seed: int = 1


def answer(request: Request) -> dict[str, Any]:
    """Measure, and return the answer."""
    workload = WORKLOADS[request.workload]
    try:
        data = workload.open(workload.records[request.quick])
        config = config_of({"intra_op_parallelism_threads": workload.intra_op, **request.pools})
        case = Case(workload, data, workload.model, request.threads, request.seed, config)
        with tf.Graph().as_default():
            tf.set_random_seed(request.seed)
            with (SYSTEMS | BOUNDS)[request.system].feed(case) as step:
                return {"measured": measured(step, request.secs, _QUICK_STEPS if request.quick else None)}
    except NotApplicable as reason:
        return {"skipped": str(reason)}


def config_of(pools: dict[str, Any]) -> Any:
    """Return a `tf.ConfigProto` with these fields."""
    config = tf.ConfigProto()
    for name, value in pools.items():
        setattr(config.experimental if hasattr(config.experimental, name) else config, name, value)
    return config


def measured(step: Step, secs: float, steps: int | None = None) -> dict[str, float]:
    """Return the milliseconds per step, wall and CPU, of as many steps as fit into `secs`, and the peak memory in MB.

    The CPU time is that of all cores together, of this process and those that it started. With `steps`, measure exactly
    this number, after as many warm-up steps.
    """
    if steps:
        run_steps(step, steps)
    count = steps or steps_that_fit(step, secs, least=10)
    wall, cpu = time.perf_counter(), cpu_secs()
    run_steps(step, count)
    wall, cpu = time.perf_counter() - wall, cpu_secs() - cpu
    peak_mb = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**10
    return {"wall_ms": wall * 1e3 / count, "cpu_ms": cpu * 1e3 / count, "steps": count, "peak_mb": peak_mb}


def cpu_secs() -> float:
    """Return the CPU seconds of this process and of its running descendants, in ticks of 10 ms."""
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
    for name in filter(str.isdigit, os.listdir("/proc")):
        # A process may end at any moment.
        with contextlib.suppress(OSError), open(f"/proc/{name}/stat", encoding="utf-8", errors="replace") as file:
            stats[int(name)] = file.read().rpartition(")")[2].split()
    return stats


if __name__ == "__main__":
    with open(sys.argv[2], "w", encoding="utf-8") as file:
        json.dump(answer(Request(**json.loads(sys.argv[1]))), file)
