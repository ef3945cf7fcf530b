"""Fixtures that run programs under the shim: as a user does, or in forks of a process that has the shim."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from contrib_files import try_contrib, with_contrib  # noqa: F401 (fixtures)
from forked import QUIET, ForkServer
from legacy_support import Run
from slow import with_slow


@pytest.fixture(scope="session")
def staging_run(run_python: Run) -> Run:
    """Run `staging-tf1 run ARGUMENTS`. The keyword arguments are those of `run_python`.

    For what depends on the start: the command's options, what is imported first, the interpreter.
    """

    def run(*arguments: object, env: dict[str, str] | None = None, **kwargs: Any) -> Any:
        return run_python("-m", "staging_tf1", "run", *arguments, env={**QUIET, **(env or {})}, **kwargs)

    return run


@pytest.fixture(scope="session")
def legacy_server(shared_folder: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[ForkServer]:
    """Run programs as `staging_run` does, without the seconds that TensorFlow takes to load.

    The server is itself a program that `staging-tf1 run` has started.
    """
    address, cwd = shared_folder / "legacy_server", tmp_path_factory.mktemp("elsewhere")
    server = ForkServer(address, cwd, "-m", "staging_tf1", "run", whole_ends=with_slow())
    yield server
    server.close()


@pytest.fixture(scope="session")
def legacy_run(legacy_server: ForkServer) -> Run:
    """Run a program, with arguments, in a fork of `legacy_server`. The keyword arguments are those of `staging_run`."""

    def run(*arguments: object, env: dict[str, str] | None = None, **kwargs: Any) -> Any:
        return legacy_server.run(*arguments, env={**QUIET, **(env or {})}, **kwargs)

    return run
