"""Runs one worker process and reads its answer."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

import staging_tf1
from staging_tf1.bench.worker import Request

__all__ = ["Answer", "ask_one_worker", "ask_worker"]

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
    environment = {"TF_CPP_MIN_LOG_LEVEL": "3", **os.environ, "PYTHONPATH": paths}
    try:
        done = subprocess.run(
            [sys.executable, "-m", "staging_tf1.bench.worker"],
            input="".join(json.dumps(asdict(request)) + "\n" for request in requests),
            capture_output=True,
            text=True,
            env=environment,
            timeout=timeout_secs,
            check=False,
        )
    except subprocess.TimeoutExpired:
        return [Answer(failed=f"no answer in {timeout_secs:.0f} s")] * len(requests)
    answers = [Answer(**json.loads(line)) for line in done.stdout.splitlines() if line.startswith(_STARTS)]
    if len(answers) < len(requests):
        lines = [line.strip() for line in done.stderr.splitlines() if line.strip()]
        error = " / ".join(lines[-_SHOWN_LINES:]) or f"exit code {done.returncode}"
        answers += [Answer(failed=error)] * (len(requests) - len(answers))
    return answers
