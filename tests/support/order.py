"""The order of the test files under pytest-xdist: those that take long first, so that no worker ends long after others.

pytest-xdist itself begins with the files that have most tests, and the longest files of this suite have few. How long
each took is in `durations.json`, which `pytest -n auto --dist loadfile --record-durations` writes. Files that are not
in it come last.
"""

from __future__ import annotations

import importlib
import json
import os
import sys
from collections import defaultdict
from contextlib import suppress
from pathlib import Path

import pytest

DURATIONS = Path(__file__).with_name("durations.json")
# Shorter files need no place: any order of them ends at about the same time.
_LEAST_SECS = 1.0


def long_first(items: list[pytest.Item]) -> None:
    """Sort the tests by file. The tests of a file keep their order."""
    secs = json.loads(DURATIONS.read_text(encoding="utf-8"))
    items.sort(key=lambda item: -secs.get(item.path.name, 0.0))


class Recorder:
    """A plugin that writes how long each file took, at the end of a run."""

    def __init__(self) -> None:
        self._secs: dict[str, float] = defaultdict(float)

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Add up the phases of each test, those of the workers of pytest-xdist, too."""
        self._secs[Path(report.fspath).name] += report.duration

    def pytest_sessionfinish(self) -> None:
        """Write the file."""
        long = {
            name: round(secs, 1)
            for name, secs in sorted(self._secs.items(), key=lambda each: -each[1])
            if secs >= _LEAST_SECS
        }
        DURATIONS.write_text(json.dumps(long, indent=1) + "\n", encoding="utf-8")


def workers() -> int:
    """Return how many processes use all cores: many tests wait, for other processes and for each other's threads.

    Each process collects all tests, so more of them take longer.
    """
    cores = len(os.sched_getaffinity(0))
    return cores + max(1, cores // 2)


def import_own_part(folder: Path) -> None:
    """In a worker, import a part of the test files that is not that of the others, before all are imported.

    So all workers together compile each file once, and do not each compile all of them.
    """
    number = int(os.environ["PYTEST_XDIST_WORKER"].removeprefix("gw"))
    paths = sorted(folder.rglob("test_*.py"))
    for path in paths[number :: int(os.environ["PYTEST_XDIST_WORKER_COUNT"])]:
        # Also of `pytest.importorskip`, which is no Exception. It comes again when pytest imports the file.
        with suppress(BaseException):
            sys.path.insert(0, str(path.parent))
            importlib.import_module(path.stem)
