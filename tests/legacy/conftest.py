"""The fixture that runs programs under the shim as a user does, in real child processes."""

from __future__ import annotations

from typing import Any

import pytest
from legacy_support import QUIET, Run


@pytest.fixture(scope="session")
def staging_run(run_python: Run) -> Run:
    """Run `staging-tf1 run ARGUMENTS`. The keyword arguments are those of `run_python`."""

    def run(*arguments: object, env: dict[str, str] | None = None, **kwargs: Any) -> Any:
        return run_python("-m", "staging_tf1", "run", *arguments, env={**QUIET, **(env or {})}, **kwargs)

    return run
