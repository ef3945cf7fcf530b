"""The type of the `run_python` fixture, for annotations."""

from __future__ import annotations

import subprocess
from typing import Any, Protocol


class RunPython(Protocol):
    """Runs `python ARGUMENTS` in a child process, which sees the same copy of the package as the tests do.

    Keyword arguments go to `subprocess.run`; `env` is added to the environment.
    """

    def __call__(
        self, *arguments: object, env: dict[str, str] | None = None, **kwargs: Any
    ) -> subprocess.CompletedProcess[str]: ...
