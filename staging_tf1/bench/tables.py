"""Tables of measurements: their figures, and their forms as text, Markdown, JSON and bar charts."""

from __future__ import annotations

import importlib.metadata
import importlib.util
import os
import platform
import re
import statistics
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

from staging_tf1 import __version__
from staging_tf1.arguments import output_file
from staging_tf1.bench import BenchError
from staging_tf1.bench.rounds import Outcome
from staging_tf1.bench.systems import SYSTEMS
from staging_tf1.cores import usable_cores

__all__ = [
    "Bound",
    "Row",
    "Table",
    "as_json",
    "as_markdown",
    "as_text",
    "bound_of",
    "check_plot",
    "describe_machine",
    "draw",
    "make_rows",
]


@dataclass(frozen=True)
class Bound:
    """The lower bound of a step's time, one value per round."""

    ms: list[float]
    # The description of the bound.
    meaning: str


@dataclass(frozen=True)
class Row:
    """One system on one workload."""

    name: str
    # Milliseconds per step: the median, minimum and maximum of the rounds.
    median_ms: float
    least_ms: float
    most_ms: float
    # The bound divided by the time, median of the rounds: 1 is perfect. None if there is no bound.
    of_bound: float | None
    records_per_sec: float
    cpu_ms: float
    peak_mb: float


def bound_of(outcomes: Mapping[str, Outcome], cores: int, reference: str | None) -> Bound | None:
    """Return the bound of a workload; None if the systems that it needs were not measured.

    The bound is the time of `reference`. If that is None, it is the larger of the time of `const` and the CPU time of
    step and source on all cores.
    """
    if reference is not None:
        outcome = outcomes.get(reference)
        return Bound(outcome.wall_ms, f"the time of {reference}") if outcome and outcome.wall_ms else None
    const, source = outcomes.get("const"), outcomes.get("source")
    if const is None or source is None or not const.wall_ms or not source.cpu_ms:
        return None
    ms = [max(wall, (cpu + read) / cores) for wall, cpu, read in zip(const.wall_ms, const.cpu_ms, source.cpu_ms)]
    return Bound(ms, f"the larger of const and (CPU of const + CPU of source) / {cores} cores")


def make_rows(outcomes: Sequence[Outcome], bound: Bound | None) -> list[Row]:
    """Return the rows of the systems that were measured.

    Ratios are computed within each round, because the speed of a machine drifts between rounds.
    """
    return [_row(outcome, bound) for outcome in outcomes if outcome.wall_ms]


def _row(outcome: Outcome, bound: Bound | None) -> Row:
    median = statistics.median(outcome.wall_ms)
    of_bound = None
    if bound is not None and outcome.name != "source":  # source does not feed a step
        of_bound = statistics.median(least / ms for least, ms in zip(bound.ms, outcome.wall_ms))
    return Row(
        name=outcome.name,
        median_ms=median,
        least_ms=min(outcome.wall_ms),
        most_ms=max(outcome.wall_ms),
        of_bound=of_bound,
        records_per_sec=outcome.batch_size / median * 1e3,
        cpu_ms=statistics.median(outcome.cpu_ms),
        peak_mb=max(outcome.peak_mb),
    )


@dataclass(frozen=True)
class Table:
    """The outcomes of one workload."""

    title: str
    outcomes: dict[str, Outcome]
    bound: Bound | None
    # What to choose, for the user's own step.
    advice: list[str] = field(default_factory=list)

    @property
    def rows(self) -> list[Row]:
        """The rows of the systems that were measured, in the order of the requests."""
        return make_rows(list(self.outcomes.values()), self.bound)

    @property
    def notes(self) -> list[str]:
        """The description of the bound, the reasons for missing rows, and the advice."""
        notes = [f"bound: {self.bound.meaning}"] if self.bound else []
        names: dict[str, list[str]] = {}
        for outcome in self.outcomes.values():
            if outcome.skipped:
                names.setdefault(f"skipped: {outcome.skipped}", []).append(outcome.name)
            if outcome.failed:
                names.setdefault(f"failed: {outcome.failed}", []).append(outcome.name)
        return notes + [f"{', '.join(same)} {reason}" for reason, same in names.items()] + self.advice


# The head of each column, and the function that formats its cells.
_COLUMNS: dict[str, Callable[[Row], str]] = {
    "system": lambda row: row.name,
    "ms per step": lambda row: f"{row.median_ms:.3f}",
    "min to max": lambda row: f"{row.least_ms:.3f} to {row.most_ms:.3f}",
    "of bound": lambda row: "-" if row.of_bound is None else f"{row.of_bound:.2f}",
    "records/s": lambda row: f"{row.records_per_sec:,.0f}" if row.records_per_sec else "-",
    "CPU ms": lambda row: f"{row.cpu_ms:.3f}",
}


def as_text(machine: Mapping[str, str], tables: Sequence[Table]) -> str:
    """Return the tables as text for a terminal."""
    lines = _pairs(machine)
    for table in tables:
        cells = _cells(table)
        widths = [max(len(line[column]) for line in cells) for column in range(len(_COLUMNS))]
        lines += ["", table.title, ""]
        for line in cells:
            # Names are aligned left, figures right.
            first, *figures = line
            shown = [first.ljust(widths[0]), *(cell.rjust(width) for cell, width in zip(figures, widths[1:]))]
            lines.append("  " + "  ".join(shown))
        lines += ["", *(f"  {note}" for note in table.notes)]
    return "\n".join(lines)


def as_markdown(machine: Mapping[str, str], tables: Sequence[Table]) -> str:
    """Return the tables as Markdown, for docs/performance.md."""
    lines = [f"{'; '.join(f'{name} {value}' for name, value in machine.items())}."]
    for table in tables:
        head, *cells = _cells(table)
        lines += ["", f"**{table.title}**", "", _bar(head), _bar(["---"] + ["--:"] * (len(head) - 1))]
        lines += [_bar(line) for line in cells]
        lines += ["", *(f"- {note}" for note in table.notes)]
    return "\n".join(lines)


def as_json(machine: Mapping[str, str], tables: Sequence[Table]) -> dict[str, Any]:
    """Return all measurements, round by round, and the rows of the tables."""
    return {
        "machine": dict(machine),
        "tables": [
            {
                "title": table.title,
                "bound": asdict(table.bound) if table.bound else None,
                "advice": table.advice,
                "rows": [asdict(row) for row in table.rows],
                "rounds": [asdict(outcome) for outcome in table.outcomes.values()],
            }
            for table in tables
        ],
    }


def _cells(table: Table) -> list[list[str]]:
    return [list(_COLUMNS), *([cell(row) for cell in _COLUMNS.values()] for row in table.rows)]


def _pairs(machine: Mapping[str, str]) -> list[str]:
    width = max(map(len, machine), default=0)
    return [f"{name:{width}}  {value}" for name, value in machine.items()]


def _bar(cells: Sequence[str]) -> str:
    return f"| {' | '.join(cells)} |"


def describe_machine() -> dict[str, str]:
    """Return processor, cores, load and versions, as shown above the tables."""
    load = ", ".join(f"{value:.2f}" for value in os.getloadavg())
    return {
        "processor": f"{_processor()}, {usable_cores()} cores",
        "load average": load,
        "system": platform.platform(terse=True),
        "Python": platform.python_version(),
        "TensorFlow": _version("tensorflow"),
        "numpy": _version("numpy"),
        "staging_tf1": __version__,
        "date": time.strftime("%Y-%m-%d"),
    }


def _processor() -> str:
    try:
        with open("/proc/cpuinfo", encoding="utf-8") as lines:
            models = [line.split(":", 1)[1].strip() for line in lines if line.startswith("model name")]
    except OSError:
        models = []
    return models[0] if models else platform.processor() or platform.machine()


def _version(distribution: str) -> str:
    try:
        return importlib.metadata.version(distribution)
    except importlib.metadata.PackageNotFoundError:
        return "not installed"


def check_plot(path: str) -> None:
    """Check that the charts can be drawn, before anything is measured.

    Raises:
      BenchError: matplotlib is not installed, or `path` cannot be written.
    """
    if importlib.util.find_spec("matplotlib") is None:
        raise BenchError("--plot needs matplotlib: pip install 'staging-tf1[bench]'.")
    try:
        output_file("--plot", "path", path)
    except OSError as error:
        raise BenchError(f"--plot {path!r} cannot be written: {error.strerror}.") from error
    except ValueError as error:
        raise BenchError(str(error)) from error


def draw(tables: Sequence[Table], path: str) -> None:
    """Write the charts to `path`: a bar for each median, ours in orange, and a thin line from minimum to maximum."""
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    drawn = [table for table in tables if table.rows]
    figure, axes = pyplot.subplots(max(1, len(drawn)), 1, figsize=(8, 4 * max(1, len(drawn))), squeeze=False)
    for axis, table in zip(axes[:, 0], drawn):
        rows = [row for row in table.rows if row.name not in ("const", "source")]
        median = [row.median_ms for row in rows]
        spread = [[row.median_ms - row.least_ms for row in rows], [row.most_ms - row.median_ms for row in rows]]
        names = [row.name for row in rows]
        colours = ["tab:orange" if _is_ours(name) else "tab:blue" for name in names]
        axis.barh(names, median, xerr=spread, color=colours, error_kw={"linewidth": 1})
        if table.bound is not None:
            middle = sorted(table.bound.ms)[len(table.bound.ms) // 2]
            axis.axvline(middle, color="tab:red", label=f"bound, {middle:.2f} ms")
            axis.legend()
        axis.invert_yaxis()
        axis.set(title=table.title, xlabel="ms per step")
    figure.tight_layout()
    figure.savefig(path, dpi=100)
    pyplot.close(figure)


def _is_ours(name: str) -> bool:
    listed = SYSTEMS.get(re.split("[:,@]", name)[0])
    return listed is not None and listed.ours
