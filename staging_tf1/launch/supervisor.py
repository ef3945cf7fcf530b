"""Starts the tasks, prints their output, restarts those that fail, and ends all of them."""

from __future__ import annotations

import contextlib
import errno
import functools
import os
import selectors
import signal
import socket
import time
from collections.abc import Callable, Iterable, Sequence
from types import TracebackType
from typing import Any, NamedTuple

from staging_tf1.launch.output import Printer, make_tags, wants_colour
from staging_tf1.launch.process import Process, Stream, describe_exit, exit_code, name_of
from staging_tf1.launch.tasks import TaskCommand

_STDOUT, _STDERR = 1, 2
# After Ctrl-C, at most this long after the last worker, the servers get SIGKILL: `tf.train.Server.join` ignores SIGINT.
_SERVER_SECS = 1.5
# How long the tasks are waited for after SIGKILL, which a process that waits for a broken disk or device ignores.
_GIVE_UP_SECS = 0.4
# The signals that end a run.
_ENDING = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


class Signals:
    """A context manager that collects SIGCHLD and the signals that end a run. For the main thread only.

    It delivers them through a socket, so that one loop can wait for them and for output.
    """

    def __enter__(self) -> Signals:
        """Replace the handlers of these signals and the wake-up descriptor."""
        self._reader, self._writer = socket.socketpair()
        self._reader.setblocking(False)
        self._writer.setblocking(False)
        self._wakeup_before = signal.set_wakeup_fd(self._writer.fileno(), warn_on_full_buffer=False)
        self._handlers_before: dict[int, Any] = {}
        # If SIGCHLD is ignored, the system discards the status of children. The others may be ignored on purpose: by
        # nohup, or by a shell for the programs in its background.
        for number in (signal.SIGCHLD, *(one for one in _ENDING if signal.getsignal(one) is not signal.SIG_IGN)):
            # Only signals with a handler in Python are written to the wake-up descriptor.
            self._handlers_before[number] = signal.signal(number, lambda number, frame: None)
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        """Restore them."""
        for number, handler in self._handlers_before.items():
            if handler is not None:  # None is a handler in C, which Python cannot set
                signal.signal(number, handler)
        signal.set_wakeup_fd(self._wakeup_before)
        self._reader.close()
        self._writer.close()

    def fileno(self) -> int:
        """Return the descriptor to wait for."""
        return self._reader.fileno()

    def take(self) -> list[int]:
        """Return the numbers of the signals that have arrived since the last call."""
        with contextlib.suppress(BlockingIOError):
            return list(self._reader.recv(4096))
        return []


class _Alarm(NamedTuple):
    at: float
    action: Callable[[], None]


class Supervisor:
    """Runs tasks once, in one thread, which waits for output, signals and an alarm at once.

    A run has three phases: all tasks run; the workers have finished and the servers have `grace_secs` left; the tasks
    are being ended. Exit codes of tasks matter only in the first two.
    """

    def __init__(
        self, prog: str, tasks: Sequence[TaskCommand], *, restarts: int, grace_secs: float, signals: Signals
    ) -> None:
        self._prog = prog
        self._tasks = tasks
        self._restarts = restarts
        self._restarts_left = dict.fromkeys(tasks, restarts)
        self._grace_secs = grace_secs
        self._signals = signals
        self._printer = Printer()
        names = [task.name for task in tasks]
        self._tags = {target: make_tags(names, wants_colour(target, os.environ)) for target in (_STDOUT, _STDERR)}
        self._processes: dict[TaskCommand, Process] = {}
        self._alarm: _Alarm | None = None
        self._workers_finished = self._ending = self._interrupted = self._gave_up = False
        self._code = 0
        # What the servers get when the workers have ended.
        self._servers_get: int | None = None

    def run(self) -> int:
        """Run the tasks to their end and return the exit code of the first failure, or 0."""
        try:
            for task in self._tasks:
                if not self._ending:
                    self._start(task)
            while (self._processes or self._printer.waiting_for is not None) and not self._gave_up:
                self._wait()
        finally:
            for process in self._processes.values():
                process.signal(signal.SIGKILL)
                process.close()
        return self._code

    def _wait(self) -> None:
        """Wait until something happens, and handle it."""
        with selectors.PollSelector() as selector:  # epoll refuses files, which stdout may be
            selector.register(self._signals, selectors.EVENT_READ, self._handle_signals)
            if (descriptor := self._printer.waiting_for) is not None:
                selector.register(descriptor, selectors.EVENT_WRITE, self._print)
            if not self._printer.full:
                for task, process in self._processes.items():
                    for stream in process.streams:
                        if not stream.ended:
                            read = functools.partial(self._read, task, stream)
                            selector.register(stream.pipe, selectors.EVENT_READ, read)
            wait_secs = None if self._alarm is None else max(0.0, self._alarm.at - time.monotonic())
            for key, _ in selector.select(wait_secs):
                key.data()
        if self._alarm is not None and time.monotonic() >= self._alarm.at:
            alarm, self._alarm = self._alarm, None
            alarm.action()

    # Starting and restarting.

    def _start(self, task: TaskCommand) -> None:
        try:
            self._processes[task] = Process(task)
        except OSError as error:
            self._fail(f"{task.name} cannot be started: {error.strerror}", 1)

    def _handle_signals(self) -> None:
        numbers = self._signals.take()
        for task, process in list(self._processes.items()):
            if process.has_exited():
                status = process.reap()
                for stream in process.streams:
                    self._print_lines(task, stream.target, stream.read_rest())
                process.close()
                del self._processes[task]
                self._handle_exit(task, status)
        for number in numbers:
            if number in _ENDING:
                self._interrupt(number)

    def _handle_exit(self, task: TaskCommand, status: int) -> None:
        if self._ending:
            self._signal_servers()
            return
        if status != 0:
            self._handle_failure(task, status)
        if not any(task.trains for task in self._processes) and not self._workers_finished and not self._ending:
            self._workers_finished = True
            self._set_alarm(self._grace_secs, self._end_servers)

    def _handle_failure(self, task: TaskCommand, status: int) -> None:
        said = f"{task.name} {describe_exit(status)}"
        left = self._restarts_left[task]
        if not left:
            self._fail(said, exit_code(status))
        elif self._workers_finished:
            self._say(f"{said}; not restarting it, because all workers have finished")
        else:
            self._restarts_left[task] -= 1
            self._say(f"{said}; restarting it ({self._restarts - left + 1} of {self._restarts})")
            self._start(task)

    # Ending.

    def _fail(self, reason: str, code: int) -> None:
        self._say(f"{reason}; ending the other tasks" if self._processes else reason)
        self._code = code
        self._end(signal.SIGTERM)

    def _end_servers(self) -> None:
        if not self._processes:
            return  # only lines are left to be printed
        self._say(f"ending {self._running()}: still running {self._grace_secs:g} s after all workers had finished")
        self._end(signal.SIGTERM)

    def _interrupt(self, number: int) -> None:
        if not self._interrupted:
            self._interrupted = True
            self._code = exit_code(-number)
        if not self._ending:
            again = "; Ctrl-C again kills them" if number == signal.SIGINT else ""
            self._say(f"ending all tasks, because of {name_of(number)}{again}")
            self._end(signal.SIGINT if number == signal.SIGINT else signal.SIGTERM)
        elif number != signal.SIGHUP:  # a terminal that closes may send two
            self._kill(f"when {name_of(number)} came")
        # The rest of the output may wait for a reader forever.
        self._gave_up = not self._processes

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
        self._set_alarm(secs, lambda: self._kill(f"{secs:g} s after {name_of(number)}"))

    def _kill(self, when: str) -> None:
        if self._processes:
            self._say(f"killing {self._running()}: still running {when}")
        for process in self._processes.values():
            process.signal(signal.SIGKILL)
        if self._interrupted:
            self._set_alarm(_GIVE_UP_SECS if self._processes else 0.0, self._give_up)

    def _give_up(self) -> None:
        if self._processes:
            self._say(f"not waiting for {self._running()} to end after SIGKILL")
            self._print()
        self._gave_up = True

    def _set_alarm(self, secs: float, action: Callable[[], None]) -> None:
        self._alarm = _Alarm(time.monotonic() + secs, action)

    def _running(self) -> str:
        return ", ".join(task.name for task in self._processes)

    # Printing.

    def _read(self, task: TaskCommand, stream: Stream) -> None:
        self._print_lines(task, stream.target, stream.read())

    def _print_lines(self, task: TaskCommand, target: int, lines: Iterable[bytes]) -> None:
        for line in lines:
            self._printer.add(target, self._tags[target][task.name] + line + b"\n")

    def _say(self, message: str) -> None:
        self._printer.add(_STDERR, f"{self._prog}: {message}\n".encode(errors="surrogateescape"))

    def _print(self) -> None:
        try:
            self._printer.write()
        except OSError as error:
            if self._ending:
                return
            # Like a program that SIGPIPE ends, such as `cat file | head`.
            if error.errno == errno.EPIPE:
                self._code = exit_code(-signal.SIGPIPE)
                self._end(signal.SIGTERM)
            else:
                self._fail(f"the output of the tasks cannot be written: {error.strerror}", 1)


def supervise(prog: str, tasks: Sequence[TaskCommand], *, restarts: int, grace_secs: float) -> int:
    """Run the tasks and return the exit code: that of the first failure, 128 + signal if interrupted, or 0."""
    with Signals() as signals:
        return Supervisor(prog, tasks, restarts=restarts, grace_secs=grace_secs, signals=signals).run()
