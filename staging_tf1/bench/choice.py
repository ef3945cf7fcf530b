"""Chooses the number of threads or processes that suits the user's own step best."""

from __future__ import annotations

import statistics
from collections.abc import Mapping

from staging_tf1.bench.rounds import Outcome
from staging_tf1.bench.systems import SystemName

__all__ = ["advice", "own_systems"]

# A simpler configuration is chosen if it takes at most this much longer than the fastest. Equal ones differ by as much.
_AS_FAST = 1.03
_MOST_PROCESSES = 8
_ARGUMENTS = {"staged": "num_threads", "staged_processes": "num_processes"}


def own_systems(cores: int) -> list[SystemName]:
    """Return what `--train` compares, the simplest first: threads, and processes up to the number of cores.

    >>> [str(name) for name in own_systems(cores=4)]
    ['staged:1', 'staged:2', 'staged:4', 'staged_processes:1', 'staged_processes:2', 'staged_processes:4']
    """
    processes = [count for count in (1, 2, 4, _MOST_PROCESSES) if count <= max(2, cores)]
    return [
        *(SystemName("staged", count) for count in (1, 2, 4)),
        *(SystemName("staged_processes", count) for count in processes),
    ]


def advice(outcomes: Mapping[str, Outcome], systems: list[SystemName]) -> list[str]:
    """Return the best of `systems`, its speed over one thread and the line to write; nothing if none was measured."""
    measured = [system for system in systems if str(system) in outcomes and outcomes[str(system)].wall_ms]
    if not measured:
        return []
    fastest = min(measured, key=lambda each: statistics.median(outcomes[str(each)].wall_ms))
    best = next(system for system in measured if _over(outcomes, system, fastest)[0] <= _AS_FAST)
    first = measured[0]
    said = f"best for this step: {best}"
    if best != first:
        median, least, most = _over(outcomes, first, best)
        said += f", {median:.2f} ({least:.2f} to {most:.2f}) times as fast as {first}"
        if least <= 1:
            said += "; the rounds disagree, so repeat this with more --rounds on a less busy machine"
    return [said, f"write: staging.staged(source, {_ARGUMENTS[best.system]}={best.threads})"]


def _over(outcomes: Mapping[str, Outcome], one: SystemName, other: SystemName) -> tuple[float, float, float]:
    """Return the time of one over that of the other: median, minimum and maximum of the rounds' quotients."""
    ratios = [a / b for a, b in zip(outcomes[str(one)].wall_ms, outcomes[str(other)].wall_ms)]
    return statistics.median(ratios), min(ratios), max(ratios)
