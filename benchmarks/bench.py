"""Compares ways to feed a graph-mode training loop. docs/results.md explains how to read the tables.

Each measurement is a process of its own. The systems take turns, in an order that rotates; the tables show medians.

examples:
  python benchmarks/bench.py W1 W2 --rounds 5 --json out.json
  python benchmarks/bench.py W3 --systems hand_area:4,staged:1,staged:4
  python benchmarks/bench.py W1 --systems hand_classic:1,staged:1,staged:1@inter_op=1
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import re
import signal
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from common import describe_machine, finish, flags, rotated
from measure import Request
from peers import SYSTEMS
from systems import BOUNDS
from tqdm import tqdm
from workloads import WORKLOADS

from staging_tf1.cores import usable_cores
from staging_tf1.quiet import without_noise

POOLS = {
    "inter_op": "inter_op_parallelism_threads",
    "intra_op": "intra_op_parallelism_threads",
    "no_spinning": "disable_thread_spinning",
}
# The number of last lines shown of a failed process's stderr, enough to see the exception.
_SHOWN_LINES = 3
Answer = dict[str, Any]


def parse_pools(words: Sequence[str]) -> dict[str, Any]:
    """Parse settings of TensorFlow's thread pools, or raise ValueError.

    >>> parse_pools(["inter_op=2", "no_spinning"])
    {'inter_op_parallelism_threads': 2, 'disable_thread_spinning': True}
    """
    pools: dict[str, Any] = {}
    for word in filter(None, words):
        match = re.fullmatch(r"(inter_op|intra_op)=([1-9]\d{0,2})", word)
        if match is None and word != "no_spinning":
            raise ValueError(f"got pool setting {word!r}, expected inter_op=N, intra_op=N or no_spinning")
        pools[POOLS[match[1] if match else word]] = int(match[2]) if match else True
    return pools


def parse_system(text: str, base: Request) -> Request:
    """Parse a name such as `staged`, which means one thread, or `staged:4@inter_op=1`, or raise ValueError."""
    name, *pools = text.split("@")
    match = re.fullmatch(r"(\w+)(?::([1-9]\d{0,2}))?", name)
    if match is None or match[1] not in SYSTEMS:
        raise ValueError(f"got system {name!r}, expected one of {', '.join(SYSTEMS)}")
    if match[2] and not SYSTEMS[match[1]].threaded:
        raise ValueError(f"system {match[1]!r} takes no number of threads, got {name!r}")
    return replace(base, system=match[1], threads=int(match[2] or 1), pools=base.pools | parse_pools(pools))


def requests_of(workload: str, systems: Sequence[str], base: Request) -> dict[str, Request]:
    """Return the request for each row of a table: the bounds, the systems, and the one whose time is the bound."""
    base = replace(base, workload=workload)
    rows = {"const": replace(base, system="const"), "source": replace(base, system="source")}
    rows |= {text: parse_system(text, base) for text in systems}
    reference = WORKLOADS[workload].reference
    return rows | ({reference: replace(base, system=reference)} if reference else {})


def ask(request: Request) -> Answer:
    """Answer a request in a process of its own."""
    limit_secs = (SYSTEMS | BOUNDS)[request.system].limit_secs + 10 * request.secs
    with tempfile.NamedTemporaryFile() as file:
        command = [sys.executable, str(Path(__file__).with_name("measure.py")), json.dumps(asdict(request)), file.name]
        # In a session of its own, to kill what is left of that: a system may have started other processes.
        process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, start_new_session=True)
        try:
            said = process.communicate(timeout=limit_secs)[1]
        except subprocess.TimeoutExpired:
            return {"failed": f"no answer in {limit_secs:.0f} s"}
        finally:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            process.communicate()
        text = file.read()
    found: Answer = json.loads(text) if text else {"failed": last_words(said) or f"exit code {process.returncode}"}
    return found


def last_words(said: bytes) -> str:
    """Return the last lines of what a process wrote on stderr, as one line, without TensorFlow's start-up log.

    >>> last_words(b"ValueError: no data\\nI0000 00:00:1795391804.897138   31566 port.cc:153] oneDNN is on.\\n")
    'ValueError: no data'
    """
    lines = without_noise(said).decode(errors="replace").splitlines()
    return " / ".join([line.strip() for line in lines if line.strip()][-_SHOWN_LINES:])


def play_rounds(
    requests: Mapping[str, Request], rounds: int, ask: Callable[[Request], Answer] = ask
) -> dict[str, list[Answer]]:
    """Return the answers to each request, one per round. One that is skipped or fails is not repeated."""
    answers: dict[str, list[Answer]] = {name: [] for name in requests}
    with tqdm(total=rounds * len(requests), unit=" turns", disable=None) as bar:
        for turn in range(rounds):
            for name in rotated(list(requests), turn):
                bar.set_postfix_str(name, refresh=False)
                if turn == 0 or "measured" in answers[name][-1]:
                    answers[name].append(ask(replace(requests[name], seed=requests[name].seed + turn)))
                bar.update()
    return answers


@dataclass(frozen=True)
class Table:
    """What was measured of one workload."""

    workload: str
    answers: dict[str, list[Answer]]

    def figures(self, name: str, figure: str = "wall_ms") -> list[float]:
        """Return a figure of a row, one value per round; an empty list if it was not measured in all rounds."""
        answers = self.answers.get(name, [])
        return [each["measured"][figure] for each in answers] if all("measured" in each for each in answers) else []

    @property
    def bound_ms(self) -> list[float]:
        """The time that no system can beat, one value per round."""
        reference = WORKLOADS[self.workload].reference
        if reference:
            return self.figures(reference)
        work = zip(self.figures("const"), self.figures("const", "cpu_ms"), self.figures("source", "cpu_ms"))
        return [max(wall, (cpu + read) / usable_cores()) for wall, cpu, read in work]

    def row(self, name: str) -> list[str]:
        """Return the cells of a row. Ratios are computed within each round, because the speed of a machine drifts."""
        wall = self.figures(name)
        median = statistics.median(wall)
        of_bound = [least / ms for least, ms in zip(self.bound_ms, wall)] if name != "source" else []
        return [
            name,
            f"{median:.3f}",
            f"{min(wall):.3f} to {max(wall):.3f}",
            f"{statistics.median(of_bound):.2f}" if of_bound else "-",
            f"{WORKLOADS[self.workload].batch_size / median * 1e3:,.0f}",
            f"{statistics.median(self.figures(name, 'cpu_ms')):.3f}",
        ]

    def __str__(self) -> str:
        head = ["system", "ms per step", "min to max", "of bound", "records/s", "CPU ms"]
        cells = [head, *(self.row(name) for name in self.answers if self.figures(name))]
        widths = [max(map(len, column)) for column in zip(*cells)]
        lines = [WORKLOADS[self.workload].title, ""]
        for first, *figures in cells:
            shown = (cell.rjust(width) for cell, width in zip(figures, widths[1:]))
            lines.append("  ".join([first.ljust(widths[0]), *shown]))
        reference = WORKLOADS[self.workload].reference
        computed = f"the larger of const and (CPU of const + CPU of source) / {usable_cores()} cores"
        lines += ["", f"bound: {f'the time of {reference}' if reference else computed}"]
        for name, answers in self.answers.items():
            lines += [f"{name} {how}: {why}" for how, why in answers[-1].items() if how != "measured"]
        return "\n".join(lines)


def make_parser() -> argparse.ArgumentParser:
    """Return the parser of the command line."""
    made = flags(__doc__, rounds=5)
    titles = [f"  {workload.title}" for workload in WORKLOADS.values()]
    names = {name + ("*" if each.threaded else ""): each.help_text for name, each in SYSTEMS.items()}
    listed = [f"  {name:{max(map(len, names))}}  {text}" for name, text in names.items()]
    made.epilog = "\n".join(
        [
            "workloads:",
            *titles,
            "\nsystems (append ':4' to a name marked * to set the number of feed threads or processes, and "
            "'@inter_op=1',\n'@intra_op=1' or '@no_spinning' to any name to set TensorFlow's thread pools):",
            *listed,
        ]
    )
    made.add_argument("workloads", nargs="*", metavar="WORKLOAD", help="the workloads to run (default: all)")
    made.add_argument(
        "--systems", metavar="A,B", help="the systems to measure (default: all, those marked * with 1, 4)"
    )
    made.add_argument("--pools", default="", metavar="A,B", help="settings of the pools for all rows: no_spinning,...")
    made.add_argument("--secs", type=float, default=1.5, metavar="S", help="seconds per turn (default: %(default)s)")
    return made


def plan(options: argparse.Namespace) -> dict[str, dict[str, Request]]:
    """Return the requests of each table, or raise ValueError."""
    if unknown := set(options.workloads) - set(WORKLOADS):
        raise ValueError(f"got workload {', '.join(sorted(unknown))}, expected some of {', '.join(WORKLOADS)}")
    everything = [
        f"{name}:{number}" if each.threaded else name
        for name, each in SYSTEMS.items()
        for number in ((1, 4) if each.threaded else (1,))
    ]
    systems = options.systems.split(",") if options.systems else everything
    base = Request("", "", pools=parse_pools(options.pools.split(",")), secs=options.secs, quick=options.quick)
    return {name: requests_of(name, systems, base) for name in options.workloads or WORKLOADS}


def main(argv: list[str] | None = None) -> int:
    """Run the measurements and print the tables. Return 1 if a system failed."""
    parser = make_parser()
    options = parser.parse_args(argv)
    try:
        tables = plan(options)
    except ValueError as error:
        parser.error(str(error))
    print(*(f"{name:12}  {value}" for name, value in describe_machine().items()), sep="\n")
    found = {}
    for name, requests in tables.items():
        found[name] = play_rounds(requests, 1 if options.quick else options.rounds)
        print("", Table(name, found[name]), sep="\n", flush=True)
    finish(options, {"rounds": found})
    return int(any("failed" in answer for rows in found.values() for row in rows.values() for answer in row))


if __name__ == "__main__":
    sys.exit(main())
