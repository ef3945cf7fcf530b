"""Finds the line of the user's program that called the package, in a file or in a cell of a notebook."""

from __future__ import annotations

import contextlib
import os
import sys
from collections.abc import Container, Iterator
from dataclasses import dataclass, field
from typing import Any

from staging_tf1._tf import PACKAGE, TENSORFLOW, op_stack, original_stack, with_inner_graphs

# The frames of contextlib are between a `with` statement and our generator.
_NOT_THE_USER = (PACKAGE, TENSORFLOW, contextlib.__file__)
_AUTOGRAPH_COPY = "__autograph_generated_file"


@dataclass(frozen=True)
class CellRun:
    """One run of a cell. Two runs of a cell have the same `cell`."""

    cell: str  # the identity that the notebook has given the cell, or else its text
    count: int  # the number that the notebook shows: In [3]


@dataclass(frozen=True)
class CallSite:
    """One line of a program.

    >>> str(CallSite("/home/me/train.py", 41, "main"))
    'train.py:41'
    """

    filename: str
    lineno: int
    function: str
    # In a notebook: the run of the cell that called. A cell that is run again is not a loop.
    run: CellRun | None = None
    # How IPython named the line then: the next run of the same text gets another number.
    cell_line: str | None = field(default=None, compare=False)

    def __str__(self) -> str:
        return (
            self.cell_line
            or shown_line(self.filename, self.lineno)
            or f"{os.path.basename(self.filename)}:{self.lineno}"
        )


def is_users(filename: str) -> bool:
    """Whether a file belongs to the user's program: neither to the package nor to TensorFlow."""
    return not os.path.abspath(filename).startswith(_NOT_THE_USER)


def call_site() -> CallSite:
    """The innermost frame of this thread that belongs to the user's program."""
    frame = ("<unknown>", 0, "<unknown>")
    for frame in _frames_inside_out():
        if is_users(frame[0]):
            break
    return CallSite(*frame, current_run(), shown_line(*frame[:2]))


def site_of_op(op: Any) -> CallSite | None:
    """The innermost frame of the user's program in which `op` was made; None if there is none."""
    users = [frame for frame in op_stack(op) if is_users(frame[0])]
    return CallSite(*users[-1]) if users else None


def site_of_names(graph: Any, names: Container[str]) -> CallSite | None:
    """The line that made the one op with these names in a graph or its inner ones; None if unknown or several."""
    made = [op for each in with_inner_graphs(graph) for op in each.get_operations() if op.name in names]
    return site_of_op(made[0]) if len(made) == 1 else None


def _frames_inside_out() -> Iterator[tuple[str, int, str]]:
    frames = []
    frame = sys._getframe(1)
    while frame is not None:
        code = frame.f_code
        if _AUTOGRAPH_COPY in code.co_filename:
            # Only TensorFlow can map a line of generated code to a line of the user's file.
            return reversed(original_stack())
        frames.append((code.co_filename, frame.f_lineno, code.co_name))
        frame = frame.f_back  # type: ignore[assignment]
    return iter(frames)


def current_run() -> CellRun | None:
    """Return the run of the cell that IPython executes, or None in an ordinary program."""
    shell = _shell()
    if shell is None:
        return None
    # Only the shell of a kernel has the message that started the run. An edited cell keeps its cellId.
    parent: dict[str, Any] = getattr(shell, "get_parent", dict)() or {}
    texts = shell.history_manager.input_hist_raw
    return CellRun(parent.get("metadata", {}).get("cellId") or texts[-1], shell.execution_count)


def shown_line(filename: str, line: int) -> str | None:
    """Return a line of a cell as in IPython's own tracebacks, or None if the file is no cell.

    >>> shown_line("train.py", 3) is None
    True
    """
    shell = _shell()
    named = shell and getattr(shell.compile, "format_code_name", lambda _: None)(filename)
    return f"{named[0].lower()} {named[1]}, line {line}" if named else None


def _shell() -> Any:
    ipython = sys.modules.get("IPython")
    return getattr(ipython, "get_ipython", lambda: None)()
