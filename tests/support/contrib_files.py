"""The genuine files of `tf.contrib` and Keras for the tests: those of the developer's cache, or fetched once."""

from __future__ import annotations

import fcntl
import os
import subprocess
import sys
from pathlib import Path

import pytest

from staging_tf1.arguments import CACHE_ENVIRONMENT
from staging_tf1.legacy.contrib import store

FETCH_SECS = 300


def fetched(shared_folder: Path) -> str:
    """Fetch the files that are not there. Return why they cannot be had, or nothing.

    The processes of pytest-xdist share one attempt and its outcome.
    """
    there = [path for wheel in store.WHEELS if (path := store.fetched(wheel)) is not None]
    if len(there) == len(store.WHEELS):
        return ""
    cache = shared_folder / "contrib"
    os.environ[CACHE_ENVIRONMENT] = str(cache)
    with (shared_folder / "contrib.outcome").open("a+", encoding="utf-8") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        file.seek(0)
        outcome = file.read()
        if not outcome:
            cache.mkdir()
            for path in there:
                (cache / os.path.basename(path)).symlink_to(path)
            outcome = _fetch() or "fetched"
            file.write(outcome)
    return "" if outcome == "fetched" else outcome


def _fetch() -> str:
    command = [sys.executable, "-m", "staging_tf1", "contrib", "fetch"]
    try:
        ran = subprocess.run(command, capture_output=True, text=True, timeout=FETCH_SECS, check=False)
    except subprocess.TimeoutExpired:
        return f"the package index did not answer in {FETCH_SECS} s"
    if ran.returncode != 0 and "cannot download" not in ran.stderr:
        raise AssertionError(ran.stderr)
    return ran.stderr.strip() if ran.returncode != 0 else ""


@pytest.fixture(scope="session")
def try_contrib(shared_folder: Path) -> str:
    """Why the files of `tf.contrib` and Keras cannot be had, or nothing."""
    return fetched(shared_folder)


@pytest.fixture(scope="session")
def with_contrib(try_contrib: str) -> None:
    """Skip the test if the files of `tf.contrib` and Keras cannot be had."""
    if try_contrib:
        pytest.skip(try_contrib)
