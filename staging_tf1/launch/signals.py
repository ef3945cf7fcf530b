"""Delivers the signals of this process through a socket, so one loop can wait for them and for output."""

from __future__ import annotations

import contextlib
import signal
import socket
from types import TracebackType
from typing import Any

# The signals that end a run.
ENDING = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


class Signals:
    """A context manager that collects SIGCHLD and the signals that end a run. For the main thread only."""

    def __enter__(self) -> Signals:
        """Replace the handlers of these signals and the wake-up descriptor."""
        self._reader, self._writer = socket.socketpair()
        self._reader.setblocking(False)
        self._writer.setblocking(False)
        self._wakeup_before = signal.set_wakeup_fd(self._writer.fileno(), warn_on_full_buffer=False)
        self._handlers_before: dict[int, Any] = {}
        # If SIGCHLD is ignored, the system discards the status of children. The others may be ignored on purpose: by
        # nohup, or by a shell for the programs in its background.
        for number in (signal.SIGCHLD, *(each for each in ENDING if signal.getsignal(each) is not signal.SIG_IGN)):
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


def name_of(number: int) -> str:
    """Return a signal's name, such as 'SIGKILL'."""
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"signal {number}"  # a real-time signal
