"""Child processes: the type of the `run_python` fixture, and what /proc says of them."""

from __future__ import annotations

import subprocess
from pathlib import Path
from typing import Any, Protocol


class RunPython(Protocol):
    """Runs `python ARGUMENTS` in a child process, which sees the same copy of the package as the tests do.

    Keyword arguments go to `subprocess.run`; `env` is added to the environment.
    """

    def __call__(
        self, *arguments: object, env: dict[str, str] | None = None, **kwargs: Any
    ) -> subprocess.CompletedProcess[str]: ...


def state_of(task: Path) -> str | None:
    """The state of a process or thread, of which `task` is the folder in /proc; None if it has ended."""
    try:
        return (task / "stat").read_text().rpartition(")")[2].split()[0]
    except (FileNotFoundError, ProcessLookupError):
        return None
