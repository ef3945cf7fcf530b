"""Checks many files: in several processes when that pays, with a progress bar when it takes long."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Sequence

from staging_tf1.cores import usable_cores
from staging_tf1.legacy import source_files
from staging_tf1.legacy.lint import checker
from staging_tf1.legacy.lint.configuration import Configuration
from staging_tf1.legacy.lint.rule import Finding
from staging_tf1.legacy.source_files import UnreadableError
from staging_tf1.progress import with_progress

# What one file yields: its findings, or the message why it cannot be checked.
Result = list[Finding] | str
# Below this size the start of other processes takes longer than they save.
_WORTH_A_PROCESS_BYTES = 3_000_000
_MOST_PROCESSES = 8


def check_all(paths: Sequence[str], configuration: Configuration) -> Iterator[Result]:
    """Yield the result of each file at and below `paths`, in order."""
    found = list(source_files.find(paths, configuration.exclude))
    files = [one for one in found if isinstance(one, str)]
    results = iter(_with_progress(_checked(files, configuration), len(files)))
    for one in found:
        yield str(one) if isinstance(one, UnreadableError) else next(results)


def check_file(path: str, configuration: Configuration) -> Result:
    """Return the findings of one file, or the message why it cannot be checked."""
    try:
        return checker.check(source_files.read(path), configuration)
    except UnreadableError as error:
        return str(error)


def _checked(files: Sequence[str], configuration: Configuration) -> Iterator[Result]:
    processes = min(usable_cores(), _MOST_PROCESSES, sum(map(_size, files)) // _WORTH_A_PROCESS_BYTES + 1)
    if processes < 2:
        yield from (check_file(path, configuration) for path in files)
        return
    import concurrent.futures  # here, because they take a quarter of the start-up time
    import multiprocessing

    # A fork copies the locks of other threads as they are, so each process starts afresh.
    context = multiprocessing.get_context("spawn")
    with concurrent.futures.ProcessPoolExecutor(processes, context) as pool:
        given = [configuration] * len(files)
        yield from pool.map(check_file, files, given, chunksize=max(1, min(16, len(files) // (4 * processes))))


def _with_progress(results: Iterable[Result], total: int) -> Iterable[Result]:
    """Show a bar on a terminal, if the checks take long."""
    return results if total < 2 else with_progress(results, total, "check")


def _size(path: str) -> int:
    try:
        return os.stat(path).st_size
    except OSError:
        return 0
