"""Computes the figures of the tables: medians, spread, bounds and ratios."""

from __future__ import annotations

import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from staging_tf1.bench.rounds import Outcome

__all__ = ["Bound", "Row", "bound_of", "make_rows"]


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
