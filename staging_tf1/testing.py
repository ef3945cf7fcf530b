"""Assertions for the test suites of your own sources.

Our test suite uses them too. Each takes a source, or preferably a function that creates one, so that every restart gets
a new source as in a new process. They raise `AssertionError` with the batch, the component and the first value that
differs.
"""

from __future__ import annotations

import hashlib
import threading
from collections import Counter
from collections.abc import Callable, Iterator
from itertools import islice
from typing import Any, cast

import numpy as np

from staging_tf1.arguments import INT64_MAX, MOST_THREADS, function, shown, whole
from staging_tf1.arrays import describe
from staging_tf1.conform import conform
from staging_tf1.errors import StagingError
from staging_tf1.sources.base import Source, StreamSource
from staging_tf1.spec import flatten, flatten_with_paths

__all__ = ["assert_deterministic", "assert_resumes_everywhere", "assert_shards_partition"]

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
    what = "assert_resumes_everywhere()"
    make = _maker(what, source)
    max_batches = whole(what, "max_batches", max_batches, 1, _MOST_BATCHES)
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
            _assert_same(first, second, f"{restarted!r} restarted at batch {start}: batch {start + offset}")


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
    what = "assert_deterministic()"
    threads = whole(what, "threads", threads, 1, MOST_THREADS)
    max_batches = whole(what, "max_batches", max_batches, 1, _MOST_BATCHES)
    tested = cast(Source, _maker(what, source)())
    if not isinstance(tested, Source):
        raise TypeError(f"{tested!r} does not support random access. Use assert_resumes_everywhere.")
    count = max_batches if tested.num_batches is None else min(max_batches, tested.num_batches)
    reference = [_copied(_fitting(tested, number)) for number in range(count)]
    _assert_independent(tested, reference)
    _read_in_threads(tested, reference, threads)


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
    what = "assert_shards_partition()"
    n = whole(what, "n", n, 1, INT64_MAX, "shards")
    undivided = cast(Source, _maker(what, source)())
    expected = Counter(_epoch_records(undivided))
    total = sum(expected.values())
    if total != undivided.num_records:
        raise ValueError(
            f"{undivided!r} delivers {total} of its {undivided.num_records} records in an epoch (drop_remainder?). "
            "Use a source that delivers all records."
        )
    shards = [undivided.shard(index, n) for index in range(n)]
    sizes = [sum(1 for _ in _epoch_records(shard)) for shard in shards]
    if max(sizes) - min(sizes) > 1:
        raise AssertionError(f"the sizes of the shards of {undivided!r} differ by more than one record: {sizes}.")
    union = Counter(record for shard in shards for record in _epoch_records(shard))
    missing, twice = sum((expected - union).values()), sum((union - expected).values())
    if missing or twice:
        raise AssertionError(
            f"{n} shards of {undivided!r} do not partition its {total} records: {missing} records are missing, "
            f"{twice} are repeated."
        )


def _maker(what: str, source: Any) -> Callable[[], Any]:
    if isinstance(source, (Source, StreamSource)):
        return lambda: source
    expected = "a source or a function that creates one"
    function(what, "source", source, expected)

    def make() -> Any:
        made = source()
        if not isinstance(made, (Source, StreamSource)):
            raise TypeError(f"{what} got a function as source that returns {shown(made)}, expected {expected}.")
        return made

    return make


def _batches(source: AnySource, start: int) -> Iterator[Any]:
    return (_copied(batch) for batch in source.batches(start))


def _copied(batch: Any) -> list[tuple[str, np.ndarray[Any, Any]]]:
    return [(path, np.array(leaf)) for path, leaf in flatten_with_paths(batch)]


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


def _fitting(source: Source, number: int) -> Any:
    batch = source.batch(number)
    try:
        conform(source.spec, batch, f"batch {number}")
    except ValueError as error:
        raise AssertionError(f"{source!r}: a batch does not match the spec of the source. {error}") from error
    return batch


def _assert_independent(source: Source, reference: list[Any]) -> None:
    """Read backwards, and overwrite the results of sources with `gives_away`.

    Later reads must not be affected.
    """
    for number in reversed(range(len(reference))):
        batch = source.batch(number)
        _assert_same(reference[number], _copied(batch), f"{source!r}: batch {number}, read after later ones")
        if source.gives_away:
            for leaf in flatten(batch):
                leaf.fill(b"" if leaf.dtype.hasobject else 0)
    if not source.gives_away:
        return
    held = [source.batch(number) for number in range(len(reference))]
    for number, batch in enumerate(held):
        what = f"{source!r}: batch {number}, kept while others were read (does the source reuse its arrays?)"
        _assert_same(reference[number], _copied(batch), what)


def _read_in_threads(source: Source, reference: list[Any], threads: int) -> None:
    barrier = threading.Barrier(threads)
    failures: list[BaseException] = []

    def read(thread: int) -> None:
        order = np.random.default_rng(thread).permutation(len(reference))
        barrier.wait()
        try:
            for number in order.tolist():
                what = f"{source!r}: batch {number}, read by {threads} threads at the same time"
                _assert_same(reference[number], _copied(source.batch(number)), what)
        except BaseException as error:
            failures.append(error)

    workers = [threading.Thread(target=read, args=(index,)) for index in range(threads)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    if failures:
        raise failures[0]


def _assert_same(expected: list[Any], got: list[Any], what: str) -> None:
    paths, found = [path for path, _ in expected], [path for path, _ in got]
    if paths != found:
        raise AssertionError(f"{what} has the components {found}, expected {paths} as in the first read.")
    for (path, first), (_, second) in zip(expected, got):
        component = f" component {path!r}" if path else ""
        if (first.dtype, first.shape) != (second.dtype, second.shape):
            raise AssertionError(
                f"{what}:{component} is {describe(second.dtype, second.shape)}, expected "
                f"{describe(first.dtype, first.shape)} as in the first read."
            )
        differs = np.asarray(first != second)
        # Two NaNs count as equal. Only NaN differs from itself, in every dtype.
        differs &= ~np.asarray((first != first) & (second != second))
        if differs.any():
            place = tuple(int(axis[0]) for axis in np.nonzero(differs))
            raise AssertionError(
                f"{what}:{component} differs in {int(differs.sum())} of {differs.size} values, first at "
                f"{list(place)}: got {second[place]!r}, expected {first[place]!r} as in the first read."
            )


def _epoch_records(source: Source) -> Iterator[bytes]:
    batches = source.batches_per_epoch or source.num_batches
    if batches is None:
        raise ValueError(f"{source!r} has no end of epoch. Test its shards with epochs=1.")
    for number in range(batches):
        leaves = flatten(source.batch(number))
        for row in zip(*leaves):
            digest = hashlib.blake2b(digest_size=16)
            for value in row:
                digest.update(value if isinstance(value, bytes) else np.asarray(value).tobytes())
                digest.update(b"|")
            yield digest.digest()
