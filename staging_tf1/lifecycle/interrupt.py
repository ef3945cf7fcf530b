"""Lets Ctrl-C, and SIGTERM if the program handles it, reach a step that waits for input.

Python handles a signal between two of its own instructions, and a `Session.run` that waits executes none. But C code
writes to the wake-up descriptor at once, so a thread that reads it can wake the step. A process has only one such
descriptor, which all sessions share.
"""

from __future__ import annotations

import contextlib
import os
import signal
import threading
from collections.abc import Callable

from absl import logging

_END = b"\0"  # 0 is not a signal
_NOBODY = -1
# SIGTERM arrives here only if the program handles it in Python. Otherwise it ends the process at once.
_ENDING = (signal.SIGINT, signal.SIGTERM)


def is_ctrl_c(error: BaseException) -> bool:
    """Whether `error` is what TensorFlow 2.15 makes of a KeyboardInterrupt while it translates another error."""
    return isinstance(error, RuntimeError) and "REPLACED BY KeyboardInterrupt" in str(error)


class InterruptWatcher:
    """Calls `on_interrupt` in a thread as soon as SIGINT or SIGTERM arrives. Python's own handling stays as it is."""

    def __init__(self, on_interrupt: Callable[[], None]) -> None:
        self._owes = False
        self._on_interrupt = on_interrupt
        self._watching = False
        # Held while `on_interrupt` runs, so that it never runs after `stop` has returned.
        self._lock = threading.RLock()

    def start(self) -> None:
        """Starts watching. Does nothing outside the main thread, or if Python handles neither of the signals."""
        handled = any(callable(signal.getsignal(number)) for number in _ENDING)
        if not self._watching and handled and _in_main_thread():
            self._owes, self._watching = False, True
            _signals.add(self)

    def owes(self) -> bool:
        """Whether the calling thread is the main thread and its KeyboardInterrupt is still to be raised; True once.

        Python drops a KeyboardInterrupt that falls into a `__del__`. The step then fails only because its feed threads
        have stopped, and must raise it instead.
        """
        if not _in_main_thread():
            return False
        owes, self._owes = self._owes, False
        return owes

    def stop(self) -> None:
        """Stops watching. May be called from any thread, in any order of sessions, and twice."""
        with self._lock:
            self._owes = self._watching = False
        _signals.remove(self)

    def arrived(self, number: int) -> None:
        """Records a signal and calls `on_interrupt`."""
        with self._lock:
            if not self._watching:
                return
            self._owes = self._owes or signal.getsignal(number) is signal.default_int_handler
            try:
                self._on_interrupt()
            except Exception as error:
                # The other sessions must still be told.
                logging.error(
                    "could not stop the feeding of a session after a signal: %s: %s", type(error).__name__, error
                )


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
        self._thread: threading.Thread | None = None
        self._told_to_end = False

    def add(self, watcher: InterruptWatcher) -> None:
        """Tells `watcher` about each signal from now on. Only for the main thread."""
        with self._lock:
            if self._told_to_end:
                # A Ctrl-C interrupted the join of the thread.
                self._end_thread()
            if self._pipe is None:
                self._pipe = os.pipe()
                os.set_blocking(self._pipe[1], False)
            if self._thread is None:
                _drain(self._pipe[0])
            self._watchers = (*self._watchers, watcher)
            self._set(self._pipe[1])
            if self._thread is None:
                self._thread = threading.Thread(
                    target=self._watch, args=(self._pipe[0],), name="staging:interrupt", daemon=True
                )
                self._thread.start()

    def remove(self, watcher: InterruptWatcher) -> None:
        """Stops telling `watcher` about signals. Does nothing if it is not registered."""
        with self._lock:
            self._watchers = tuple(each for each in self._watchers if each is not watcher)
            if self._watchers:
                return
            if _in_main_thread():
                self._put_back()
            if not (self._is_set and self._before.is_open()):
                # Otherwise the previous owner gets its bytes through us until the main thread restores the descriptor.
                self._end_thread()

    def leave_to_parent(self) -> None:
        """In a child process: keeps the child's signals out of the pipe that it shares with the parent."""
        if self._pipe is not None:
            self._is_set = True
            self._put_back()

    def _set(self, ours: int) -> None:
        found = signal.set_wakeup_fd(ours, warn_on_full_buffer=False)
        if found != ours:
            self._before = _Descriptor(found)
        self._is_set = True

    def _put_back(self) -> None:
        """Restores the previous descriptor, unless other code has set its own since."""
        if not self._is_set or self._pipe is None:
            return
        # Setting it is the only way to read it. A signal in between goes to our pipe.
        found = signal.set_wakeup_fd(self._pipe[1], warn_on_full_buffer=False)
        wanted = self._before if found == self._pipe[1] else _Descriptor(found)
        signal.set_wakeup_fd(wanted.number if wanted.is_open() else _NOBODY, warn_on_full_buffer=False)
        # Kept for the thread, which may still have a byte to pass on.
        self._is_set, self._before = False, wanted

    def _end_thread(self) -> None:
        if self._thread is None or self._pipe is None:
            return
        if not self._told_to_end:
            self._told_to_end = True
            os.write(self._pipe[1], _END)
        self._thread.join()
        self._thread, self._told_to_end = None, False

    def _watch(self, pipe: int) -> None:
        while True:
            byte = os.read(pipe, 1)
            if byte == _END:
                return
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
        """Writes a byte, unless the file is closed or full."""
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
    """Drops the bytes that arrived after the last session ended."""
    os.set_blocking(pipe, False)
    with contextlib.suppress(BlockingIOError):
        while os.read(pipe, 4096):
            pass
    os.set_blocking(pipe, True)


def _in_main_thread() -> bool:
    return threading.current_thread() is threading.main_thread()


_signals = _Signals()
_fork = threading.local()


def _before_fork() -> None:
    # A signal that reaches the child before `leave_to_parent` would count as one of the parent's.
    _fork.mask = signal.pthread_sigmask(signal.SIG_BLOCK, _ENDING)


def _after_fork() -> None:
    signal.pthread_sigmask(signal.SIG_SETMASK, _fork.mask)


def _in_child() -> None:
    global _signals
    _signals.leave_to_parent()
    # Another thread of the parent may have held the old object's lock.
    _signals = _Signals()
    _after_fork()


os.register_at_fork(before=_before_fork, after_in_parent=_after_fork, after_in_child=_in_child)
