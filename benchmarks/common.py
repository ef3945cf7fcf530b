"""Shared by the experiments: flags, turns within one process, and the output of the figures."""

from __future__ import annotations

import argparse
import json
import statistics
import time
from collections.abc import Callable, Mapping
from typing import Any

import tensorflow.compat.v1 as tf

from staging_tf1.bench.rounds import rotated
from staging_tf1.bench.tables import describe_machine

# In graph mode TensorFlow prints long warnings that its queue runners are deprecated.
tf.logging.set_verbosity(tf.logging.ERROR)

Step = Callable[[], Any]


def flags(description: str | None, *, rounds: int = 7, plot: bool = False) -> argparse.ArgumentParser:
    """A parser with `--rounds`, `--quick`, `--json`, and `--plot` if `plot`."""
    made = argparse.ArgumentParser(description=description, formatter_class=argparse.RawDescriptionHelpFormatter)
    made.add_argument("--rounds", type=int, default=rounds, help="turns of each (default: %(default)s)")
    made.add_argument("--quick", action="store_true", help="one short turn of each, to check that it runs")
    made.add_argument("--json", metavar="FILE", help="where to write the figures")
    if plot:
        made.add_argument("--plot", metavar="FILE.png", help="where to draw them (needs matplotlib)")
    return made


def turns(options: argparse.Namespace, secs: float) -> dict[str, Any]:
    """The number of turns for `in_turn`, and their seconds: one short turn with `--quick`."""
    return {"rounds": 1, "secs": 0.05, "least": 1} if options.quick else {"rounds": options.rounds, "secs": secs}


def in_turn(steps: Mapping[str, Step], *, rounds: int, secs: float, least: int = 5) -> dict[str, list[float]]:
    """Microseconds per step of each, one value per round. The steps take turns within this process.

    Two processes differ by more than a few microseconds, so all steps run in one. The number of steps of a turn is
    computed beforehand, from the time of at least `least`: a turn takes about `secs` seconds. A fifth as many steps run
    first, uncounted, because the previous turn left caches and areas in its own state. Many short turns are better than
    a few long ones: the machine has slow phases of seconds, which then affect all alike.
    """
    counts = {name: _count(step, secs, least) for name, step in steps.items()}
    found: dict[str, list[float]] = {name: [] for name in steps}
    for turn in range(rounds):
        for name in rotated(list(steps), turn):
            step, count = steps[name], counts[name]
            for _ in range(count // 5):
                step()
            start = time.perf_counter()
            for _ in range(count):
                step()
            found[name].append((time.perf_counter() - start) / count * 1e6)
    return found


def _count(step: Step, secs: float, least: int) -> int:
    """The number of steps that take `secs` seconds, by the time of `least` or more, after a warm-up of `2 * least`."""
    for _ in range(2 * least):
        step()
    count, start = 0, time.perf_counter()
    while count < least or time.perf_counter() - start < secs / 4:
        step()
        count += 1
    return max(1, round(count * secs / (time.perf_counter() - start)))


def difference(found: Mapping[str, list[float]], more: str, less: str) -> tuple[float, float, float]:
    """The median, minimum and maximum of `more` minus `less`, round by round."""
    over = [a - b for a, b in zip(found[more], found[less])]
    return statistics.median(over), min(over), max(over)


def ratio(found: Mapping[str, list[float]], over: str, under: str) -> tuple[float, float, float]:
    """The median, minimum and maximum of `over` divided by `under`, round by round."""
    ratios = [a / b for a, b in zip(found[over], found[under])]
    return statistics.median(ratios), min(ratios), max(ratios)


def finish(options: argparse.Namespace, result: dict[str, Any]) -> None:
    """Write the figures and a description of the machine to the file of `--json`."""
    if options.json:
        with open(options.json, "w", encoding="utf-8") as file:
            json.dump({"machine": describe_machine(), **result}, file, indent=1)
