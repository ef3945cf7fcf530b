"""Runs the measurements in rounds. In each round, every system runs once, in its own process."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TypeVar

from staging_tf1.bench.process import Answer, ask_one_worker, ask_worker
from staging_tf1.bench.worker import Request

__all__ = ["Outcome", "play_once", "play_rounds", "rotated"]

_Item = TypeVar("_Item")
# Time for loading TensorFlow, making the data and stopping. The first run of W5 writes a file of 1 GB.
_GRACE_SECS = 300.0


@dataclass
class Outcome:
    """All measurements of one system on one workload."""

    name: str
    # One entry per round, in order.
    wall_ms: list[float] = field(default_factory=list)
    cpu_ms: list[float] = field(default_factory=list)
    steps: list[int] = field(default_factory=list)
    peak_mb: list[float] = field(default_factory=list)
    # Records per batch; 0 if unknown.
    batch_size: int = 0
    skipped: str | None = None
    failed: str | None = None

    def add(self, answer: Answer) -> None:
        """Add the answer of one round."""
        self.skipped = answer.skipped
        self.failed = answer.failed
        if answer.measured is not None:
            self.wall_ms.append(answer.measured["wall_ms"])
            self.cpu_ms.append(answer.measured["cpu_ms"])
            self.steps.append(int(answer.measured["steps"]))
            self.peak_mb.append(answer.measured["peak_mb"])
            self.batch_size = int(answer.measured["batch_size"])


def rotated(items: Sequence[_Item], turns: int) -> list[_Item]:
    """Return the items rotated by `turns`, so that no system always runs first.

    >>> rotated(["a", "b", "c"], 4)
    ['b', 'c', 'a']
    """
    start = turns % len(items)
    return [*items[start:], *items[:start]]


def play_rounds(
    requests: dict[str, Request],
    rounds: int,
    on_done: Callable[[str, Answer], None] = lambda name, answer: None,
    ask: Callable[[Request, float], Answer] = ask_worker,
) -> dict[str, Outcome]:
    """Measure each request, given by the name of its row, once per round, in an order that rotates.

    A request that is skipped or fails is not repeated. `on_done` is called after each answer, and in later rounds with
    the old answer of requests that are not repeated. `ask` answers a request; by default in a new process.
    """
    outcomes = {name: Outcome(name) for name in requests}
    final: dict[str, Answer] = {}
    for turn in range(rounds):
        for name in rotated(list(requests), turn):
            if name not in final:
                request = replace(requests[name], seed=requests[name].seed + turn)
                answer = ask(request, (request.limit_secs or _GRACE_SECS) + 10 * request.secs)
                outcomes[name].add(answer)
                if answer.measured is None:
                    final[name] = answer
            on_done(name, final.get(name, answer))
    return outcomes


def play_once(requests: Mapping[tuple[int, str], Request]) -> dict[tuple[int, str], Outcome]:
    """Measure each request once, for `--quick`. The keys are (table, name of the row).

    All in one process, and those that may hang in a second one.
    """
    outcomes = {key: Outcome(key[1]) for key in requests}
    for may_hang in (False, True):
        group = {key: request for key, request in requests.items() if bool(request.limit_secs) == may_hang}
        limit_secs = sum(request.limit_secs for request in group.values()) or _GRACE_SECS
        if group:
            for key, answer in zip(group, ask_one_worker(list(group.values()), limit_secs)):
                outcomes[key].add(answer)
    return outcomes
