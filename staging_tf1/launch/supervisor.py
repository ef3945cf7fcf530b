"""Starts the tasks, prints their output line by line, restarts those that fail, and ends all of them.

`honcho` was the alternative. It ends all processes as soon as one has ended, restarts none, sends SIGTERM where Ctrl-C
must arrive as SIGINT and reach the servers last, joins stdout and stderr, and waits while nobody reads its output.
"""

from __future__ import annotations

import asyncio
import contextlib
import errno
import os
import select
import selectors
import signal
import socket
import subprocess
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from typing import IO, Any

from staging_tf1.launch.tasks import Task
from staging_tf1.signals import die_with

_STDOUT, _STDERR = 1, 2
# A longer line is printed in pieces, so a line without an end takes bounded memory.
MOST_IN_LINE = 64 * 1024
# At most about this many bytes wait to be printed; the rest stays in the pipes. And the most that is read from the pipe
# of a dead task: a process that has left the task's group may write to it forever.
_MOST = 1024 * 1024
# ANSI colours: cyan, yellow, green, magenta, blue and their bright variants. Red would look like an error.
_COLOURS = (36, 33, 32, 35, 34, 96, 93, 92, 95, 94)
# After Ctrl-C, at most this long after the last worker, the servers get SIGKILL: `tf.train.Server.join` ignores SIGINT.
_SERVER_SECS = 1.5
# How long the tasks are waited for after SIGKILL, which a process that waits for a broken disk or device ignores.
_GIVE_UP_SECS = 0.4
# The exit code of shells for programs that cannot be executed.
_NOT_EXECUTED = 126
# Most real-time signals have none.
_NAMES = {int(each): each.name for each in signal.Signals}


class LineSplitter:
    r"""Splits a stream of bytes into lines, without their ends. The bytes need not be text in any encoding.

    A progress bar begins or ends each update with a carriage return, so that counts as an end of line, too.

    >>> lines = LineSplitter()
    >>> lines.feed(b"one\ntw"), lines.feed(b"o\r\n\rthree\rfour"), lines.feed(b"")
    ([b'one'], [b'two', b'three'], [b'four'])
    """

    def __init__(self) -> None:
        self._rest = b""

    def feed(self, data: bytes) -> list[bytes]:
        """Return the lines that `data` completes, and pieces of one that is too long. Empty data end the stream."""
        lines = (self._rest + data).splitlines(keepends=True)
        # A carriage return at the end may be the first half of "\r\n".
        rest = lines.pop() if data and lines and not lines[-1].endswith(b"\n") else b""
        # A carriage return at the start of an update ends no line.
        complete = [piece for line in lines if line != b"\r" for piece in _pieces(line.rstrip(b"\r\n"))]
        *pieces, self._rest = _pieces(rest)
        return complete + pieces


def _pieces(line: bytes) -> list[bytes]:
    return [line[at : at + MOST_IN_LINE] for at in range(0, len(line), MOST_IN_LINE)] or [b""]


def make_tags(names: Sequence[str], colour: bool) -> dict[str, bytes]:
    """Return what is printed in front of each task's lines, by the task's name. All tags have the same width.

    >>> make_tags(["chief 0", "ps 0"], colour=False)
    {'chief 0': b'[chief 0] ', 'ps 0': b'[ps 0]    '}
    """
    width = max(map(len, names))
    tags = {}
    for number, name in enumerate(names):
        shown = f"\x1b[{_COLOURS[number % len(_COLOURS)]}m[{name}]\x1b[0m" if colour else f"[{name}]"
        tags[name] = (shown + " " * (width - len(name) + 1)).encode()
    return tags


def wants_colour(descriptor: int, environment: Mapping[str, str]) -> bool:
    """Whether `descriptor` is a terminal and the environment does not turn colours off."""
    return os.isatty(descriptor) and not environment.get("NO_COLOR") and environment.get("TERM") != "dumb"


class Printer:
    """A queue of whole lines for two descriptors, which may be the same terminal, so parts of lines must not mix.

    A plain write waits while a pager or a stopped terminal reads nothing, and Python resumes it after a signal, so
    Ctrl-C would have no effect. A non-blocking stdout would be non-blocking for every process on the terminal. So bytes
    are written only when the system says that they fit.
    """

    def __init__(self) -> None:
        self._queue: deque[tuple[int, bytearray]] = deque()
        self._size = 0

    @property
    def waiting_for(self) -> int | None:
        """Return the descriptor that the next bytes go to; None if nothing is to be written."""
        return self._queue[0][0] if self._queue else None

    @property
    def full(self) -> bool:
        """Whether the reader is too slow, so that nothing more should be added."""
        return self._size > _MOST

    def add(self, descriptor: int, line: bytes) -> None:
        """Append a line, which ends with a newline."""
        if not self._queue or self._queue[-1][0] != descriptor:
            self._queue.append((descriptor, bytearray()))
        self._queue[-1][1].extend(line)
        self._size += len(line)

    def write(self) -> None:
        """Write what `waiting_for`, which has room, takes at once.

        Raises:
            OSError: the reader is gone or the disk is full. What should have been written is dropped.
        """
        descriptor, text = self._queue[0]
        written = len(text)
        try:
            # A pipe that has room takes this many bytes at once.
            written = os.write(descriptor, text[: select.PIPE_BUF])
        except BlockingIOError:
            written = 0  # another process has made the descriptor non-blocking and filled it just then
        finally:
            del text[:written]
            self._size -= written
            if not text:
                self._queue.popleft()


class _Stream(LineSplitter):
    """A pipe from a task. `target` is the descriptor of this process on which its lines are printed, after `tag`."""

    def __init__(self, pipe: IO[bytes], target: int, tag: bytes) -> None:
        super().__init__()
        os.set_blocking(pipe.fileno(), False)
        self.pipe, self.target, self.tag = pipe, target, tag


class _Process:
    """A started task, with an empty stdin.

    It leads a session of its own, so a Ctrl-C in the terminal does not reach it. One signal reaches it and the
    processes that it has started, except those with sessions of their own.

    Raises:
        OSError: the system cannot start another process, or cannot execute the command.
    """

    def __init__(self, task: Task, tags: Mapping[int, Mapping[str, bytes]]) -> None:
        # If this process is killed, the kernel ends the task, but not what the task has started.
        self._life, life = socket.socketpair()
        with life:
            self._child = subprocess.Popen(
                task.command,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                bufsize=0,
                env={**os.environ, **task.environment},
                start_new_session=True,
                # Python code after a fork can deadlock if the parent has threads. This one has none.
                preexec_fn=lambda: die_with(life.fileno()),
                pass_fds=[life.fileno()],
            )
        pipes = {_STDOUT: self._child.stdout, _STDERR: self._child.stderr}
        self.streams = [_Stream(pipe, target, tags[target][task.name]) for target, pipe in pipes.items() if pipe]

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
        self._life.close()
        return self._child.wait()


class _Supervisor:
    """Runs tasks once. One loop waits for output, signals and an alarm.

    A run has three phases: all tasks run; the workers have finished and the servers have `grace_secs` left; the tasks
    are being ended. Exit codes of tasks matter only in the first two.
    """

    def __init__(self, loop: asyncio.AbstractEventLoop, prog: str, restarts: int, grace_secs: float) -> None:
        self._loop, self._prog, self._restarts, self._grace_secs = loop, prog, restarts, grace_secs
        self._restarted: dict[Task, int] = {}
        self._processes: dict[Task, _Process] = {}
        self._printer = Printer()
        # Not read while too much waits to be printed.
        self._paused: list[_Stream] = []
        self._alarm: asyncio.TimerHandle | None = None
        self._workers_finished = self._ending = self._interrupted = False
        self._code = 0
        self._bug: BaseException | None = None
        # What the servers get when the workers have ended.
        self._servers_get: int | None = None

    def run(self, tasks: Sequence[Task]) -> int:
        """Run the tasks to their end and return the exit code of the first failure, or 0."""
        names = [task.name for task in tasks]
        self._tags = {target: make_tags(names, wants_colour(target, os.environ)) for target in (_STDOUT, _STDERR)}
        self._loop.set_exception_handler(self._stop_for_bug)
        self._loop.add_signal_handler(signal.SIGCHLD, self._reap)
        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
            # They may be ignored on purpose: by nohup, or by a shell for the programs in its background.
            if signal.getsignal(number) is not signal.SIG_IGN:
                self._loop.add_signal_handler(number, self._interrupt, number)
        try:
            for task in tasks:
                if not self._ending:
                    self._start(task)
            self._loop.run_forever()
        finally:
            for process in self._processes.values():
                process.signal(signal.SIGKILL)
        if self._bug is not None:
            raise self._bug
        return self._code

    def _stop_for_bug(self, loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
        # The loop would only log it, and perhaps wait forever.
        self._bug = context.get("exception") or RuntimeError(context["message"])
        loop.stop()

    def _start(self, task: Task) -> None:
        try:
            self._processes[task] = process = _Process(task, self._tags)
        except OSError as error:
            self._fail(f"{task.name} cannot be started: {error.strerror}", _NOT_EXECUTED)
            return
        for stream in process.streams:
            self._loop.add_reader(stream.pipe, self._read, stream)

    # Reading and printing.

    def _read(self, stream: _Stream) -> int:
        """Print the lines that have arrived, and return how many bytes have."""
        data = None if stream.pipe.closed else stream.pipe.read(MOST_IN_LINE)
        if data is None:
            return 0
        if not data or self._printer.full:
            self._loop.remove_reader(stream.pipe)
        if not data:
            stream.pipe.close()
        elif self._printer.full:
            self._paused.append(stream)
        for line in stream.feed(data):
            self._print(stream.target, stream.tag + line)
        return len(data)

    def _say(self, message: str) -> None:
        self._print(_STDERR, f"{self._prog}: {message}".encode(errors="surrogateescape"))

    def _print(self, target: int, line: bytes) -> None:
        self._printer.add(target, line + b"\n")
        if self._printer.waiting_for is not None:
            self._loop.add_writer(self._printer.waiting_for, self._write, self._printer.waiting_for)

    def _write(self, target: int) -> None:
        try:
            self._printer.write()
        except OSError as error:
            # EPIPE: like a program that SIGPIPE ends, such as `cat file | head`.
            if not self._ending and error.errno == errno.EPIPE:
                self._code = 128 + signal.SIGPIPE
                self._end(signal.SIGTERM)
            elif not self._ending:
                self._fail(f"the output of the tasks cannot be written: {error.strerror}", 1)
        following = self._printer.waiting_for
        if following != target:
            self._loop.remove_writer(target)
        if following is not None:
            self._loop.add_writer(following, self._write, following)
        while self._paused and not self._printer.full:
            stream = self._paused.pop()
            if not stream.pipe.closed:
                self._loop.add_reader(stream.pipe, self._read, stream)
        self._stop_if_done()

    # Failures and restarts.

    def _reap(self) -> None:
        for task, process in list(self._processes.items()):
            if process.has_exited():
                status = process.reap()
                for stream in process.streams:
                    left = _MOST
                    while left > 0 and (count := self._read(stream)):
                        left -= count
                    if not stream.pipe.closed:
                        self._loop.remove_reader(stream.pipe)
                        stream.pipe.close()
                        for line in stream.feed(b""):
                            self._print(stream.target, stream.tag + line)
                del self._processes[task]
                self._handle_exit(task, status)
        self._stop_if_done()

    def _handle_exit(self, task: Task, status: int) -> None:
        if self._ending:
            self._signal_servers()
            return
        if status != 0:
            signal_name = _NAMES.get(-status, f"signal {-status}")
            outcome = f"{task.name} " + (f"exited with code {status}" if status > 0 else f"was ended by {signal_name}")
            count = self._restarted.get(task, 0) + 1
            if count > self._restarts:
                self._fail(outcome, status if status > 0 else 128 - status)
            elif self._workers_finished:
                self._say(f"{outcome}; not restarting it, because all workers have finished")
            else:
                self._restarted[task] = count
                self._say(f"{outcome}; restarting it ({count} of {self._restarts})")
                self._start(task)
        if not any(task.trains for task in self._processes) and not self._workers_finished and not self._ending:
            self._workers_finished = True
            self._set_alarm(self._grace_secs, self._end_servers)

    def _fail(self, reason: str, code: int) -> None:
        self._say(f"{reason}; ending the other tasks" if self._processes else reason)
        self._code = code
        self._end(signal.SIGTERM)

    # Ending.

    def _end_servers(self) -> None:
        if self._processes:  # otherwise only lines are left to be printed
            self._say(f"ending {self._running()}: still running {self._grace_secs:g} s after all workers had finished")
            self._end(signal.SIGTERM)

    def _interrupt(self, number: int) -> None:
        if not self._interrupted:
            self._interrupted, self._code = True, 128 + number
        if not self._ending:
            again = "; Ctrl-C again kills them" if number == signal.SIGINT else ""
            self._say(f"ending all tasks, because of {_NAMES[number]}{again}")
            self._end(signal.SIGINT if number == signal.SIGINT else signal.SIGTERM)
        elif number != signal.SIGHUP:  # a terminal that closes may send two
            self._kill(f"when {_NAMES[number]} came")
        if not self._processes:
            self._loop.stop()  # the rest of the output may wait for a reader forever

    def _end(self, number: int) -> None:
        """Send a signal to all tasks, and SIGKILL after the grace.

        The servers get it when the workers have ended, because the chief may save their variables first.
        """
        self._ending, self._servers_get = True, number
        for task, process in self._processes.items():
            if task.trains:
                process.signal(number)
        self._kill_after(self._grace_secs, number)
        self._signal_servers()

    def _signal_servers(self) -> None:
        if self._servers_get is None or any(task.trains for task in self._processes):
            return
        for process in self._processes.values():
            process.signal(self._servers_get)
        if self._interrupted:
            self._kill_after(min(self._grace_secs, _SERVER_SECS), self._servers_get)
        self._servers_get = None

    def _kill_after(self, secs: float, number: int) -> None:
        self._set_alarm(secs, lambda: self._kill(f"{secs:g} s after {_NAMES[number]}"))

    def _kill(self, when: str) -> None:
        if self._processes:
            self._say(f"killing {self._running()}: still running {when}")
        for process in self._processes.values():
            process.signal(signal.SIGKILL)
        if self._interrupted:
            self._set_alarm(_GIVE_UP_SECS if self._processes else 0.0, self._loop.stop)

    def _set_alarm(self, secs: float, action: Callable[[], None]) -> None:
        if self._alarm is not None:
            self._alarm.cancel()
        self._alarm = self._loop.call_later(secs, action)

    def _stop_if_done(self) -> None:
        if not self._processes and self._printer.waiting_for is None:
            self._loop.stop()

    def _running(self) -> str:
        return ", ".join(task.name for task in self._processes)


def supervise(prog: str, tasks: Sequence[Task], *, restarts: int, grace_secs: float) -> int:
    """Run the tasks and return the exit code: that of the first failure, 128 + signal if interrupted, or 0."""
    # epoll refuses files, which stdout may be.
    with contextlib.closing(asyncio.SelectorEventLoop(selectors.PollSelector())) as loop:
        return _Supervisor(loop, prog, restarts, grace_secs).run(tasks)
