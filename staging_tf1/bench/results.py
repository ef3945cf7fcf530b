"""From what was measured to what is shown: medians, spread, bounds, ratios within a round."""

from __future__ import annotations

import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from staging_tf1.bench.rounds import Outcome

__all__ = ["Bound", "Row", "bound_of", "make_rows"]


@dataclass(frozen=True)
class Bound:
    """The least time of a step, one value a round."""

    ms: list[float]
    # What it is, in words.
    meaning: str


@dataclass(frozen=True)
class Row:
    """One system on one workload."""

    name: str
    # Milliseconds a step: the median of the rounds, the fastest, the slowest.
    median_ms: float
    least_ms: float
    most_ms: float
    # The median of bound over time, round by round: 1 is perfect. None where there is no bound.
    of_bound: float | None
    records_per_sec: float
    cpu_ms: float
    peak_mb: float


def bound_of(outcomes: Mapping[str, Outcome], cores: int, reference: str | None) -> Bound | None:
    """The bound of a workload, from the outcomes of its systems; None if they are not there.

    Args:
      outcomes: by name, `const` and `source` among them.
      cores: what the CPU time of a step is shared by.
      reference: the system that is the bound itself; None computes it, the time of `const` or the CPU time of step
        and source on all cores, whichever is larger.
    """
    if reference is not None:
        found = outcomes.get(reference)
        return Bound(found.wall_ms, f"the time of {reference}") if found and found.wall_ms else None
    const, source = outcomes.get("const"), outcomes.get("source")
    if const is None or source is None or not const.wall_ms or not source.cpu_ms:
        return None
    ms = [max(wall, (cpu + made) / cores) for wall, cpu, made in zip(const.wall_ms, const.cpu_ms, source.cpu_ms)]
    return Bound(ms, f"the larger of const and (CPU of const + CPU of source) / {cores} cores")


def make_rows(outcomes: Sequence[Outcome], bound: Bound | None) -> list[Row]:
    """The rows of those that were measured.

    A ratio is taken within each round, whose systems ran one after the other, because machines drift.
    """
    return [_row(each, bound) for each in outcomes if each.wall_ms]


def _row(outcome: Outcome, bound: Bound | None) -> Row:
    median = statistics.median(outcome.wall_ms)
    of_bound = None
    if bound is not None and outcome.name != "source":  # which is no way to feed a step
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
