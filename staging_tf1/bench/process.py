"""Runs one worker process and reads its answer."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

import staging_tf1
from staging_tf1.bench.worker import Request
from staging_tf1.quiet import without_noise

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
