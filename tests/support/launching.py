"""Runs `staging-tf1 launch` with small Python programs, and finds out which of their processes are alive.

The programs begin with `PRELUDE`, whose functions write facts to a named pipe. A second one stays open in each process
that has called `ready`, and in those that it starts, so its end shows that all of them are gone. No test has to wait
for a fixed time.
"""

from __future__ import annotations

import json
import os
import select
import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import staging_tf1

HOME = str(Path(staging_tf1.__file__).parents[1])
LAUNCH = [sys.executable, "-m", "staging_tf1", "launch"]
# Only detects hangs.
PATIENCE_SECS = 120

PRELUDE = """
import json, os, signal, socket, subprocess, sys, time
signal.alarm(300)  # in case the test fails to end it
config = json.loads(os.environ["TF_CONFIG"])
job, index = config["task"]["type"], config["task"]["index"]
name = f"{job} {index}"

def ready(fact=None):
    os.set_inheritable(os.open("alive", os.O_WRONLY), True)
    tell(fact)

def tell(fact):
    with open("facts", "w") as file:
        file.write(json.dumps([name, fact]) + "\\n")

def wait_for_go():
    with open("go", "rb", buffering=0) as file:
        file.read(1)

def wait_forever():
    while True:
        time.sleep(0.1)  # signal.pause() would sleep through a signal that comes just before it

def ignore(*signals):
    for number in signals:
        signal.signal(number, signal.SIG_IGN)
"""


class Launched:
    """A running `staging-tf1 launch OPTIONS -- program.py`, in `folder`. Use it in a `with` statement."""

    def __init__(self, folder: Path, options: str, program: str, *, before: Sequence[str] = (), **kwargs: Any) -> None:
        """Start it; keyword arguments go to Popen. `before` is put in front of the command."""
        (folder / "program.py").write_text(PRELUDE + program, encoding="utf-8")
        for pipe in ("alive", "facts", "go"):
            os.mkfifo(folder / pipe)
        self._folder = folder
        self._alive = os.open(folder / "alive", os.O_RDONLY | os.O_NONBLOCK)
        # Open for reading and writing, so that neither side waits for the other or sees an end.
        self._facts, self._go = (os.open(folder / pipe, os.O_RDWR) for pipe in ("facts", "go"))
        self._received = b""
        streams: dict[str, Any] = {"stdin": subprocess.DEVNULL, "stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
        self.process = subprocess.Popen(
            [*before, *LAUNCH, *options.split(), "--", "program.py"],
            cwd=folder,
            env=environment(),
            **{**streams, **kwargs},
        )

    def __enter__(self) -> Launched:
        return self

    def __exit__(self, *error: object) -> None:
        self.process.kill()
        self.process.communicate()
        for pipe in (self._alive, self._facts, self._go):
            os.close(pipe)

    def facts(self, count: int) -> list[tuple[str, Any]]:
        """Wait for the next `count` facts, and return them with the names of the tasks that told them, sorted."""
        found: list[tuple[str, Any]] = []
        deadline = time.monotonic() + PATIENCE_SECS
        while len(found) < count:
            line, newline, rest = self._received.partition(b"\n")
            if newline:
                self._received = rest
                name, fact = json.loads(line)
                found.append((name, fact))
            else:
                self._wait_for(self._facts, deadline)
                self._received += os.read(self._facts, 65536)
        return sorted(found, key=repr)

    def go(self, count: int = 1) -> None:
        """Let `count` tasks return from `wait_for_go`."""
        os.write(self._go, b"." * count)

    def wait_until_all_are_gone(self) -> None:
        """Wait until every process that has been ready, and what it has started, is dead."""
        # Without this, a pipe that no process has opened yet would have no end.
        os.close(os.open(self._folder / "alive", os.O_WRONLY | os.O_NONBLOCK))
        self._wait_for(self._alive, time.monotonic() + PATIENCE_SECS)
        assert os.read(self._alive, 1) == b""

    def end(self) -> tuple[int, str, str]:
        """Wait for launch to end. Return its exit code, stdout and stderr."""
        out, err = self.process.communicate(timeout=PATIENCE_SECS)
        return self.process.returncode, (out or b"").decode(), (err or b"").decode()

    def _wait_for(self, descriptor: int, deadline: float) -> None:
        # Not select.select: a test process may have more than 1,024 descriptors open.
        ends = select.poll()
        ends.register(descriptor, select.POLLIN)
        assert ends.poll(1000 * max(0.0, deadline - time.monotonic())), "the tasks are too slow"


def environment(added: dict[str, str] | None = None) -> dict[str, str]:
    """Return this environment with the package under test, and without what changes the output of launch."""
    paths = os.pathsep.join(filter(None, [HOME, os.environ.get("PYTHONPATH", "")]))
    kept = {name: value for name, value in os.environ.items() if name not in ("NO_COLOR", "STAGING_TF1_SYNC")}
    return {**kept, "PYTHONPATH": paths, "TERM": "xterm", **(added or {})}


def ignore_hangup() -> None:
    """What nohup does; for `preexec_fn`."""
    signal.signal(signal.SIGHUP, signal.SIG_IGN)
