"""One running task: its process group and its two pipes."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
from pathlib import Path

from staging_tf1.launch.output import LineSplitter
from staging_tf1.launch.tasks import TaskCommand

_TETHER = str(Path(__file__).with_name("tether.py"))
_CHUNK = 64 * 1024
# The most that is read from the pipe of a dead task: the largest pipe of a user on Linux. A process that has left the
# task's group may write to it forever.
_MOST_LEFT = 1024 * 1024


class Process:
    """A started task.

    The task leads a session of its own, so a Ctrl-C in the terminal does not reach it. One signal reaches it and the
    processes that it has started, except those with sessions of their own. Its stdin is empty. `tether.py` explains
    what happens when this process is killed.

    Raises:
        OSError: the system cannot start another process, or the command is too long.
    """

    def __init__(self, task: TaskCommand) -> None:
        self._child = subprocess.Popen(
            [sys.executable, "-I", "-S", _TETHER, str(os.getpid()), *task.command],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            bufsize=0,
            env={**os.environ, **task.environment},
            start_new_session=True,
        )
        assert self._child.stdout is not None and self._child.stderr is not None
        self.streams = [Stream(self._child.stdout.fileno(), 1), Stream(self._child.stderr.fileno(), 2)]

    def has_exited(self) -> bool:
        """Whether the task has exited. It stays a zombie until `reap`, which keeps its process id from being reused."""
        return os.waitid(os.P_PID, self._child.pid, os.WEXITED | os.WNOHANG | os.WNOWAIT) is not None

    def signal(self, number: int) -> None:
        """Send a signal to the process group. Must not be called after `reap`."""
        # PermissionError: the rest of the group belongs to another user.
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(self._child.pid, number)

    def reap(self) -> int:
        """Kill the rest of the exited task's group, and return its status, which is negative for a signal."""
        self.signal(signal.SIGKILL)
        return self._child.wait()

    def close(self) -> None:
        """Close the pipes."""
        assert self._child.stdout is not None and self._child.stderr is not None
        self._child.stdout.close()
        self._child.stderr.close()


class Stream:
    """A pipe from a task. `target` is the descriptor of this process on which its lines are printed."""

    def __init__(self, pipe: int, target: int) -> None:
        os.set_blocking(pipe, False)
        self.pipe, self.target = pipe, target
        self.ended = False
        self._lines = LineSplitter()

    def read(self) -> list[bytes]:
        """Return the lines that have arrived. At the end of the pipe, return the last line and set `ended`."""
        return self._read()[1]

    def read_rest(self) -> list[bytes]:
        """Return all lines that an exited task has left."""
        lines, taken = [], 0
        while not self.ended and taken < _MOST_LEFT:
            count, more = self._read()
            lines += more
            taken += count
            if not count:
                break
        self.ended = True
        return lines + self._lines.close()

    def _read(self) -> tuple[int, list[bytes]]:
        if self.ended:
            return 0, []
        try:
            data = os.read(self.pipe, _CHUNK)
        except BlockingIOError:
            return 0, []
        if not data:
            self.ended = True
            return 0, self._lines.close()
        return len(data), self._lines.feed(data)


def exit_code(status: int) -> int:
    """Return the exit code that a shell gives to a status.

    >>> exit_code(3), exit_code(-9)
    (3, 137)
    """
    return status if status >= 0 else 128 - status


def describe_exit(status: int) -> str:
    """Say how a task ended.

    >>> describe_exit(3), describe_exit(-9)
    ('exited with code 3', 'was ended by SIGKILL')
    """
    return f"exited with code {status}" if status >= 0 else f"was ended by {name_of(-status)}"


def name_of(number: int) -> str:
    """Return a signal's name, such as 'SIGKILL'."""
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"signal {number}"  # a real-time signal
