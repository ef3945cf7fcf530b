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

# The last lines of a worker that failed: enough to see the exception.
_TOLD_LINES = 3
# How the line of an answer begins.
_STARTS = tuple(f'{{"{word}": ' for word in ("measured", "skipped", "failed"))


@dataclass(frozen=True)
class Answer:
    """What became of a request: one of the three is set."""

    measured: dict[str, float] | None = None
    # Why the system was not measured.
    skipped: str | None = None
    # How the worker failed.
    failed: str | None = None


def ask_worker(request: Request, timeout_secs: float) -> Answer:
    """Has a process of its own answer `request`."""
    return ask_one_worker([request], timeout_secs)[0]


def ask_one_worker(requests: Sequence[Request], timeout_secs: float) -> list[Answer]:
    """Has one process answer all `requests`, in order.

    The package is imported from where this process has it, and TensorFlow is told to keep its start-up lines.
    """
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
        said = [line.strip() for line in done.stderr.splitlines() if line.strip()]
        told = " / ".join(said[-_TOLD_LINES:]) or f"exit code {done.returncode}"
        answers += [Answer(failed=told)] * (len(requests) - len(answers))
    return answers
