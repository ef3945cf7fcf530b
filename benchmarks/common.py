"""Shared by the benchmarks: flags, turns, ratios, the number of steps of a measurement, and the output of figures."""

from __future__ import annotations

import argparse
import importlib.metadata
import json
import os
import platform
import statistics
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import tensorflow.compat.v1 as tf

import staging_tf1
from staging_tf1.cores import usable_cores

# In graph mode TensorFlow prints long warnings that its queue runners are deprecated.
tf.logging.set_verbosity(tf.logging.ERROR)

# Runs one training step; returns the fetched values of the model (None for an op).
Step = Callable[[], Any]


def flags(description: str | None, *, rounds: int | None = 7) -> argparse.ArgumentParser:
    """A parser with `--rounds`, `--quick` and `--json`."""
    made = argparse.ArgumentParser(description=description, formatter_class=argparse.RawDescriptionHelpFormatter)
    shown = "%(default)s" if rounds else "see above"
    made.add_argument("--rounds", type=int, default=rounds, metavar="N", help=f"turns of each (default: {shown})")
    made.add_argument("--quick", action="store_true", help="one short turn of each, to check that it runs")
    made.add_argument("--json", metavar="FILE", help="where to write the figures")
    return made


def turns(options: argparse.Namespace, secs: float) -> dict[str, Any]:
    """The number of turns for `in_turn`, and their seconds: one short turn with `--quick`."""
    return {"rounds": 1, "secs": 0.05, "least": 1} if options.quick else {"rounds": options.rounds, "secs": secs}


def rotated(items: Sequence[Any], turns: int) -> list[Any]:
    """Return the items rotated by `turns`, so that none always runs first.

    >>> rotated(["a", "b", "c"], 4)
    ['b', 'c', 'a']
    """
    start = turns % len(items)
    return [*items[start:], *items[:start]]


def in_turn(steps: Mapping[str, Step], *, rounds: int, secs: float, least: int = 5) -> dict[str, list[float]]:
    """Microseconds per step of each, one value per round. The steps take turns within this process.

    Two processes differ by more than a few microseconds, so all steps run in one. The number of steps of a turn is
    computed beforehand: a turn takes about `secs` seconds. A fifth as many steps run first, uncounted, because the
    previous turn left caches and areas in its own state. Many short turns are better than a few long ones: the machine
    has slow phases of seconds, which then affect all alike.
    """
    counts = {name: steps_that_fit(step, secs, least) for name, step in steps.items()}
    found: dict[str, list[float]] = {name: [] for name in steps}
    for turn in range(rounds):
        for name in rotated(list(steps), turn):
            run_steps(steps[name], counts[name] // 5)
            start = time.perf_counter()
            run_steps(steps[name], counts[name])
            found[name].append((time.perf_counter() - start) / counts[name] * 1e6)
    return found


def run_steps(step: Step, count: int) -> None:
    """Run `count` steps, without a look at the clock, which would cost as much as the smallest step."""
    for _ in range(count):
        step()


def steps_that_fit(step: Step, secs: float, least: int) -> int:
    """The number of steps that take `secs` seconds, by the time of `least` or more, after a warm-up of `2 * least`."""
    run_steps(step, 2 * least)
    count, start = 0, time.perf_counter()
    while count < least or time.perf_counter() - start < secs / 4:
        step()
        count += 1
    return max(1, round(count * secs / (time.perf_counter() - start)))


def difference(found: Mapping[str, list[float]], more: str, less: str) -> tuple[float, float, float]:
    """The median, minimum and maximum of `more` minus `less`, round by round."""
    return _spread([a - b for a, b in zip(found[more], found[less])])


def ratio(found: Mapping[str, list[float]], over: str, under: str) -> tuple[float, float, float]:
    """The median, minimum and maximum of `over` divided by `under`, round by round: the speed of a machine drifts."""
    return _spread([a / b for a, b in zip(found[over], found[under])])


def _spread(values: Sequence[float]) -> tuple[float, float, float]:
    return statistics.median(values), min(values), max(values)


def describe_machine() -> dict[str, str]:
    """Return processor, cores, load and versions."""
    return {
        "processor": f"{_processor()}, {usable_cores()} cores",
        "load average": ", ".join(f"{value:.2f}" for value in os.getloadavg()),
        "system": platform.platform(terse=True),
        "Python": platform.python_version(),
        "TensorFlow": tf.__version__,
        "numpy": importlib.metadata.version("numpy"),
        "staging_tf1": staging_tf1.__version__,
        "date": time.strftime("%Y-%m-%d"),
    }


def _processor() -> str:
    try:
        with open("/proc/cpuinfo", encoding="utf-8") as lines:
            models = [line.split(":", 1)[1].strip() for line in lines if line.startswith("model name")]
    except OSError:
        models = []
    return models[0] if models else platform.processor() or platform.machine()


def finish(options: argparse.Namespace, result: dict[str, Any]) -> None:
    """Write the figures and a description of the machine to the file of `--json`."""
    if options.json:
        with open(options.json, "w", encoding="utf-8") as file:
            json.dump({"machine": describe_machine(), **result}, file, indent=1)
