"""Assertions for your own sources: give them to your test suite, they are in ours.

Each takes a source, or better a function that makes one: then every restart gets a new source, as a new
process would. They raise `AssertionError` with the batch, the component and the first value that differs.
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

# Batches looked at after each restart: a position that is off by one, or a state that is half restored, shows
# at once.
_AFTER_RESTART = 3
# The batches that are compared are held in memory.
_MOST_BATCHES = 2**20


def assert_resumes_everywhere(source: AnySource | Callable[[], AnySource], *, max_batches: int = 64) -> None:
    """Asserts that a run restarted at any position goes on with exactly the next batch.

    Args:
      source: a source, or a function that makes one (called for each restart).
      max_batches: how many batches of a longer source to try; cross an end of epoch with them.

    Raises:
      AssertionError: a restarted source delivers other batches, or the end is not where `num_batches` says.
    """
    what = "assert_resumes_everywhere()"
    make = _maker(what, source)
    max_batches = whole(what, "max_batches", max_batches, 1, _MOST_BATCHES)
    reference = list(islice(_batches(make(), 0), max_batches))
    if not reference:
        raise AssertionError(f"{make()!r} delivers no batch at all, so there is nothing to resume.")
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
                f"{restarted!r} restarted at batch {start} ends after {len(resumed)} batches; read through, "
                f"at least {len(expected)} follow."
            )
        for offset, (got, wanted) in enumerate(zip(resumed, expected)):
            _assert_same(wanted, got, f"{restarted!r} restarted at batch {start}: batch {start + offset}")


def assert_deterministic(source: Source | Callable[[], Source], *, threads: int = 4, max_batches: int = 64) -> None:
    """Asserts that `batch(k)` depends on `k` only: not on what was read before, by which thread, or written
    to.

    Also that each batch fits `spec` and, if the source gives its arrays away, that it never touches them
    again.

    Args:
      source: a source with random access, or a function that makes one.
      threads: how many threads read at once, each in an order of its own.
      max_batches: how many batches of a longer source to try.

    Raises:
      AssertionError: a batch differs between two reads, or does not fit the spec.
    """
    what = "assert_deterministic()"
    threads = whole(what, "threads", threads, 1, MOST_THREADS)
    max_batches = whole(what, "max_batches", max_batches, 1, _MOST_BATCHES)
    tested = cast(Source, _maker(what, source)())
    if not isinstance(tested, Source):
        raise TypeError(f"{tested!r} has no random access. Use assert_resumes_everywhere.")
    count = max_batches if tested.num_batches is None else min(max_batches, tested.num_batches)
    reference = [_copied(_fitting(tested, number)) for number in range(count)]
    _assert_independent(tested, reference)
    _read_in_threads(tested, reference, threads)


def assert_shards_partition(source: Source | Callable[[], Source], n: int) -> None:
    """Asserts that `n` shards together deliver each record of one epoch once, balanced to one record.

    Records are told apart by their content, so leave out a `transform` that draws random numbers.

    Args:
      source: a source of finitely many records, or a function that makes one.
      n: the number of shards.

    Raises:
      AssertionError: records are missing, come twice, or the shards' sizes differ by more than one.
      ValueError: the source has no end of epoch, or leaves out records itself (`drop_remainder`).
    """
    what = "assert_shards_partition()"
    n = whole(what, "n", n, 1, INT64_MAX, "shards")
    undivided = cast(Source, _maker(what, source)())
    expected = Counter(_epoch_records(undivided))
    total = sum(expected.values())
    if total != undivided.num_records:
        raise ValueError(
            f"{undivided!r} delivers {total} of its {undivided.num_records} records in an epoch (drop_remainder?); "
            "test it with a source that delivers all."
        )
    shards = [undivided.shard(index, n) for index in range(n)]
    sizes = [sum(1 for _ in _epoch_records(shard)) for shard in shards]
    if max(sizes) - min(sizes) > 1:
        raise AssertionError(f"the shards of {undivided!r} are not balanced to one record: they have {sizes}.")
    union = Counter(record for shard in shards for record in _epoch_records(shard))
    missing, twice = sum((expected - union).values()), sum((union - expected).values())
    if missing or twice:
        raise AssertionError(
            f"{n} shards of {undivided!r} are no partition of its {total} records: {missing} records are in no "
            f"shard, {twice} are in one too many."
        )


def _maker(what: str, source: Any) -> Callable[[], Any]:
    if isinstance(source, (Source, StreamSource)):
        return lambda: source
    wanted = "a source or a function that makes one"
    function(what, "source", source, wanted)

    def make() -> Any:
        made = source()
        if not isinstance(made, (Source, StreamSource)):
            raise TypeError(f"{what} got a function as source that returns {shown(made)}, wanted {wanted}.")
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
            f"{source!r} has {declared} batches, but batch({beyond}) returned one; it must raise IndexError."
        )


def _fitting(source: Source, number: int) -> Any:
    batch = source.batch(number)
    try:
        conform(source.spec, batch, f"batch {number}")
    except ValueError as error:
        raise AssertionError(f"{source!r}: a batch does not fit the source's spec. {error}") from error
    return batch


def _assert_independent(source: Source, reference: list[Any]) -> None:
    """Reads backwards, and spoils what was returned if it was given away: the next read must not notice."""
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
        what = f"{source!r}: batch {number}, held while others were read (does the source reuse its arrays?)"
        _assert_same(reference[number], _copied(batch), what)


def _read_in_threads(source: Source, reference: list[Any], threads: int) -> None:
    barrier = threading.Barrier(threads)
    failures: list[BaseException] = []

    def read(thread: int) -> None:
        order = np.random.default_rng(thread).permutation(len(reference))
        barrier.wait()
        try:
            for number in order.tolist():
                what = f"{source!r}: batch {number}, read by {threads} threads at once"
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


def _assert_same(wanted: list[Any], got: list[Any], what: str) -> None:
    paths = [path for path, _ in wanted]
    if paths != [path for path, _ in got]:
        found = [path for path, _ in got]
        raise AssertionError(f"{what} has the components {found}, at first it had {paths}.")
    for (path, first), (_, second) in zip(wanted, got):
        component = f" component {path!r}" if path else ""
        if (first.dtype, first.shape) != (second.dtype, second.shape):
            raise AssertionError(
                f"{what}:{component} is {describe(second.dtype, second.shape)}, at first it was "
                f"{describe(first.dtype, first.shape)}."
            )
        differs = np.asarray(first != second)
        # What differs from itself is no number, in every dtype that has such.
        differs &= ~np.asarray((first != first) & (second != second))
        if differs.any():
            place = tuple(int(axis[0]) for axis in np.nonzero(differs))
            raise AssertionError(
                f"{what}:{component} differs in {int(differs.sum())} of {differs.size} values, first at "
                f"{list(place)}: at first {first[place]!r}, now {second[place]!r}."
            )


def _epoch_records(source: Source) -> Iterator[bytes]:
    batches = source.batches_per_epoch or source.num_batches
    if batches is None:
        raise ValueError(f"{source!r} has no end of epoch; give it epochs=1 to test its shards.")
    for number in range(batches):
        leaves = flatten(source.batch(number))
        for row in zip(*leaves):
            digest = hashlib.blake2b(digest_size=16)
            for value in row:
                digest.update(value if isinstance(value, bytes) else np.asarray(value).tobytes())
                digest.update(b"|")
            yield digest.digest()
