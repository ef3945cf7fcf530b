"""Runs programs of the lab, unmodified, under `staging-tf1 run` and `staging-tf1 run --auto-stage`, and compares them.

    python tests/legacy/lab/auto_stage.py --clones ~/lab
    python tests/legacy/lab/auto_stage.py --clones ~/lab --only nmt pix2pix

A row says what was staged, whether all figures are equal, and the milliseconds from one figure to the next. The first
figure is left out, because the first step also makes the kernels.

exit code: 0 every program runs to its last figure, with equal figures if it is deterministic, 1 otherwise.
"""

from __future__ import annotations

import argparse
import re
import shutil
import sys
import time
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import images
import run_lab
from table import ROWS, Row

# Programs whose graph computes its input, and tf_cnn_benchmarks on JPEGs in place of synthetic pictures.
NAMES = ("nmt", "pix2pix", "cifar10", "cifar10_towers", "slim", "monodepth", "tf_ner", "bert_classifier")
JPEGS = replace(
    next(row for row in ROWS if row.name == "tf_cnn_benchmarks"),
    name="tf_cnn_benchmarks_jpeg",
    driver=images.tf_cnn_benchmarks_jpeg,
    steps=20,
    deterministic=False,  # threads shuffle its input
)
SAID = re.compile(r"staging-tf1 run --auto-stage: (.*)")


class TimedLog:
    """Takes the lines that a program prints, and notes when those with a figure come."""

    def __init__(self, path: Path, figures: str) -> None:
        self._file, self._figures = path.open("w"), re.compile(figures)
        self.times: list[float] = []
        self.said: list[str] = []

    def write(self, line: str) -> None:
        """Take a line."""
        self._file.write(line)
        if self._figures.search(line):
            self.times.append(time.perf_counter())
        if found := SAID.match(line):
            self.said.append(found.group(1))

    @property
    def step_ms(self) -> float:
        """Milliseconds from one figure to the next."""
        times = self.times[1:] or self.times
        return 1000 * (times[-1] - times[0]) / max(1, len(times) - 1) if times else 0.0


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the programs; return the exit code."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--clones", type=Path, default=Path("clones"), help="folder of the clones")
    parser.add_argument("--work", type=Path, default=Path("build/lab"), help="folder for data and output")
    parser.add_argument("--python", default=sys.executable, help="interpreter for staging-tf1 run; default: this one")
    parser.add_argument("--only", nargs="*", metavar="NAME", help="programs to run; default: all")
    options = parser.parse_args(arguments)
    rows = [row for row in [*ROWS, JPEGS] if row.name in (options.only or (*NAMES, JPEGS.name))]
    return max([compare(row, options) for row in rows], default=0)


def compare(row: Row, options: argparse.Namespace) -> int:
    """Run one program both ways, print its row, and return 1 if it does not do the same."""
    work = options.work.resolve() / row.name
    clone = (options.clones / row.clone).resolve()
    shutil.rmtree(work / "data", ignore_errors=True)
    (work / "data").mkdir(parents=True)
    job = row.driver(clone, work / "data")
    run = [options.python, "-W", "ignore", "-m", "staging_tf1", "run", *row.flags]
    silent = replace(row, figures="(?!)", steps=0, to_the_end=True)
    for command in job.prepare:
        run_lab._start(silent, run, command, clone, work, "prepared")
    results, logs = [], []
    for label, how in (("plain", run), ("auto", [*run, "--auto-stage"])):
        logs.append(TimedLog(work / f"{label}.txt", row.figures))
        results.append(run_lab.start(row, how, job.command, clone, work, label, logs[-1]))
    plain, auto = results
    # Some programs differ in the sixth digit from one run to the next.
    same = plain.error == auto.error and run_lab.same(plain.figures, auto.figures)
    equal = "equal" if plain == auto else "equal to 1 part in 1,000" if same else f"DIFFERS: {plain} {auto}"
    print(f"{row.name}: {len(plain.figures)} figures {equal if row.deterministic else 'not compared'}; ", end="")
    print(f"{logs[0].step_ms:.1f} -> {logs[1].step_ms:.1f} ms; {' | '.join(logs[1].said)[:400]}", flush=True)
    return int(bool(auto.error and not plain.error) or (row.deterministic and not same))


if __name__ == "__main__":
    sys.exit(main())
