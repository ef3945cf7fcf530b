"""The suites: workloads by systems, the old advice, or the user's own training step."""

from __future__ import annotations

import statistics
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from staging_tf1.bench.rounds import Outcome, play_once, play_rounds
from staging_tf1.bench.systems import BOUNDS, POOLS, SYSTEMS, SystemName
from staging_tf1.bench.tables import Bound, Table, bound_of
from staging_tf1.bench.worker import Request
from staging_tf1.bench.workloads import FACTS, split_own
from staging_tf1.cores import usable_cores

__all__ = [
    "TablePlan",
    "advice",
    "classic_plans",
    "own_plan",
    "own_systems",
    "run_plan",
    "run_quickly",
    "with_pools",
    "workload_plans",
]

_QUICK_STEPS = 5
# A simpler configuration is chosen if it takes at most this much longer than the fastest. Equal ones differ by as much.
_AS_FAST = 1.03
_MOST_PROCESSES = 8
_ARGUMENTS = {"staged": "num_threads", "staged_processes": "num_processes"}


@dataclass(frozen=True)
class TablePlan:
    """The requests of one table."""

    title: str
    requests: dict[str, Request]
    # Computes the bound from the outcomes.
    bound: Callable[[dict[str, Outcome]], Bound | None]
    # Returns what to choose, from the outcomes.
    advice: Callable[[dict[str, Outcome]], list[str]] = lambda outcomes: []


def workload_plans(
    names: Sequence[str],
    systems: Sequence[SystemName],
    *,
    secs: float,
    folder: str,
    quick: bool = False,
) -> list[TablePlan]:
    """Return a plan for each workload, with all `systems` and the bounds."""
    return [_workload_plan(name, systems, secs, folder, quick) for name in names]


def classic_plans(names: Sequence[str], *, secs: float, folder: str, quick: bool = False) -> list[TablePlan]:
    """Return plans that test the advice of TensorFlow 1's time, by hand and with `staged()`, one change a row."""
    return [_classic_plan(name, secs, folder, quick) for name in names]


def own_plan(name: str, *, secs: float, folder: str) -> TablePlan:
    """Return a plan for the user's own step: on a constant batch, which is the bound, with feed_dict, and staged.

    Staged with several numbers of threads and processes. The advice names the best.
    """
    split_own(name)
    base = Request(workload=name, system="const", folder=folder, secs=secs)
    staged = own_systems(usable_cores())
    requests = {
        "const": base,
        "feed_dict": replace(base, system="feed_dict"),
        **{str(system): _request(base, system) for system in staged},
    }

    def bound(outcomes: dict[str, Outcome]) -> Bound | None:
        wall = outcomes["const"].wall_ms
        return Bound(wall, "the same step on constant data ('of bound' is real over synthetic)") if wall else None

    return TablePlan(f"{name}: your own training step", requests, bound, lambda outcomes: advice(outcomes, staged))


def with_pools(plan: TablePlan, pools: Mapping[str, Any]) -> TablePlan:
    """Return the plan with these `POOLS` in every session that sets none itself; 0 and False change nothing."""
    words = [f"{POOLS[name]}={value}" for name, value in pools.items() if value]
    requests = {
        row: replace(request, **{name: value for name, value in pools.items() if not getattr(request, name)})
        for row, request in plan.requests.items()
    }
    return replace(plan, title="; ".join([plan.title, *words]), requests=requests)


def run_plan(plan: TablePlan, rounds: int, on_done: Callable[[str], None] = lambda name: None) -> Table:
    """Measure a plan and return its table. `on_done` is called with the name of each row, once per round."""
    return _table(plan, play_rounds(plan.requests, rounds, lambda name, answer: on_done(name)))


def run_quickly(plans: Sequence[TablePlan]) -> list[Table]:
    """Measure all plans in one process, each row once, for `--quick`."""
    requests = {(index, name): request for index, plan in enumerate(plans) for name, request in plan.requests.items()}
    outcomes = play_once(requests)
    return [_table(plan, {name: outcomes[index, name] for name in plan.requests}) for index, plan in enumerate(plans)]


def _table(plan: TablePlan, outcomes: dict[str, Outcome]) -> Table:
    return Table(plan.title, outcomes, plan.bound(outcomes), plan.advice(outcomes))


def _workload_plan(name: str, systems: Sequence[SystemName], secs: float, folder: str, quick: bool) -> TablePlan:
    base = _base(name, secs, folder, quick)
    rows = [*map(SystemName, BOUNDS), *systems]
    reference = FACTS[name].reference
    if reference is not None and SystemName(reference) not in rows:
        rows.append(SystemName(reference))
    requests = {str(row): _request(base, row) for row in rows}
    return TablePlan(f"{name}: {FACTS[name].help_text}", requests, _computed(reference))


def _request(base: Request, name: SystemName) -> Request:
    limit_secs = SYSTEMS[name.system].limit_secs if name.system in SYSTEMS else 0.0
    return replace(base, system=name.system, threads=name.threads, limit_secs=limit_secs, **dict(name.pools))


def _classic_plan(name: str, secs: float, folder: str, quick: bool) -> TablePlan:
    base = _base(name, secs, folder, quick)
    requests = {bound: replace(base, system=bound) for bound in BOUNDS}
    for words, system in (("queue", "hand_classic"), ("staged", "staged")):
        for change, request in _changes(replace(base, system=system)):
            requests[f"{words}, {change}"] = request
    title = f"The old advice, on {name} (queue: by hand, RandomShuffleQueue; staged: staged())"
    return TablePlan(title, requests, _computed(FACTS[name].reference))


def _changes(request: Request) -> Iterator[tuple[str, Request]]:
    yield "1 feed thread", request
    yield "4 feed threads", replace(request, threads=4)
    yield "input on /cpu:0", replace(request, input_device="/cpu:0")
    yield "intra_op 1", replace(request, intra_op=1)
    yield "intra_op 2", replace(request, intra_op=2)
    yield "inter_op 1", replace(request, inter_op=1)
    yield "no spinning", replace(request, no_spinning=True)


def _base(name: str, secs: float, folder: str, quick: bool) -> Request:
    facts = FACTS[name]
    base = Request(
        workload=name, system="const", folder=folder, secs=secs, records=facts.records, intra_op=facts.intra_op
    )
    return replace(base, records=facts.quick_records, steps=_QUICK_STEPS) if quick else base


def _computed(reference: str | None) -> Callable[[dict[str, Outcome]], Bound | None]:
    return lambda outcomes: bound_of(outcomes, usable_cores(), reference)


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
    fastest = min(measured, key=lambda system: statistics.median(outcomes[str(system)].wall_ms))
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
