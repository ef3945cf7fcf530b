"""Lets Ctrl-C, and SIGTERM where it is handled, reach a step that waits for input.

Python handles a signal between two of its own instructions, and a `Session.run` that waits executes none. The
wake-up descriptor is written to at once, from C, so a thread that reads it can wake the step.
"""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Callable

_CLOSE = b"\0"  # no signal has the number 0
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
        self._thread: threading.Thread | None = None

    def start(self) -> None:
        """Starts to watch. Only the main thread may, and only where one of the signals is handled in Python."""
        handled = any(callable(signal.getsignal(number)) for number in _ENDING)
        if self._thread is not None or not handled or threading.current_thread() is not threading.main_thread():
            return
        self._owes = False
        self._read, self._write = os.pipe()
        os.set_blocking(self._write, False)
        self._before = signal.set_wakeup_fd(self._write, warn_on_full_buffer=False)
        self._thread = threading.Thread(target=self._watch, name="staging:interrupt", daemon=True)
        self._thread.start()

    def owes(self) -> bool:
        """Whether the main thread, which asks, has still to get its KeyboardInterrupt; True once.

        Python drops one that falls into a `__del__`, and the step then fails of nothing but its stopped feeders.
        """
        if threading.current_thread() is not threading.main_thread():
            return False
        owes, self._owes = self._owes, False
        return owes

    def stop(self) -> None:
        """Puts back what was there before, and joins the thread. May be called twice."""
        self._owes = False
        if self._thread is None:
            return
        if threading.current_thread() is threading.main_thread():
            signal.set_wakeup_fd(self._before, warn_on_full_buffer=False)
        os.write(self._write, _CLOSE)
        self._thread.join()
        self._thread = None
        os.close(self._read)
        os.close(self._write)

    def _watch(self) -> None:
        while True:
            number = os.read(self._read, 1)
            if number == _CLOSE:
                return
            if self._before != -1:
                # Somebody else (an event loop) waits for signals, too.
                os.write(self._before, number)
            if number[0] in _ENDING:
                self._owes = self._owes or signal.getsignal(number[0]) is signal.default_int_handler
                self._on_interrupt()
