"""Writes lines to stdout and stderr without ever waiting for their reader."""

from __future__ import annotations

import os
import select
from collections import deque

# At most this many bytes wait to be written before the tasks' output is left in their pipes.
_FULL = 1024 * 1024


class Printer:
    """A queue of whole lines for two descriptors, which may be the same terminal.

    A plain write waits while a pager or a stopped terminal reads nothing, and Python resumes it after a signal, so
    Ctrl-C would have no effect. A non-blocking stdout would be non-blocking for every process on the terminal. So bytes
    are written only when the system says that they fit. One queue serves both descriptors, because parts of a long line
    must not mix with other lines.
    """

    def __init__(self) -> None:
        self._queue: deque[tuple[int, bytes]] = deque()
        self._size = 0
        self._lost: set[int] = set()

    @property
    def waiting_for(self) -> int | None:
        """Return the descriptor that the next bytes go to; None if nothing is to be written."""
        return self._queue[0][0] if self._queue else None

    @property
    def full(self) -> bool:
        """Whether the reader is too slow, so that nothing more should be added."""
        return self._size > _FULL

    def add(self, descriptor: int, line: bytes) -> None:
        """Append a line, which ends with a newline."""
        if descriptor not in self._lost:
            self._queue.append((descriptor, line))
            self._size += len(line)

    def write(self) -> None:
        """Write what can be written without waiting.

        Raises:
            OSError: the reader is gone or the disk is full. All that goes to that descriptor is dropped from then on.
        """
        while self._queue and _has_room(self._queue[0][0]):
            descriptor, line = self._queue.popleft()
            try:
                # A pipe that has room takes this many bytes at once.
                written = os.write(descriptor, line[: select.PIPE_BUF])
            except BlockingIOError:
                # Another process has made the descriptor non-blocking and filled it just then.
                self._queue.appendleft((descriptor, line))
                return
            except OSError:
                self._drop(descriptor)
                raise
            self._size -= written
            if written < len(line):
                self._queue.appendleft((descriptor, line[written:]))

    def _drop(self, descriptor: int) -> None:
        self._lost.add(descriptor)
        self._queue = deque(waiting for waiting in self._queue if waiting[0] != descriptor)
        self._size = sum(len(line) for _, line in self._queue)


def _has_room(descriptor: int) -> bool:
    poll = select.poll()  # selectors and epoll refuse files
    poll.register(descriptor, select.POLLOUT)
    return bool(poll.poll(0))
