"""The order of the test files under pytest-xdist: those that take long first, so that no worker ends long after others.

pytest-xdist itself begins with the files that have most tests, and the longest files of this suite have few.
"""

from __future__ import annotations

import importlib
import os
import sys
from contextlib import suppress
from pathlib import Path

import pytest

# Most time first, but those that mostly wait (clusters, launch, data_service) not at the same time. A file that is not
# listed takes less than these.
LONG = [
    "test_cluster.py",
    "test_bench.py",
    "test_legacy_migrate.py",
    "test_data_service.py",
    "test_cli_train.py",
    "test_fork.py",
    "test_cluster_dynamic.py",
    "test_legacy_estimator.py",
    "test_examples.py",
    "test_launch.py",
    "test_faults_everywhere.py",
    "test_legacy_cluster.py",
    "test_workers_faults.py",
    "test_legacy_process.py",
    "test_resume_shards.py",
    "test_processes.py",
    "test_quiet.py",
    "test_arguments.py",
    "test_exactly_once.py",
    "test_source_errors.py",
    "test_session.py",
    "test_resume_grain.py",
    "test_cluster_faults.py",
    "test_deterministic_ops.py",
    "test_cli_streams.py",
    "test_stats.py",
    "test_cluster_sync.py",
    "test_advice.py",
    "test_recovery.py",
    "test_cli_train_cluster.py",
    "test_workers_memory.py",
    "test_resume_skipped.py",
    "test_bytes_equal.py",
    "test_progress.py",
    "test_readme.py",
    "test_front_door.py",
    "test_checkpoints.py",
    "test_faults.py",
    "test_legacy_programs.py",
    "test_first_batches.py",
    "test_resume.py",
    "test_stall.py",
    "test_dynamic_shares.py",
    "test_legacy_tutorial.py",
    "test_stopping.py",
    "test_stall_stores.py",
    "test_cached_faults.py",
    "test_legacy_imports.py",
    "test_workers.py",
    "test_classic_loop.py",
    "test_composites_staged.py",
    "test_compose_staged.py",
    "test_soak.py",
    "test_map_source.py",
    "test_freed.py",
    "test_project.py",
    "test_startup.py",
    "test_cluster_kills.py",
    "test_forked.py",
    "test_trace.py",
    "test_legacy_docs.py",
    "test_staged.py",
    "test_kill9.py",
    "test_sink_run.py",
]


def long_first(items: list[pytest.Item]) -> None:
    """Sort the tests by file. The tests of a file keep their order."""
    places = {name: place for place, name in enumerate(LONG)}
    items.sort(key=lambda item: places.get(item.path.name, len(LONG)))


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
