"""The cells of a notebook, for messages. Imports nothing: IPython is used only if it runs."""

from __future__ import annotations

import sys
from dataclasses import dataclass
from typing import Any

__all__ = ["CellRun", "current_run", "shown_line"]


@dataclass(frozen=True)
class CellRun:
    """One run of a cell. Two runs of a cell have the same `cell`."""

    cell: str  # the identity that the notebook has given the cell, or else its text
    count: int  # the number that the notebook shows: In [3]


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
