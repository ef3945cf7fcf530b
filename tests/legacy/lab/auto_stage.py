"""Runs programs of the lab, unmodified, under `staging-tf1 run` and `staging-tf1 run --auto-stage`, and compares them.

    python tests/legacy/lab/auto_stage.py --clones ~/lab
    python tests/legacy/lab/auto_stage.py --clones ~/lab --only nmt pix2pix

A row says what was staged, whether all figures are equal, and the milliseconds for each `Session.run` after the first
ones: of the whole time from one to the next, so with what the program does between them. The two ways take turns.

exit code: 0 every program runs to its last figure, with equal figures if it is deterministic, 1 otherwise.
"""

from __future__ import annotations

import argparse
import re
import shutil
import statistics
import sys
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import images
import run_lab
import seeded
from jobs import Job
from table import ROWS, Row

# Programs whose graph computes its input, and tf_cnn_benchmarks on JPEGs in place of synthetic pictures.
NAMES = (
    *("nmt", "pix2pix", "cifar10", "cifar10_towers", "slim", "monodepth", "tf_ner", "bert_classifier"),
    "spleeter",
)
JPEGS = replace(
    next(row for row in ROWS if row.name == "tf_cnn_benchmarks"),
    name="tf_cnn_benchmarks_jpeg",
    driver=images.tf_cnn_benchmarks_jpeg,
    steps=20,
    deterministic=False,  # threads shuffle its input
)
# Arguments or settings that make the programs longer, to be timed, and how many figures they print then. Other programs
# have no such argument.
LONGER = {
    "nmt": ("--num_train_steps=6", "--num_train_steps=150", 150),
    "pix2pix": ("--max_steps 4", "--max_steps 60", 59),
    "monodepth": ("--num_epochs 1", "--num_epochs 30", 0),
    "spleeter": ('"train_max_steps": 11', '"train_max_steps": 150', 4),
    "bert_classifier": ("--num_train_epochs=10", "--num_train_epochs=30", 1),
    "tf_cnn_benchmarks_jpeg": ("--num_batches=20", "--num_batches=200", 200),
}
SAID = re.compile(r"staging-tf1 run --auto-stage: (.*)")


class Log:
    """Takes the lines that a program prints, and keeps those of --auto-stage."""

    def __init__(self, path: Path) -> None:
        self._file = path.open("w")
        self.said: list[str] = []

    def write(self, line: str) -> None:
        """Take a line."""
        self._file.write(line)
        if found := SAID.match(line):
            self.said.append(found.group(1))


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the programs; return the exit code."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--clones", type=Path, default=Path("clones"), help="folder of the clones")
    parser.add_argument("--work", type=Path, default=Path("build/lab"), help="folder for data and output")
    parser.add_argument("--python", default=sys.executable, help="interpreter for staging-tf1 run; default: this one")
    parser.add_argument("--rounds", type=int, default=1, help="times that each program runs both ways; default: 1")
    parser.add_argument("--only", nargs="*", metavar="NAME", help="programs to run; default: all")
    options = parser.parse_args(arguments)
    rows = [row for row in [*ROWS, JPEGS] if row.name in (options.only or (*NAMES, JPEGS.name))]
    return max([compare(row, options) for row in rows], default=0)


def compare(short: Row, options: argparse.Namespace) -> int:
    """Run one program both ways, print its row, and return 1 if it does not do the same."""
    row = longer(short)
    work = options.work.resolve() / row.name
    clone = (options.clones / row.clone).resolve()
    shutil.rmtree(work / "data", ignore_errors=True)
    (work / "data").mkdir(parents=True)
    job = row.driver(clone, work / "data")
    run = [options.python, "-W", "ignore", "-m", "staging_tf1", "run", *row.flags]
    silent = replace(row, figures="(?!)", steps=0, to_the_end=True)
    for command in job.prepare:
        run_lab._start(silent, run, command, clone, work, "prepared")
    results, times, said = [], {"plain": [], "auto": []}, []
    for _ in range(options.rounds):
        for label, how in (("plain", run), ("auto", [*run, "--auto-stage"])):
            runs, log = work / f"{label}.runs", Log(work / f"{label}.txt")
            runs.unlink(missing_ok=True)
            timed = replace(row, environment={**row.environment, seeded.RUNS: str(runs)})
            result = run_lab.start(timed, how, job.command, clone, work, label, log)
            # Differences of rounding grow from step to step: two runs of nmt differ in the 30th figure.
            results.append(replace(result, figures=result.figures[: short.steps]))
            times[label].append(ms_per_run(runs))
            said += log.said
    plain, auto = results[:2]
    # Some programs differ in the sixth digit from one run to the next.
    same = all(plain.error == other.error and run_lab.same(plain.figures, other.figures) for other in results)
    equal = "equal" if len(set(results)) == 1 else "equal to 1 part in 1,000" if same else f"DIFFERS: {plain} {auto}"
    print(f"{row.name}: {len(plain.figures)} figures {equal if row.deterministic else 'not compared'}; ", end="")
    before, after = (statistics.median(times[label]) for label in ("plain", "auto"))
    print(f"{before:.1f} -> {after:.1f} ms a run; {' | '.join(dict.fromkeys(said))[:400]}", flush=True)
    return int(bool(auto.error and not plain.error) or (row.deterministic and not same))


def longer(row: Row) -> Row:
    """Return the row with more steps."""
    if row.name not in LONGER:
        return row
    short, long, figures = LONGER[row.name]

    def driver(clone: Path, data: Path) -> Job:
        job = row.driver(clone, data)
        for settings in data.glob("*.json"):
            settings.write_text(settings.read_text().replace(short, long))
        return replace(job, command=" ".join(job.command).replace(short, long).split())

    return replace(row, driver=driver, steps=figures, limit_secs=600)


def ms_per_run(file: Path) -> float:
    """Return the mean milliseconds from the end of one run to the end of the next; nan if there were too few.

    The first quarter is left out: it initializes, makes the kernels, and fills areas and queues.
    """
    ends = [float(line) for line in file.read_text().splitlines()]
    ends = ends[len(ends) // 4 :]
    return 1000 * (ends[-1] - ends[0]) / (len(ends) - 1) if len(ends) > 1 else float("nan")


if __name__ == "__main__":
    sys.exit(main())
