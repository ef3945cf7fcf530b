"""`WorkerProcess`: one worker process, seen from the training process, and the line that it is in."""

from __future__ import annotations

import contextlib
import os
import re
import select
import signal
import socket
import sys
import threading
from typing import Any, NamedTuple, Protocol

from staging_tf1.workers.channel import Channel
from staging_tf1.workers.setup import LANES, LIFE, STARTING, STATUS, TRACES, Status, trace_signal

__all__ = ["Frame", "LANES_EACH", "WorkerProcess", "frames_for", "starting_for", "url_for", "waiting_for"]

# One batch is made while the request for the next one waits in its channel.
LANES_EACH = 2
# TensorFlow and others leave descriptors open in the processes that they start.
_HIGHEST = 1 << 20
_TRACE_BYTES = 64 << 10
_TRACE_SECS = 1.0
# A library that starts a thread for each core in each worker process slows all of them down. A GPU belongs to the
# training process.
_ENVIRONMENT = {"OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1", "MKL_NUM_THREADS": "1"}
_NO_GPU = {"CUDA_VISIBLE_DEVICES": "-1"}


class WorkerProcess:
    """A process that runs `worker.main`. It ends with this process at the latest.

    Attributes:
      name: for messages.
      number: among the workers of its pool.
      channels: one for each request that it may have at a time.
      requests: how many it has.
      status: what it does.
    """

    def __init__(self, name: str, number: int, status_file: int) -> None:
        self.name, self.number, self.requests = name, number, 0
        self.status = Status(status_file, number)
        self.status.starting()
        # If a limit of the system stops this, everything that is open is closed.
        with contextlib.ExitStack() as theirs, contextlib.ExitStack() as ours:
            lanes = [_pair(ours, theirs) for _ in range(LANES_EACH)]
            self._life, life = _pair(ours, theirs)
            self._traces, traces = os.pipe()
            ours.callback(os.close, self._traces)
            theirs.callback(os.close, traces)
            os.set_blocking(self._traces, False)
            given = {LIFE: life.fileno(), STATUS: status_file, TRACES: traces}
            given |= {LANES + number: end.fileno() for number, (_, end) in enumerate(lanes)}
            self.pid = _spawned(given)
            ours.pop_all()
        self.channels = [Channel(end) for end, _ in lanes]
        self._exit_status: int | None = None

    @property
    def starting(self) -> str:
        """What is still starting, for messages; empty if it has begun to serve."""
        return f"worker process '{self.name}'" if self.status.doing == STARTING else ""

    @property
    def url(self) -> str:
        """The URL that it waits for; "" for none."""
        return self.status.url

    def stop(self) -> None:
        """Ask it to end, and wake the threads that wait for it. Does not wait."""
        for channel in self.channels:
            channel.shut_down()

    def end(self, grace_secs: float) -> None:
        """End it, by force after `grace_secs`, and close everything. No thread may use its channels."""
        poller = select.poll()
        poller.register(self._life, select.POLLIN)
        poller.poll(grace_secs * 1e3)
        self._life.close()
        if self._exit_status is None:
            # Closing `_life` kills it, too, unless C code has forked: that child still has a copy of the socket.
            self.kill()
        self.exit_status()
        for channel in self.channels:
            channel.close()
        with contextlib.suppress(OSError):
            os.close(self._traces)
        self._traces = -1

    def exit_status(self) -> int | None:
        """Wait until it ends, and return its exit code, or minus the signal; None if other code has waited for it."""
        if self._exit_status is None:
            with contextlib.suppress(ChildProcessError):
                self._exit_status = os.waitstatus_to_exitcode(os.waitpid(self.pid, 0)[1])
        return self._exit_status

    def kill(self) -> None:
        """Kill it."""
        with contextlib.suppress(ProcessLookupError):
            os.kill(self.pid, signal.SIGKILL)

    def disown(self) -> None:
        """Close the descriptors in a process that was forked from this one."""
        self._life.close()
        for channel in self.channels:
            channel.close()

    def stack(self) -> str:
        """Return the Python stack of its main thread, as faulthandler writes it; empty if it does not answer."""
        with contextlib.suppress(OSError):
            self._read_traces(0.0)
            os.kill(self.pid, trace_signal())
            return self._read_traces(_TRACE_SECS)
        return ""

    def _read_traces(self, wait_secs: float) -> str:
        """Read up to the last line of a stack, which is that of the program's start."""
        poller = select.poll()
        poller.register(self._traces, select.POLLIN)
        traces = b""
        while poller.poll(wait_secs * 1e3):
            part = os.read(self._traces, _TRACE_BYTES)
            traces += part
            if not part or b'File "<string>"' in traces:
                break
        return traces.decode(errors="replace")


def _pair(ours: contextlib.ExitStack, theirs: contextlib.ExitStack) -> tuple[socket.socket, socket.socket]:
    """Connect two sockets. Each is closed with its stack."""
    pair = socket.socketpair()
    ours.enter_context(pair[0])
    theirs.enter_context(pair[1])
    return pair


def _is_inherited(descriptor: int) -> bool:
    """Whether a new process inherits this descriptor."""
    try:
        return os.get_inheritable(descriptor)
    except OSError:
        return False


def _spawned(given: dict[int, int]) -> int:
    """Start a process with descriptors: `given` maps the process's own to those of this process.

    `posix_spawn` copies no memory and runs no code of Python between fork and exec, so the threads of TensorFlow do no
    harm. Nobody else can inherit the descriptors.
    """
    highest = max(LANES + LANES_EACH, *given.values()) + 1
    moves: list[Any] = []
    # Moved first to numbers that are free in both processes.
    for offset, descriptor in enumerate(given.values()):
        moves.append((os.POSIX_SPAWN_DUP2, descriptor, highest + offset))
    for offset, wanted in enumerate(given):
        moves.append((os.POSIX_SPAWN_DUP2, highest + offset, wanted))
        moves.append((os.POSIX_SPAWN_CLOSE, highest + offset))
    # At the end: if a standard stream is closed here, a given descriptor may have its number.
    moves.append((os.POSIX_SPAWN_OPEN, 0, os.devnull, os.O_RDONLY, 0))
    for number, stream in ((1, sys.__stdout__), (2, sys.__stderr__)):
        if stream is None or not _is_inherited(number):
            moves.append((os.POSIX_SPAWN_OPEN, number, os.devnull, os.O_WRONLY, 0))
    program = (
        f"import os, sys; os.closerange({LANES + LANES_EACH}, {_HIGHEST}); sys.path[:] = {list(map(str, sys.path))!r}; "
        f"from staging_tf1.workers.worker import main; main({LANES_EACH})"
    )
    optimized = ["-O"] * sys.flags.optimize
    return os.posix_spawn(
        sys.executable,
        [sys.executable, *optimized, "-c", program],
        {**_ENVIRONMENT, **os.environ, **_NO_GPU},
        file_actions=moves,
        # A Ctrl-C is for the training process, from the first moment on.
        setsigmask=[signal.SIGINT, trace_signal()],
        setsigdef=[signal.SIGPIPE, signal.SIGIO, signal.SIGTERM],
    )


_LINE = re.compile(r'^ +File "(.+)", line (\d+) in (.+)$', re.MULTILINE)


class Frame(NamedTuple):
    """One line of a stack."""

    filename: str
    line: int
    function: str


class _Awaited(Protocol):
    @property
    def starting(self) -> str:
        """What is still starting, for messages; empty if it has begun to serve."""

    @property
    def url(self) -> str:
        """The URL that it waits for; "" for none."""

    def stack(self) -> str:
        """Return its stack as text."""


_awaited: dict[int, _Awaited] = {}


class waiting_for:
    """Notes, while the block runs, that this thread waits for one process, or for the start of all."""

    def __init__(self, awaited: _Awaited) -> None:
        self._awaited = awaited

    def __enter__(self) -> None:
        _awaited[threading.get_ident()] = self._awaited

    def __exit__(self, *_: object) -> None:
        _awaited.pop(threading.get_ident(), None)


def starting_for(ident: int | None) -> str:
    """Return what a thread waits for that is still starting, for messages; empty if there is nothing."""
    awaited = _awaited.get(ident) if ident is not None else None
    return "" if awaited is None else awaited.starting


def url_for(ident: int | None) -> str:
    """Return the URL that the worker process reads for which a thread waits; "" for none."""
    awaited = _awaited.get(ident) if ident is not None else None
    return "" if awaited is None else awaited.url


def frames_for(ident: int | None) -> list[Frame] | None:
    """Return the stack of the process that a thread waits for, the innermost line first; None if it waits for none."""
    awaited = _awaited.get(ident) if ident is not None else None
    return None if awaited is None else frames_in(awaited.stack())


def frames_in(text: str) -> list[Frame]:
    r"""Return the frames in the text that faulthandler writes.

    >>> frames_in('Stack (most recent call first):\n  File "a.py", line 3 in read\n')
    [Frame(filename='a.py', line=3, function='read')]
    """
    return [Frame(name, int(line), function) for name, line, function in _LINE.findall(text)]
