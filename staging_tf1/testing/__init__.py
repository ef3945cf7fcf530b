"""Assertions for the test suites of your own sources.

Our test suite uses them too. Each takes a source, or preferably a function that creates one, so that every restart gets
a new source as in a new process. They raise `AssertionError` with the batch, the component and the first value that
differs.
"""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Callable, Iterator
from itertools import islice
from typing import Any, cast

from staging_tf1.arguments import INT64_MAX, MOST_THREADS, flag, function, shown, whole
from staging_tf1.errors import StagingError
from staging_tf1.sources.base import Source, StreamSource
from staging_tf1.testing.reads import (
    Trial,
    assert_independent,
    assert_same,
    copied,
    epoch_records,
    fitting,
    read_in_processes,
    read_in_threads,
)
from staging_tf1.workers.shipping import check_picklable

__all__ = [
    "assert_deterministic",
    "assert_resumes_everywhere",
    "assert_shards_partition",
    "assert_works_in_processes",
]

AnySource = Source | StreamSource

# Batches compared after each restart. A few are enough to find an off-by-one position or an incomplete state.
_AFTER_RESTART = 3
# All compared batches are held in memory.
_MOST_BATCHES = 2**20


def assert_resumes_everywhere(source: AnySource | Callable[[], AnySource], *, max_batches: int = 64) -> None:
    """Assert that a source can resume at any position.

    A restarted source must continue with exactly the next batch.

    Args:
      source: a source, or a function that creates one (called for each restart).
      max_batches: the maximum number of batches to test. Choose enough to cross the end of an epoch.

    Raises:
      AssertionError: a restarted source delivers other batches, or `num_batches` is wrong.
    """
    caller = "assert_resumes_everywhere()"
    make = _maker(caller, source)
    max_batches = whole(caller, "max_batches", max_batches, 1, _MOST_BATCHES)
    reference = list(islice(_batches(make(), 0), max_batches))
    if not reference:
        raise AssertionError(f"{make()!r} delivers no batches, so there is nothing to resume.")
    _check_end(make(), len(reference), max_batches)
    for start in range(len(reference)):
        restarted = make()
        try:
            resumed = list(islice(_batches(restarted, start), _AFTER_RESTART))
        except StagingError as error:
            raise AssertionError(f"{restarted!r} does not resume at batch {start}: {error}") from error
        expected = reference[start : start + _AFTER_RESTART]
        if len(resumed) < len(expected):
            raise AssertionError(
                f"{restarted!r} restarted at batch {start} ends after {len(resumed)} batches; without a restart, "
                f"at least {len(expected)} follow."
            )
        for offset, (first, second) in enumerate(zip(expected, resumed)):
            assert_same(first, second, f"{restarted!r} restarted at batch {start}: batch {start + offset}")


def assert_deterministic(source: Source | Callable[[], Source], *, threads: int = 4, max_batches: int = 64) -> None:
    """Assert that `batch(k)` depends on `k` only.

    It must not depend on earlier reads, on the thread, or on writes to its results. Also asserts that each batch
    matches `spec`, and that a source with `gives_away` never touches its arrays again.

    Args:
      source: a source with random access, or a function that creates one.
      threads: the number of threads that read at the same time, each in a different order.
      max_batches: the maximum number of batches to test.

    Raises:
      AssertionError: a batch differs between two reads, or does not match the spec.
    """
    caller = "assert_deterministic()"
    threads = whole(caller, "threads", threads, 1, MOST_THREADS)
    tested = _with_random_access(caller, source)
    reference = [copied(fitting(tested, number)) for number in range(_count(caller, tested, max_batches))]
    assert_independent(tested, reference)
    read_in_threads(tested, reference, threads)


def assert_works_in_processes(
    source: Source | Callable[[], Source],
    *,
    processes: int = 2,
    max_batches: int = 16,
    allow_tensorflow: bool = False,
) -> None:
    """Assert that a source works with `staged(source, num_processes=...)`.

    It must be picklable, and its batches must be the same in a worker process as here. The workers should not import
    TensorFlow, which takes each of them seconds and hundreds of megabytes.

    Args:
      source: a source with random access, or a function that creates one.
      processes: the number of worker processes.
      max_batches: the maximum number of batches to test.
      allow_tensorflow: whether a worker may import TensorFlow.

    Raises:
      AssertionError: the source cannot be pickled (the message names the attribute), raises in a worker, delivers other
        batches there, or imports TensorFlow.
    """
    caller = "assert_works_in_processes()"
    processes = whole(caller, "processes", processes, 1, MOST_THREADS)
    allow_tensorflow = flag(caller, "allow_tensorflow", allow_tensorflow)
    tested = _with_random_access(caller, source)
    count = _count(caller, tested, max_batches)
    if not hasattr(os, "memfd_create"):
        raise ValueError(f"{caller} needs Linux, as num_processes does.")
    try:
        check_picklable(f"staged({type(tested).__name__})", tested)
    except TypeError as error:
        raise AssertionError(str(error)) from error.__cause__
    reference = [copied(fitting(tested, number)) for number in range(count)]
    with Trial(tested, processes) as trial:
        read_in_processes(tested, reference, trial, processes)
        if trial.has_tensorflow and not allow_tensorflow:
            raise AssertionError(
                f"a worker process has imported TensorFlow to load {tested!r} or to make its batches. Define the "
                f"source and its transform in a module that does not import it, or pass allow_tensorflow=True."
            )


def assert_shards_partition(source: Source | Callable[[], Source], n: int) -> None:
    """Assert that `n` shards deliver each record of an epoch exactly once.

    Their sizes may differ by at most one record. Records are identified by their content, so test the source without a
    `transform` that uses random numbers.

    Args:
      source: a source with a finite number of records, or a function that creates one.
      n: the number of shards.

    Raises:
      AssertionError: records are missing or repeated, or the sizes of the shards differ by more than one.
      ValueError: the epochs of the source never end, or the source skips records (`drop_remainder`).
    """
    caller = "assert_shards_partition()"
    n = whole(caller, "n", n, 1, INT64_MAX, "shards")
    undivided = cast(Source, _maker(caller, source)())
    expected = Counter(epoch_records(undivided))
    total = sum(expected.values())
    if total != undivided.num_records:
        raise ValueError(
            f"{undivided!r} delivers {total} of its {undivided.num_records} records in an epoch (drop_remainder?). "
            "Use a source that delivers all records."
        )
    shards = [undivided.shard(index, n) for index in range(n)]
    sizes = [sum(1 for _ in epoch_records(shard)) for shard in shards]
    if max(sizes) - min(sizes) > 1:
        raise AssertionError(f"the sizes of the shards of {undivided!r} differ by more than one record: {sizes}.")
    union = Counter(record for shard in shards for record in epoch_records(shard))
    missing, twice = sum((expected - union).values()), sum((union - expected).values())
    if missing or twice:
        raise AssertionError(
            f"{n} shards of {undivided!r} do not partition its {total} records: {missing} records are missing, "
            f"{twice} are repeated."
        )


def _maker(caller: str, source: Any) -> Callable[[], Any]:
    if isinstance(source, (Source, StreamSource)):
        return lambda: source
    expected = "a source or a function that creates one"
    function(caller, "source", source, expected)

    def make() -> Any:
        created = source()
        if not isinstance(created, (Source, StreamSource)):
            raise TypeError(f"{caller} got a function as source that returns {shown(created)}, expected {expected}.")
        return created

    return make


def _with_random_access(caller: str, source: Any) -> Source:
    created = _maker(caller, source)()
    if not isinstance(created, Source):
        raise TypeError(f"{created!r} does not support random access. Use assert_resumes_everywhere.")
    return created


def _count(caller: str, source: Source, max_batches: Any) -> int:
    most = whole(caller, "max_batches", max_batches, 1, _MOST_BATCHES)
    return most if source.num_batches is None else min(most, source.num_batches)


def _batches(source: AnySource, start: int) -> Iterator[Any]:
    return (copied(batch) for batch in source.batches(start))


def _check_end(source: AnySource, seen: int, max_batches: int) -> None:
    declared = source.num_batches
    if declared is not None and min(declared, max_batches) != seen:
        raise AssertionError(f"{source!r} says num_batches={declared}, but delivers {seen} batches.")
    if declared is None or not isinstance(source, Source):
        return
    for beyond in (declared, -1):
        try:
            source.batch(beyond)
        except IndexError:
            continue
        raise AssertionError(
            f"{source!r} has {declared} batches, but batch({beyond}) returned a batch; it must raise IndexError."
        )
