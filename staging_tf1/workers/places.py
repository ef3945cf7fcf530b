"""Where threads wait for worker processes, so that a report can name the line that a worker is in."""

from __future__ import annotations

import re
import threading
from collections.abc import Callable
from typing import NamedTuple

__all__ = ["Frame", "frames_for", "parsed", "waiting_for"]

_LINE = re.compile(r'^ +File "(.+)", line (\d+) in (.+)$', re.MULTILINE)


class Frame(NamedTuple):
    """One line of a stack."""

    filename: str
    line: int
    function: str


_stacks: dict[int, Callable[[], str]] = {}


class waiting_for:
    """Notes, while the block runs, that this thread waits for a process, whose stack `stack` returns as text."""

    def __init__(self, stack: Callable[[], str]) -> None:
        self._stack = stack

    def __enter__(self) -> None:
        _stacks[threading.get_ident()] = self._stack

    def __exit__(self, *_: object) -> None:
        _stacks.pop(threading.get_ident(), None)


def frames_for(ident: int | None) -> list[Frame] | None:
    """Return the stack of the process that a thread waits for, the innermost line first; None if it waits for none."""
    stack = _stacks.get(ident) if ident is not None else None
    return None if stack is None else parsed(stack())


def parsed(text: str) -> list[Frame]:
    r"""Return the frames in the text that faulthandler writes.

    >>> parsed('Stack (most recent call first):\n  File "a.py", line 3 in read\n')
    [Frame(filename='a.py', line=3, function='read')]
    """
    return [Frame(name, int(line), function) for name, line, function in _LINE.findall(text)]
