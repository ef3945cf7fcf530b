"""Starts Python programs in child processes that need not import TensorFlow: forks of `fork_server.py`.

For tests of what a program does once it runs. Tests of the start itself (imports, variables that TensorFlow reads when
it is imported, `staging-tf1 run`), and of text that Python writes about the main program, use `run_python`.
"""

from __future__ import annotations

import fcntl
import json
import os
import select
import signal
import socket
import subprocess
import sys
import tempfile
import threading
from collections.abc import Mapping
from contextlib import ExitStack, suppress
from pathlib import Path
from types import TracebackType
from typing import IO, Any

import staging_tf1

_HOME = str(Path(staging_tf1.__file__).parent.parent)
_SERVER = Path(__file__).with_name("fork_server.py")
# Without oneDNN, whose kernels round differently, results are the same on every machine.
QUIET = {"TF_CPP_MIN_LOG_LEVEL": "3", "TF_ENABLE_ONEDNN_OPTS": "0", "CUDA_VISIBLE_DEVICES": "-1"}


class ForkServer:
    """A connection to the process that forks, which all processes of pytest-xdist share.

    The server starts when one of them starts the first program, and ends when all have closed their connections.
    """

    def __init__(
        self,
        address: Path,
        cwd: Path,
        *launcher: str,
        environment: Mapping[str, str] = QUIET,
        whole_ends: bool = False,
    ) -> None:
        """Programs run in `cwd`, unless they ask for another folder.

        `address` is a file that says where the server is. The server runs as `python LAUNCHER... fork_server.py`, with
        `environment` added to its own. With `whole_ends`, all programs end as with `start(whole_end=True)`.
        """
        self._address = address
        self._cwd = cwd
        self._launcher = launcher
        self._added = environment
        self._whole_ends = whole_ends
        self._environment: dict[str, str] = {}
        self._requests: socket.socket | None = None
        self._lock = threading.Lock()

    def start(
        self,
        *arguments: object,
        env: dict[str, str] | None = None,
        cwd: Path | None = None,
        stdin: int | IO[Any] = subprocess.DEVNULL,
        stdout: int | IO[Any] = subprocess.PIPE,
        stderr: int | IO[Any] = subprocess.PIPE,
        start_new_session: bool = False,
        whole_end: bool | None = None,
    ) -> Program:
        """Start `python ARGUMENTS`. The keyword arguments are those of `subprocess.Popen`; `env` is added.

        With `whole_end`, Python frees all objects when the program ends; see `QuickEnd` in `fork_server.py`. None is
        what the server was made with.
        """
        self.connect()
        wanted = {**os.environ, "PYTHONPATH": _python_path(), **(env or {})}
        given = self._environment
        request = {
            "words": [str(argument) for argument in arguments],
            # Only what differs: the launcher may have set variables that the program and its children need.
            "added": {name: value for name, value in wanted.items() if given.get(name) != value},
            "removed": [name for name in given if name not in wanted],
            "cwd": str(cwd or self._cwd),
            "new_session": start_new_session,
            "whole_end": self._whole_ends if whole_end is None else whole_end,
        }
        pairs = [_stream(given, number) for number, given in enumerate((stdin, stdout, stderr))]
        theirs, ours = zip(*pairs, strict=True)
        try:
            return Program(self, self.ask(request, list(theirs)), ours)
        finally:
            for stream in theirs:
                os.close(stream)

    def run(
        self, *arguments: object, input: str = "", timeout: float = 500, **options: Any
    ) -> subprocess.CompletedProcess[str]:
        """Run `python ARGUMENTS` to its end. `options` are those of `start`, apart from the streams."""
        with ExitStack() as files:
            # No pipes, which something that the program leaves running could keep open.
            streams = [files.enter_context(tempfile.TemporaryFile("w+")) for _ in range(3)]
            stdin, stdout, stderr = streams
            stdin.write(input)
            stdin.seek(0)
            with self.start(*arguments, stdin=stdin, stdout=stdout, stderr=stderr, **options) as program:
                code = program.wait(timeout)
            stdout.seek(0)
            stderr.seek(0)
            return subprocess.CompletedProcess([*arguments], code, stdout.read(), stderr.read())

    def ask(self, request: dict[str, Any], streams: list[int]) -> int:
        """Send a request to the server and return its answer."""
        assert self._requests is not None
        with self._lock:
            socket.send_fds(self._requests, [json.dumps(request).encode()], streams)
            answer = self._requests.recv(100)
        assert answer, "the fork server is gone"
        number: int = json.loads(answer)
        return number

    def connect(self) -> None:
        """Connect to the server. Start it if nobody has, or if it has ended with those who had."""
        with self._lock:
            if self._requests is not None:
                return
            with self._address.open("a+", encoding="utf-8") as file:
                fcntl.flock(file, fcntl.LOCK_EX)
                file.seek(0)
                text = file.read()
                if text:
                    name, self._environment = json.loads(text)
                    self._requests = _connected(name)
                if self._requests is None:
                    self._environment = {**os.environ, "PYTHONPATH": _python_path(), **self._added}
                    name = self._start_server()
                    file.truncate(0)
                    file.write(json.dumps([name, self._environment]))
                    file.flush()
                    self._requests = _connected(name)
            assert self._requests is not None, "the fork server did not start"

    def _start_server(self) -> str:
        """Start the server and return the name of the socket on which it listens."""
        with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as listener:
            listener.bind("")  # Linux chooses a name
            listener.listen()
            listener.set_inheritable(True)
            # Not by subprocess, which wants its processes to be waited for: others may use the server longer than we.
            os.posix_spawn(
                sys.executable,
                [sys.executable, *self._launcher, str(_SERVER), str(listener.fileno())],
                self._environment,
                file_actions=[(os.POSIX_SPAWN_OPEN, 0, os.devnull, os.O_RDONLY, 0)],
            )
            name: bytes = listener.getsockname()
        return name.decode("ascii")

    def close(self) -> None:
        """Close the connection. The programs must have ended."""
        if self._requests is not None:
            self._requests.close()
            self._requests = None


class Program:
    """A program that runs; used like a `subprocess.Popen[str]`. Leaving the block waits for its end."""

    def __init__(self, server: ForkServer, pid: int, streams: tuple[IO[str] | None, ...]) -> None:
        self._server = server
        self.pid = pid
        # Becomes readable when the process ends. The server reaps it when it is asked to, so the pid stays its own.
        self._end = os.pidfd_open(pid)
        self.stdin, self.stdout, self.stderr = streams
        self.returncode: int | None = None

    def wait(self, timeout: float | None = None) -> int:
        """Return the exit code, as `subprocess.Popen.wait` does."""
        if self.returncode is None:
            # Not select.select: a test process may have more than 1,024 descriptors open.
            ends = select.poll()
            ends.register(self._end, select.POLLIN)
            if not ends.poll(None if timeout is None else 1000 * timeout):
                raise subprocess.TimeoutExpired(f"program {self.pid}", timeout or 0.0)
            self.returncode = self._server.ask({"pid": self.pid}, [])
            os.close(self._end)
        return self.returncode

    def poll(self) -> int | None:
        """Return the exit code, or None as long as the program runs."""
        with suppress(subprocess.TimeoutExpired):
            return self.wait(0)
        return None

    def send_signal(self, number: int) -> None:
        """Send a signal, unless the program has ended."""
        if self.returncode is None:
            signal.pidfd_send_signal(self._end, number)

    def kill(self) -> None:
        """Kill it, unless it has ended."""
        self.send_signal(signal.SIGKILL)

    def __enter__(self) -> Program:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if kind is not None:
            self.kill()
        for stream in (self.stdin, self.stdout, self.stderr):
            if stream is not None:
                stream.close()
        self.wait()


def _connected(name: str) -> socket.socket | None:
    """Return a connection to the server with this name, once it is ready; None if it has ended."""
    requests = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    try:
        requests.connect(name)
        if requests.recv(100):
            return requests
    except ConnectionError:
        pass
    requests.close()
    return None


def _python_path() -> str:
    return os.pathsep.join(filter(None, [_HOME, os.environ.get("PYTHONPATH", "")]))


def _stream(given: int | IO[Any], number: int) -> tuple[int, IO[str] | None]:
    """Return the program's end of a stream, and for a pipe our own. `number` is 0 for stdin."""
    if given == subprocess.DEVNULL:
        return os.open(os.devnull, os.O_RDWR), None
    if given == subprocess.PIPE:
        reader, writer = os.pipe()
        return (reader, open(writer, "w")) if number == 0 else (writer, open(reader))
    return os.dup(given if isinstance(given, int) else given.fileno()), None
