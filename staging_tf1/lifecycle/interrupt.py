"""Lets Ctrl-C, and SIGTERM where it is handled, reach a step that waits for input.

Python handles a signal between two of its own instructions, and a `Session.run` that waits executes none. The
wake-up descriptor is written to at once, from C, so a thread that reads it can wake the step. A process has one such
descriptor; all sessions of the process share it.
"""

from __future__ import annotations

import contextlib
import os
import signal
import threading
from collections.abc import Callable

from absl import logging

_END = b"\0"  # no signal has the number 0
_NOBODY = -1
# SIGTERM only arrives here where the program handles it in Python; otherwise it ends the process at once.
_ENDING = (signal.SIGINT, signal.SIGTERM)


def is_ctrl_c(error: BaseException) -> bool:
    """Whether it was Ctrl-C, while TensorFlow 2.15 was translating the error of the step that Ctrl-C had ended."""
    return isinstance(error, RuntimeError) and "REPLACED BY KeyboardInterrupt" in str(error)


class InterruptWatcher:
    """Calls `on_interrupt` from a thread as soon as SIGINT or SIGTERM arrives; Python's own handling stays as it is."""

    def __init__(self, on_interrupt: Callable[[], None]) -> None:
        self._owes = False
        self._on_interrupt = on_interrupt
        self._watching = False
        # Held while `on_interrupt` runs, so that it never runs after `stop` has returned.
        self._lock = threading.RLock()

    def start(self) -> None:
        """Starts to watch. Only the main thread may, and only where one of the signals is handled in Python."""
        handled = any(callable(signal.getsignal(number)) for number in _ENDING)
        if not self._watching and handled and _in_main_thread():
            self._owes, self._watching = False, True
            _signals.add(self)

    def owes(self) -> bool:
        """Whether the main thread, which asks, has still to get its KeyboardInterrupt; True once.

        Python drops one that falls into a `__del__`, and the step then fails of nothing but its stopped feeders.
        """
        if not _in_main_thread():
            return False
        owes, self._owes = self._owes, False
        return owes

    def stop(self) -> None:
        """Stops watching. Any thread may call it, in any order of sessions, and twice."""
        with self._lock:
            self._owes = self._watching = False
        _signals.remove(self)

    def arrived(self, number: int) -> None:
        """Notes a signal, and passes it on."""
        with self._lock:
            if not self._watching:
                return
            self._owes = self._owes or signal.getsignal(number) is signal.default_int_handler
            try:
                self._on_interrupt()
            except Exception as error:
                # The other sessions have to hear of it all the same.
                logging.error(
                    "could not stop the feeding of a session after a signal: %s: %s", type(error).__name__, error
                )


class _Signals:
    """Owns the wake-up descriptor of the process while a session watches, and tells all sessions of each signal.

    Python lets only the main thread set the descriptor. Where another thread closes the last session, the descriptor
    stays ours until the main thread starts or stops a watch again. The pipe is never closed: somebody who has saved our
    descriptor may put it back at any time, and Python writes to whatever file has that number by then.
    """

    def __init__(self) -> None:
        self._lock = threading.RLock()
        # Replaced, never changed, because the thread reads it without the lock.
        self._watchers: tuple[InterruptWatcher, ...] = ()
        self._pipe: tuple[int, int] | None = None
        self._is_set = False
        # What was set before us. It gets each byte, too: an asyncio loop waits for signals like this.
        self._before = _Descriptor(_NOBODY)
        self._thread: threading.Thread | None = None
        self._told_to_end = False

    def add(self, watcher: InterruptWatcher) -> None:
        """Tells `watcher` of each signal from now on; for the main thread."""
        with self._lock:
            if self._told_to_end:
                # A Ctrl-C has cut short the wait for its end.
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
        """Tells `watcher` of no signal any more; one that is not there is ignored."""
        with self._lock:
            self._watchers = tuple(each for each in self._watchers if each is not watcher)
            if self._watchers:
                return
            if _in_main_thread():
                self._put_back()
            if not (self._is_set and self._before.is_open()):
                # Otherwise somebody gets the bytes through us until the main thread has put the descriptor back.
                self._end_thread()

    def leave_to_parent(self) -> None:
        """In a child process: lets no signal of the child reach the parent's thread through the pipe they share."""
        if self._pipe is not None:
            self._is_set = True
            self._put_back()

    def _set(self, ours: int) -> None:
        found = signal.set_wakeup_fd(ours, warn_on_full_buffer=False)
        if found != ours:
            self._before = _Descriptor(found)
        self._is_set = True

    def _put_back(self) -> None:
        """Puts back what was there before us, unless somebody has set theirs since."""
        if not self._is_set or self._pipe is None:
            return
        # The only way to ask is to set. A signal that falls in between goes to our pipe, never to a wrong one.
        found = signal.set_wakeup_fd(self._pipe[1], warn_on_full_buffer=False)
        wanted = self._before if found == self._pipe[1] else _Descriptor(found)
        signal.set_wakeup_fd(wanted.number if wanted.is_open() else _NOBODY, warn_on_full_buffer=False)
        # Kept for the thread, which may still have such a byte to pass on.
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
    """Somebody else's descriptor, which may be closed at any time, and its number then be that of another file."""

    def __init__(self, number: int) -> None:
        self.number = number
        self._file = _file_of(number)

    def is_open(self) -> bool:
        """Whether the number is still that of the same file."""
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
    """Drops what nobody has read since the last session."""
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
    # A signal that reaches the child before it has left the pipe would be taken for one of the parent's.
    _fork.mask = signal.pthread_sigmask(signal.SIG_BLOCK, _ENDING)


def _after_fork() -> None:
    signal.pthread_sigmask(signal.SIG_SETMASK, _fork.mask)


def _in_child() -> None:
    global _signals
    _signals.leave_to_parent()
    # Another thread of the parent may have held a lock of the old one.
    _signals = _Signals()
    _after_fork()


os.register_at_fork(before=_before_fork, after_in_parent=_after_fork, after_in_child=_in_child)
