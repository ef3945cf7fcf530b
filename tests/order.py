"""The order of the test files under pytest-xdist: those that take long first, so that no worker ends long after others.

pytest-xdist itself begins with the files that have most tests, and the longest files of this suite have few.
"""

from __future__ import annotations

import os

import pytest

# Most CPU time first. A file that is not listed takes less than these.
LONG = [
    "test_bench.py",
    "test_legacy_estimator.py",
    "test_legacy_migrate.py",
    "test_cluster.py",
    "test_cluster_dynamic.py",
    "test_fork.py",
    "test_startup.py",
    "test_checkpoints.py",
    "test_soak.py",
    "test_legacy_docs.py",
    "test_legacy_cluster.py",
    "test_data_service.py",
    "test_cli_train_cluster.py",
    "test_recovery.py",
    "test_cluster_faults.py",
    "test_resume.py",
    "test_faults.py",
    "test_legacy_process.py",
    "test_resume_shards.py",
    "test_exactly_once.py",
    "test_examples.py",
    "test_readme.py",
    "test_front_door.py",
    "test_cli_train.py",
    "test_faults_everywhere.py",
    "test_resume_skipped.py",
    "test_memory.py",
    "test_bytes_equal.py",
    "test_legacy_names.py",
    "test_legacy_tutorial.py",
    "test_refused_values.py",
    "test_session.py",
    "test_kill9.py",
    "test_wakeup.py",
]


def long_first(items: list[pytest.Item]) -> None:
    """Sort the tests by file. The tests of a file keep their order."""
    places = {name: place for place, name in enumerate(LONG)}
    items.sort(key=lambda item: places.get(item.path.name, len(LONG)))


def workers() -> int:
    """Return how many processes use all cores: many tests wait, for other processes and for each other's threads."""
    cores = len(os.sched_getaffinity(0))
    return cores + cores // 2
