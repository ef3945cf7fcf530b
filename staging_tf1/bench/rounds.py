"""Runs the measurements in rounds. In each round, every system runs once, in a worker process of its own."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import TypeVar

import staging_tf1
from staging_tf1.bench.worker import Request
from staging_tf1.quiet import without_noise

_Item = TypeVar("_Item")
# Time for loading TensorFlow, making the data and stopping. The first run of W5 writes a file of 1 GB.
_GRACE_SECS = 300.0
# The number of last lines shown of a failed worker's stderr, enough to see the exception.
_SHOWN_LINES = 3
# The line of an answer starts with one of these.
_STARTS = tuple(f'{{"{word}": ' for word in ("measured", "skipped", "failed"))


@dataclass(frozen=True)
class Answer:
    """The outcome of a request. Exactly one of the fields is set."""

    measured: dict[str, float] | None = None
    # The reason why the system was not measured.
    skipped: str | None = None
    # The error of the worker.
    failed: str | None = None


def ask_worker(request: Request, timeout_secs: float) -> Answer:
    """Answer `request` in a process of its own."""
    return ask_one_worker([request], timeout_secs)[0]


def ask_one_worker(requests: Sequence[Request], timeout_secs: float) -> list[Answer]:
    """Answer all `requests` in one process, in order, with this same package and without TensorFlow's start-up log."""
    home = str(Path(staging_tf1.__file__).parent.parent)
    paths = os.pathsep.join(filter(None, [home, os.environ.get("PYTHONPATH", "")]))
    environment = {**os.environ, "PYTHONPATH": paths}
    text = "".join(json.dumps(asdict(request)) + "\n" for request in requests)
    with _running([sys.executable, "-m", "staging_tf1.bench.worker"], environment) as worker:
        try:
            out, err = worker.communicate(text, timeout=timeout_secs)
        except subprocess.TimeoutExpired:
            return [Answer(failed=f"no answer in {timeout_secs:.0f} s")] * len(requests)
    answers = [Answer(**json.loads(line)) for line in out.splitlines() if line.startswith(_STARTS)]
    if len(answers) < len(requests):
        error = last_words(err) or f"exit code {worker.returncode}"
        answers += [Answer(failed=error)] * (len(requests) - len(answers))
    return answers


def last_words(text: str) -> str:
    """Return the last lines of what a worker wrote on stderr, as one line.

    The worker processes of other projects log TensorFlow's start to the same pipe, perhaps after the error.

    >>> last_words("ValueError: no data\\nI0000 00:00:1795391804.897138   31566 port.cc:153] oneDNN is on.\\n")
    'ValueError: no data'
    """
    shown = without_noise(text.encode(errors="replace")).decode(errors="replace")
    return " / ".join([line.strip() for line in shown.splitlines() if line.strip()][-_SHOWN_LINES:])


@contextlib.contextmanager
def _running(command: Sequence[str], environment: dict[str, str]) -> Iterator[subprocess.Popen[str]]:
    """Start a process in a session of its own, and kill what is left of that: a system may have started others."""
    worker = subprocess.Popen(
        command,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env=environment,
        start_new_session=True,
    )
    try:
        yield worker
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(worker.pid, signal.SIGKILL)
        worker.wait()
        for pipe in (worker.stdin, worker.stdout, worker.stderr):
            assert pipe is not None
            pipe.close()


__all__ = ["Answer", "Outcome", "ask_one_worker", "ask_worker", "play_once", "play_rounds", "rotated"]


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
