"""The output of the tasks: lines, the tags in front of them, and a printer that never waits for its reader."""

from __future__ import annotations

import os
import re
import select
from collections import deque
from collections.abc import Mapping, Sequence

# A longer line is printed in pieces, so a line without an end takes bounded memory.
MOST_IN_LINE = 64 * 1024
# A carriage return ends a line only if something follows. Alone at the end it may be the first half of "\r\n".
_END = re.compile(rb"\r\n|\n|\r(?=.)", re.DOTALL)
# At most this many bytes wait to be written before the tasks' output is left in their pipes.
_FULL = 1024 * 1024
# ANSI colours: cyan, yellow, green, magenta, blue and their bright variants. Red would look like an error.
_COLOURS = (36, 33, 32, 35, 34, 96, 93, 92, 95, 94)


class LineSplitter:
    r"""Splits a stream of bytes into lines, without their ends. The bytes need not be text in any encoding.

    A progress bar begins or ends each update with a carriage return, so that counts as an end of line, too.

    >>> lines = LineSplitter()
    >>> lines.feed(b"one\ntw"), lines.feed(b"o\r\n\rthree\rfour"), lines.close()
    ([b'one'], [b'two', b'three'], [b'four'])
    """

    def __init__(self) -> None:
        self._rest = b""

    def feed(self, data: bytes) -> list[bytes]:
        """Return the lines that `data` completes, and whole pieces of a line that is too long."""
        text, start, lines = self._rest + data, 0, []
        # The rest holds no end of line, except perhaps half of one in its last byte.
        for end in _END.finditer(text, max(0, len(self._rest) - 1)):
            # A carriage return at the start of an update ends no line.
            if end.start() > start or end[0] != b"\r":
                lines += _pieces(text[start : end.start()])
            start = end.end()
        *pieces, self._rest = _pieces(text[start:])
        return lines + pieces

    def close(self) -> list[bytes]:
        """Return the last line if the stream ended in the middle of it."""
        rest, self._rest = self._rest.removesuffix(b"\r"), b""
        return [rest] if rest else []


def _pieces(line: bytes) -> list[bytes]:
    pieces = []
    while len(line) > MOST_IN_LINE:
        cut = _character_start(line, MOST_IN_LINE)
        pieces.append(line[:cut])
        line = line[cut:]
    return [*pieces, line]


def _character_start(text: bytes, at: int) -> int:
    """Return the start of the UTF-8 character at `at`, which has at most four bytes; `at` if it is no UTF-8."""
    for start in range(at, at - 4, -1):
        if text[start] & 0xC0 != 0x80:
            return start
    return at


def make_tags(names: Sequence[str], colour: bool) -> dict[str, bytes]:
    """Return what is printed in front of each task's lines, by the task's name. All tags have the same width.

    >>> make_tags(["chief 0", "ps 0"], colour=False)
    {'chief 0': b'[chief 0] ', 'ps 0': b'[ps 0]    '}
    """
    width = max(map(len, names))
    tags = {}
    for number, name in enumerate(names):
        shown = f"[{name}]"
        if colour:
            shown = f"\x1b[{_COLOURS[number % len(_COLOURS)]}m{shown}\x1b[0m"
        tags[name] = (shown + " " * (width - len(name) + 1)).encode()
    return tags


def wants_colour(descriptor: int, environment: Mapping[str, str]) -> bool:
    """Whether `descriptor` is a terminal and the environment does not turn colours off."""
    return os.isatty(descriptor) and not environment.get("NO_COLOR") and environment.get("TERM") != "dumb"


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
