"""Tables of measurements, shown as text, Markdown or JSON."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

from staging_tf1.bench.results import Bound, Row, make_rows
from staging_tf1.bench.rounds import Outcome

__all__ = ["Table", "as_json", "as_markdown", "as_text"]


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
