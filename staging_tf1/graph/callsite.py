"""Finds the line of the user's program that called the package."""

from __future__ import annotations

import contextlib
import os
import sys
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

from staging_tf1._tf import op_stack, original_stack, tf
from staging_tf1.cells import CellRun, current_run, shown_line

__all__ = ["CallSite", "call_site", "site_of_op"]

_PACKAGE = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
_TENSORFLOW = os.path.dirname(os.path.abspath(tf.__file__)).split(f"{os.sep}tensorflow{os.sep}")[0]
_NOT_THE_USER = (
    _PACKAGE + os.sep,
    os.path.join(_TENSORFLOW, "tensorflow") + os.sep,
    contextlib.__file__,  # its frames are between a `with` statement and our generator
)
_AUTOGRAPH_COPY = "__autograph_generated_file"


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
