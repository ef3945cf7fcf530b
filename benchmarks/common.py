"""What the experiments have in common: their flags, turns within one process, and what becomes of the figures."""

from __future__ import annotations

import argparse
import json
import statistics
import time
from collections.abc import Callable, Mapping
from typing import Any

import tensorflow.compat.v1 as tf

from staging_tf1.bench.machine import describe_machine
from staging_tf1.bench.rounds import rotated

# Graph mode makes TensorFlow warn, at length, that its queue runners are deprecated; that is known here.
tf.logging.set_verbosity(tf.logging.ERROR)

Step = Callable[[], Any]


def flags(description: str | None, *, rounds: int = 7, plot: bool = False) -> argparse.ArgumentParser:
    """`--rounds`, `--quick`, `--json`, and `--plot` where there is something to draw."""
    made = argparse.ArgumentParser(description=description, formatter_class=argparse.RawDescriptionHelpFormatter)
    made.add_argument("--rounds", type=int, default=rounds, help="turns of each (default: %(default)s)")
    made.add_argument("--quick", action="store_true", help="one short turn of each: shows that it works")
    made.add_argument("--json", metavar="FILE", help="where to write the figures")
    if plot:
        made.add_argument("--plot", metavar="FILE.png", help="where to draw them (needs matplotlib)")
    return made


def turns(options: argparse.Namespace, secs: float) -> dict[str, Any]:
    """How many turns `in_turn` takes, and of how many seconds: one short turn with `--quick`."""
    return {"rounds": 1, "secs": 0.05} if options.quick else {"rounds": options.rounds, "secs": secs}


def in_turn(steps: Mapping[str, Step], *, rounds: int, secs: float) -> dict[str, list[float]]:
    """Microseconds a step of each, one value a round; they take turns within this process.

    Differences of a few microseconds drown in what differs between two processes, so here all run in one. The number
    of steps of a turn is settled beforehand, so that one turn takes about `secs` seconds; a fifth as many go before
    them, uncounted, because the turn of another leaves caches and areas as it needs them. Many short turns are better
    than a few long ones: the machine's own phases, of seconds, then meet all.
    """
    counts = {name: _count(step, secs) for name, step in steps.items()}
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


def _count(step: Step, secs: float) -> int:
    """How many steps take `secs` seconds, after a warm-up of ten steps."""
    for _ in range(10):
        step()
    count, start = 0, time.perf_counter()
    while count < 5 or time.perf_counter() - start < secs / 4:
        step()
        count += 1
    return max(1, round(count * secs / (time.perf_counter() - start)))


def difference(found: Mapping[str, list[float]], more: str, less: str) -> tuple[float, float, float]:
    """The median, least and most of `more` over `less`, round by round."""
    over = [a - b for a, b in zip(found[more], found[less])]
    return statistics.median(over), min(over), max(over)


def ratio(found: Mapping[str, list[float]], over: str, under: str) -> tuple[float, float, float]:
    """The median, least and most of `over` divided by `under`, round by round."""
    ratios = [a / b for a, b in zip(found[over], found[under])]
    return statistics.median(ratios), min(ratios), max(ratios)


def finish(options: argparse.Namespace, result: dict[str, Any]) -> None:
    """Writes the figures, with the machine that they are of, where `--json` says."""
    if options.json:
        with open(options.json, "w", encoding="utf-8") as file:
            json.dump({"machine": describe_machine(), **result}, file, indent=1)
