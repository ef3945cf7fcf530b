"""`WorkerProcess`: one worker process, seen from the training process, and the line that it is in."""

from __future__ import annotations

import contextlib
import os
import re
import select
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple, Protocol

from staging_tf1.workers.lanes import Lane, PeerGone, connected
from staging_tf1.workers.setup import STARTING, Setup, Status, trace_signal

__all__ = ["Frame", "LANES_EACH", "WorkerProcess", "frames_for", "starting_for", "url_for", "waiting_for"]

# One batch is made while the request for the next one waits in its lane.
LANES_EACH = 2
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
      lanes: one for each request that it may have at a time.
      requests: how many it has.
      status: what it does.
    """

    def __init__(self, setup: Setup, shipped: int) -> None:
        self.name, self.requests = setup.name, 0
        # If a limit of the system stops this, everything that is open is closed.
        with contextlib.ExitStack() as ours, contextlib.ExitStack() as theirs:
            pairs = []
            for _ in range(1 + LANES_EACH):
                pairs.append(connected())
                ours.enter_context(pairs[-1][0])
                theirs.enter_context(pairs[-1][1])
            self._traces, traces = os.pipe()
            ours.callback(os.close, self._traces)
            theirs.callback(os.close, traces)
            status = os.memfd_create("staging_tf1 status")
            theirs.callback(os.close, status)
            os.ftruncate(status, Status.NBYTES)
            self.status = Status(status)
            self.status.making(STARTING)
            life, *lanes = (end.fileno() for _, end in pairs)
            self._process = _started([life, status, traces, shipped, *lanes])
            ours.pop_all()
        self._life, *ends = (end for end, _ in pairs)
        self.lanes = [Lane(end) for end in ends]
        with contextlib.suppress(PeerGone):  # it has died already: its first request will raise
            self.lanes[0].send(setup)

    @property
    def pid(self) -> int:
        """Its process id."""
        return self._process.pid

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
        for lane in self.lanes:
            lane.shut_down()

    def end(self, grace_secs: float) -> int:
        """End it, by force after `grace_secs`. Returns its exit code, or minus the signal."""
        if self._process.returncode is None and grace_secs:
            # Not `Popen.wait`, which asks again and again.
            poller = select.poll()
            poller.register(self._life, select.POLLIN)
            poller.poll(grace_secs * 1e3)
        self._process.kill()
        return self._process.wait()

    def close(self) -> None:
        """Close everything of a process that has ended, or in a fork of this one. No thread may use its lanes."""
        self._life.close()
        for lane in self.lanes:
            lane.close()
        if self._traces >= 0:
            os.close(self._traces)
        self._traces = -1

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


def _started(descriptors: Sequence[int]) -> subprocess.Popen[bytes]:
    """Start a process that inherits these descriptors.

    It is not a fork, which would copy locks of TensorFlow without its threads. Nor is it `multiprocessing`'s way to
    spawn: that runs the main program once more.
    """
    program = (
        f"import sys; sys.path[:] = {list(map(str, sys.path))!r}; "
        f"from staging_tf1.workers.worker import main; main{tuple(descriptors)}"
    )
    # The process inherits the mask. A Ctrl-C is for the training process, from the first moment on.
    before = signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGINT, trace_signal()])
    try:
        return subprocess.Popen(
            [sys.executable, *["-O"] * sys.flags.optimize, "-c", program],
            stdin=subprocess.DEVNULL,
            stdout=_inherited(1, sys.__stdout__),
            stderr=_inherited(2, sys.__stderr__),
            env={**_ENVIRONMENT, **os.environ, **_NO_GPU},
            pass_fds=descriptors,
        )
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def _inherited(descriptor: int, stream: Any) -> int | None:
    """Return what makes a new process have a standard stream of this process, or none if it is closed here."""
    with contextlib.suppress(OSError):
        if stream is not None and os.get_inheritable(descriptor):
            return None
    return subprocess.DEVNULL


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


_awaited: dict[int | None, _Awaited] = {}


@contextlib.contextmanager
def waiting_for(awaited: _Awaited) -> Iterator[None]:
    """Note, while the block runs, that this thread waits for one process, or for the start of all."""
    _awaited[threading.get_ident()] = awaited
    try:
        yield
    finally:
        _awaited.pop(threading.get_ident(), None)


def starting_for(ident: int | None) -> str:
    """Return what a thread waits for that is still starting, for messages; empty if there is nothing."""
    awaited = _awaited.get(ident)
    return "" if awaited is None else awaited.starting


def url_for(ident: int | None) -> str:
    """Return the URL that the worker process reads for which a thread waits; "" for none."""
    awaited = _awaited.get(ident)
    return "" if awaited is None else awaited.url


def frames_for(ident: int | None) -> list[Frame] | None:
    """Return the stack of the process that a thread waits for, the innermost line first; None if it waits for none."""
    awaited = _awaited.get(ident)
    return None if awaited is None else frames_in(awaited.stack())


def frames_in(text: str) -> list[Frame]:
    r"""Return the frames in the text that faulthandler writes.

    >>> frames_in('Stack (most recent call first):\n  File "a.py", line 3 in read\n')
    [Frame(filename='a.py', line=3, function='read')]
    """
    return [Frame(name, int(line), function) for name, line, function in _LINE.findall(text)]
