"""Signals: lets Ctrl-C, and SIGTERM if the program handles it, reach a step that waits for input.

SIGTERM can raise in the main thread, as Ctrl-C does. `die_with` ends a process with the one that started it.

Python handles a signal between two of its own instructions, and a `Session.run` that waits executes none. But C code
writes to the wake-up descriptor at once, so a thread that reads it can wake the step. A process has only one such
descriptor, which all sessions share.
"""

from __future__ import annotations

import collections
import contextlib
import fcntl
import functools
import os
import queue
import re
import select
import signal
import sys
import threading
from collections.abc import Callable, Iterator
from typing import Any, NoReturn

from absl import logging

from staging_tf1.background import Background
from staging_tf1.fork import disown_in_child

# No signals.
_END, _FLUSH = b"\0", b"\xff"
# Only detects hangs.
_FLUSH_SECS = 5.0
_NOBODY = -1
# SIGTERM arrives here only if the program handles it in Python. Otherwise it ends the process at once.
_ENDING = (signal.SIGINT, signal.SIGTERM)


def in_main_thread() -> bool:
    """Whether the caller is in the main thread, the only one that may set handlers of signals."""
    return threading.current_thread() is threading.main_thread()


def catch_sigterm() -> bool:
    """Let the next SIGTERM raise SystemExit in the main thread. A second one ends the process at once.

    Return False, and change nothing, if the program handles SIGTERM, or outside the main thread.
    """
    if not in_main_thread() or signal.getsignal(signal.SIGTERM) != signal.SIG_DFL:
        return False
    signal.signal(signal.SIGTERM, _exit_once)
    return True


def release_sigterm() -> None:
    """Undo `catch_sigterm`, unless the program has set a handler since. For the main thread."""
    if signal.getsignal(signal.SIGTERM) is _exit_once:
        signal.signal(signal.SIGTERM, signal.SIG_DFL)


def _exit_once(number: int, frame: Any) -> NoReturn:
    """Raise SystemExit as the handler of a signal, and remove this handler: a second one ends the process at once."""
    signal.signal(number, signal.SIG_DFL)
    raise SystemExit(128 + number)


def die_with(end: int) -> None:
    """Have the kernel kill this process when the other end of the socket `end` is closed, whatever runs here.

    It outlives `exec`, but not `fork`. On other systems than Linux, nothing happens. A thread that waits for the end of
    the other process would need the GIL, which a long call in C may hold. PR_SET_PDEATHSIG would kill this process as
    soon as the *thread* that started it ends.
    """
    if sys.platform != "linux":
        return
    fcntl.fcntl(end, fcntl.F_SETOWN, os.getpid())
    fcntl.fcntl(end, fcntl.F_SETSIG, signal.SIGKILL)
    fcntl.fcntl(end, fcntl.F_SETFL, fcntl.fcntl(end, fcntl.F_GETFL) | os.O_ASYNC)
    poller = select.poll()
    poller.register(end, select.POLLIN)
    if poller.poll(0):  # it was closed before that
        os.kill(os.getpid(), signal.SIGKILL)


_REPLACED = re.compile(r"REPLACED BY (KeyboardInterrupt|SystemExit: (\d+))")


def interruption(error: BaseException) -> BaseException | None:
    """Return the KeyboardInterrupt or SystemExit that TensorFlow has hidden in `error`; None if it is another error.

    It makes a RuntimeError of what a handler raises while it translates an error of its own.
    """
    replaced = _REPLACED.search(str(error)) if isinstance(error, RuntimeError) else None
    if replaced is None:
        return None
    return SystemExit(int(replaced[2])) if replaced[2] else KeyboardInterrupt()


def forget_replaced(interrupt: BaseException) -> None:
    """Drop what Python 3.12 notes on an interrupt: the error of TensorFlow's that it was making just then."""
    notes: list[str] = getattr(interrupt, "__notes__", [])
    notes[:] = [note for note in notes if not note.startswith("Normalization failed: ")]


class InterruptWatcher:
    """Calls `on_interrupt` in a thread as soon as SIGINT or SIGTERM arrives. Python's own handling stays as it is.

    Args:
      on_interrupt: called without arguments.
      catches_sigterm: whether SIGTERM, if nobody handles it, raises SystemExit in the main thread, as Ctrl-C raises
        KeyboardInterrupt. Otherwise it ends the process at once.
      interrupted_run: returns the run that a signal meets. A signal that meets none is left to Python. Without it,
        each signal counts, whatever it meets.

    Attributes:
      number: the number of the last signal.
      has_interrupted: whether a signal has arrived since `start`.
      is_watching: whether it was started and not stopped.
    """

    def __init__(
        self,
        on_interrupt: Callable[[], None],
        *,
        catches_sigterm: bool = False,
        interrupted_run: Callable[[], object | None] | None = None,
    ) -> None:
        self._on_interrupt = on_interrupt
        self._catches_sigterm = catches_sigterm
        self._interrupted_run = interrupted_run
        self.number = 0
        # Whether the handler of SIGTERM is to be removed.
        self._has_set_handler = False
        # The exception that a handler has raised and no step has seen yet, and the run that must raise it.
        self._owed: BaseException | None = None
        self._owed_by: object | None = None
        self.has_interrupted = False
        self.is_watching = False
        # Held while `on_interrupt` runs, so that it never runs after `stop` has returned.
        self._lock = threading.RLock()

    def start(self) -> None:
        """Start watching. Do nothing outside the main thread, or if Python handles neither of the signals."""
        if self._catches_sigterm and catch_sigterm():
            self._has_set_handler = True
        handled = any(callable(signal.getsignal(number)) for number in _ENDING)
        if not self.is_watching and handled and in_main_thread():
            self._owed, self.has_interrupted, self.is_watching = None, False, True
            _signals.add(self)

    def take_lost_interrupt(self, run: object | None = None) -> BaseException | None:
        """Return, once, a KeyboardInterrupt or SystemExit that Python dropped. Call it in the main thread.

        Python drops an exception that a handler raises within a `__del__`. The step then fails only because its feed
        threads have stopped, and must raise that exception instead. `run` is the run that has failed.
        """
        if self._owed is None or not in_main_thread():
            return None
        owed, self._owed = self._owed, None
        return owed if self._owed_by is None or self._owed_by is run else None

    def stop(self) -> None:
        """Stop watching. May be called from any thread, in any order of sessions, and twice."""
        if self.is_watching:
            _signals.flush()
        with self._lock:
            self._owed, self.is_watching = None, False
        if self._has_set_handler and in_main_thread():
            self._has_set_handler = False
            release_sigterm()
        _signals.remove(self)

    def arrived(self, number: int) -> None:
        """Record a signal and call `on_interrupt`."""
        with self._lock:
            run = None if self._interrupted_run is None else self._interrupted_run()
            if not self.is_watching or (self._interrupted_run is not None and run is None):
                return
            self.number, self.has_interrupted = number, True
            self._owed, self._owed_by = self._owed or raised_for(number), run
            try:
                self._on_interrupt()
            except Exception as error:
                # The other sessions must still be told.
                logging.error(
                    "could not stop the feeding of a session after a signal: %s: %s", type(error).__name__, error
                )


@contextlib.contextmanager
def ending_at_once() -> Iterator[None]:
    """A context in which Ctrl-C ends the program at once. It would wait for a run otherwise.

    At a prompt, and in a notebook, it still raises KeyboardInterrupt there.
    """
    handler = signal.getsignal(signal.SIGINT)
    if not in_main_thread() or handler is not signal.default_int_handler or at_prompt():
        yield
        return
    signal.signal(signal.SIGINT, signal.SIG_DFL)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, handler)


def at_prompt() -> bool:
    """Whether somebody types the program: an interrupt must not end the process."""
    return hasattr(sys, "ps1")


def raised_for(number: int) -> BaseException | None:
    """Return what the handler of a signal raises, or has raised; None if it is the program's own."""
    handler = signal.getsignal(number)
    if handler is signal.default_int_handler:
        return KeyboardInterrupt()
    # `_exit_once` has removed itself, if it has run.
    return SystemExit(128 + number) if handler in (_exit_once, signal.SIG_DFL) else None


class _Signals:
    """Owns the wake-up descriptor of the process while a session watches, and tells all sessions about each signal.

    Only the main thread can set the descriptor. If another thread closes the last session, the descriptor stays ours
    until the main thread starts or stops watching. The pipe is never closed: other code may have saved our descriptor
    and restore it at any time, and Python would then write to whatever file has that number.
    """

    def __init__(self) -> None:
        self._lock = threading.RLock()
        # Replaced, never modified, because the thread reads it without the lock.
        self._watchers: tuple[InterruptWatcher, ...] = ()
        self._pipe: tuple[int, int] | None = None
        self._is_set = False
        # The descriptor that was set before. It gets each byte, too, because an asyncio loop waits for it.
        self._before = _Descriptor(_NOBODY)
        self._thread: Background | None = None
        # One for each flush. No Event: the garbage collector may close another session where a flush waits for it.
        self._flushes: collections.deque[queue.SimpleQueue[None]] = collections.deque()
        disown_in_child(self)

    def add(self, watcher: InterruptWatcher) -> None:
        """Tell `watcher` about each signal from now on. Only for the main thread."""
        with self._lock:
            if self._thread is not None and self._thread.stopping.is_set:
                # A Ctrl-C interrupted the join of the thread.
                self._end_thread()
            if self._pipe is None:
                self._pipe = os.pipe()
                os.set_blocking(self._pipe[1], False)
            if self._thread is None:
                _drain(self._pipe[0])
            self._forget_left()
            self._watchers = (*self._watchers, watcher)
            self._set(self._pipe[1])
            if self._thread is None:
                self._thread = Background("staging:interrupt", functools.partial(self._watch, self._pipe[0]))
                self._thread.start()

    def remove(self, watcher: InterruptWatcher) -> None:
        """Stop telling `watcher`, which does not watch any more, about signals."""
        if self._in_own_thread():
            # The garbage collector may close a session there. It must not wait for the lock: its holder may wait for
            # the start or the end of the thread.
            return
        with self._lock:
            self._forget_left()
            if self._watchers:
                return
            if in_main_thread():
                self._put_back()
            if not (self._is_set and self._before.is_open()):
                # Otherwise the previous owner gets its bytes through us until the main thread restores the descriptor.
                self._end_thread()

    def _forget_left(self) -> None:
        # Again, because the garbage collector may close another session in between.
        while not all(watcher.is_watching for watcher in self._watchers):
            self._watchers = tuple(watcher for watcher in self._watchers if watcher.is_watching)

    def _in_own_thread(self) -> bool:
        # A thread that is starting is not yet `threading.current_thread()`.
        return self._thread is not None and self._thread.ident == threading.get_ident()

    def flush(self) -> None:
        """Wait until the watchers know of each signal that has arrived. Its exception may have been quicker."""
        if self._thread is None or self._pipe is None or not self._watchers or self._in_own_thread():
            return
        flushed: queue.SimpleQueue[None] = queue.SimpleQueue()
        self._flushes.append(flushed)
        with contextlib.suppress(BlockingIOError, queue.Empty):
            os.write(self._pipe[1], _FLUSH)
            flushed.get(timeout=_FLUSH_SECS)

    def disown(self) -> None:
        """In a child process: keeps the child's signals out of the pipe that it shares with the parent."""
        global _signals
        if self._pipe is not None:
            self._is_set = True
            self._put_back()
        # Another thread of the parent may have held the lock.
        _signals = _Signals()

    def _set(self, ours: int) -> None:
        present = signal.set_wakeup_fd(ours, warn_on_full_buffer=False)
        if present != ours:
            self._before = _Descriptor(present)
        self._is_set = True

    def _put_back(self) -> None:
        """Restore the previous descriptor, unless other code has set its own since."""
        if not self._is_set or self._pipe is None:
            return
        # Setting it is the only way to read it. A signal in between goes to our pipe.
        present = signal.set_wakeup_fd(self._pipe[1], warn_on_full_buffer=False)
        wanted = self._before if present == self._pipe[1] else _Descriptor(present)
        signal.set_wakeup_fd(wanted.number if wanted.is_open() else _NOBODY, warn_on_full_buffer=False)
        # Kept for the thread, which may still have a byte to pass on.
        self._is_set, self._before = False, wanted

    def _end_thread(self) -> None:
        thread = self._thread
        if thread is None or self._pipe is None:
            return
        thread.stopping.set()
        # If two sessions close at once, two end bytes are written; `add` discards the spare one.
        os.write(self._pipe[1], _END)
        thread.join()
        self._thread = None

    def _watch(self, pipe: int) -> None:
        while (byte := os.read(pipe, 1)) != _END:
            if byte == _FLUSH:
                while self._flushes:
                    self._flushes.popleft().put(None)
                continue
            self._before.write(byte)
            if byte[0] in _ENDING:
                for watcher in self._watchers:
                    watcher.arrived(byte[0])


class _Descriptor:
    """A descriptor of other code, which may be closed at any time and its number reused for another file."""

    def __init__(self, number: int) -> None:
        self.number = number
        self._file = _file_of(number)

    def is_open(self) -> bool:
        """Whether the number still belongs to the same file."""
        return self._file is not None and _file_of(self.number) == self._file

    def write(self, byte: bytes) -> None:
        """Write a byte, unless the file is closed or full."""
        if self.is_open():
            with contextlib.suppress(OSError):
                os.write(self.number, byte)


def _file_of(number: int) -> tuple[int, int] | None:
    try:
        status = os.fstat(number)
    except OSError:
        return None
    return status.st_dev, status.st_ino


def _drain(pipe: int) -> None:
    """Drop the bytes that arrived after the last session ended."""
    os.set_blocking(pipe, False)
    with contextlib.suppress(BlockingIOError):
        while os.read(pipe, 4096):
            pass
    os.set_blocking(pipe, True)


_signals = _Signals()
