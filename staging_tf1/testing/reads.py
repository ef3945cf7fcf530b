"""How the assertions read a source: in other orders, by threads and by worker processes, compared with a first read."""

from __future__ import annotations

import hashlib
import sys
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any, cast

import numpy as np

from staging_tf1.sources.base import Source
from staging_tf1.spec import flatten, flatten_with_paths
from staging_tf1.spec.arrays import describe
from staging_tf1.spec.composite import arrays_of, as_composite, is_composite
from staging_tf1.spec.conform import conform
from staging_tf1.spec.ragged import RaggedValue
from staging_tf1.workers.pool import PoolOptions, WorkerPool
from staging_tf1.workers.shipping import Shipment


def copied(batch: Any) -> list[tuple[str, np.ndarray[Any, Any]]]:
    """Copy the arrays of a batch, each with the path of its component."""
    return [(path, np.array(array)) for path, leaf in flatten_with_paths(batch) for array in _arrays_in(leaf)]


def _arrays_in(leaf: Any) -> list[Any]:
    return arrays_of(as_composite(leaf) if is_composite(leaf) else leaf)


def assert_same(expected: list[Any], got: list[Any], label: str) -> None:
    """Raise AssertionError if two batches that `copied` returned differ: components, dtypes, shapes or values."""
    paths, got_paths = [path for path, _ in expected], [path for path, _ in got]
    if paths != got_paths:
        raise AssertionError(f"{label} has the components {got_paths}, expected {paths} as in the first read.")
    for (path, first), (_, second) in zip(expected, got):
        component = f" component {path!r}" if path else ""
        if (first.dtype, first.shape) != (second.dtype, second.shape):
            raise AssertionError(
                f"{label}:{component} is {describe(second.dtype, second.shape)}, expected "
                f"{describe(first.dtype, first.shape)} as in the first read."
            )
        differs = np.asarray(first != second)
        # Two NaNs count as equal. Only NaN differs from itself, in every dtype.
        differs &= ~np.asarray((first != first) & (second != second))
        if differs.any():
            index = tuple(int(axis[0]) for axis in np.nonzero(differs))
            raise AssertionError(
                f"{label}:{component} differs in {int(differs.sum())} of {differs.size} values, first at "
                f"{list(index)}: got {second[index]!r}, expected {first[index]!r} as in the first read."
            )


def fitting(source: Source, number: int) -> Any:
    """Read a batch. Raises AssertionError if it does not match the spec of its source."""
    batch = source.batch(number)
    try:
        conform(source.spec, batch, f"batch {number}")
    except ValueError as error:
        raise AssertionError(f"{source!r}: a batch does not match the spec of the source. {error}") from error
    return batch


def assert_independent(source: Source, reference: list[Any]) -> None:
    """Read backwards, and overwrite the results of sources with `gives_away`.

    Later reads must not be affected.
    """
    for number in reversed(range(len(reference))):
        batch = source.batch(number)
        assert_same(reference[number], copied(batch), f"{source!r}: batch {number}, read after later ones")
        if source.gives_away:
            for array in (array for leaf in flatten(batch) for array in _arrays_in(leaf)):
                array.fill(b"" if array.dtype.hasobject else 0)
    if not source.gives_away:
        return
    held = [source.batch(number) for number in range(len(reference))]
    for number, batch in enumerate(held):
        label = f"{source!r}: batch {number}, kept while others were read (does the source reuse its arrays?)"
        assert_same(reference[number], copied(batch), label)


def read_in_threads(source: Source, reference: list[Any], threads: int) -> None:
    """Read in several threads at the same time, each in an order of its own."""
    barrier = threading.Barrier(threads)

    def read(thread: int) -> None:
        order = np.random.default_rng(thread).permutation(len(reference))
        barrier.wait()
        for number in order.tolist():
            label = f"{source!r}: batch {number}, read by {threads} threads at the same time"
            assert_same(reference[number], copied(source.batch(number)), label)

    _in_threads(threads, read)


def read_in_processes(source: Source, reference: list[Any], trial: Trial, processes: int) -> None:
    """Read backwards, by as many threads as there are processes, so that no worker makes all batches in order."""

    def read(thread: int) -> None:
        for number in reversed(range(thread, len(reference), processes)):
            try:
                batch = trial.batch(number)
            except BaseException as error:
                raise AssertionError(
                    f"{source!r}: batch {number} raised in a worker process, but not here: {type(error).__name__}: "
                    f"{error}"
                ) from error
            label = f"{source!r}: batch {number}, made by a worker process (does it depend on a state of this process?)"
            assert_same(reference[number], copied(batch), label)

    _in_threads(processes, read)


def _in_threads(threads: int, read: Callable[[int], None]) -> None:
    with ThreadPoolExecutor(threads) as pool:
        for done in [pool.submit(read, thread) for thread in range(threads)]:
            done.result()


class Trial:
    """Worker processes for one source. A context manager, which ends them. Thread-safe.

    Attributes:
      has_tensorflow: whether a worker has imported TensorFlow so far.
    """

    def __init__(self, source: Source, processes: int) -> None:
        witness = cast(Source, _Witness(source))
        self._pool = WorkerPool(PoolOptions("trial", processes, Shipment([witness], users=1)))
        self.has_tensorflow = False

    def __enter__(self) -> Trial:
        return self

    def __exit__(self, *error: object) -> None:
        self._pool.end()

    def batch(self, number: int) -> Any:
        """Return batch `number`, made by a worker. Raises what the source raises, or why no worker can make it."""
        batch = self._pool.make(number)
        self.has_tensorflow |= bool(batch["tensorflow"])
        return batch["batch"]


class _Witness:
    """Wraps the source in a worker. `batch` also returns whether TensorFlow is imported there."""

    def __init__(self, source: Source) -> None:
        self._source, self.gives_away = source, source.gives_away

    def batch(self, index: int) -> Any:
        batch = self._source.batch(index)
        return {"batch": batch, "tensorflow": np.array("tensorflow" in sys.modules)}


def epoch_records(source: Source) -> Iterator[bytes]:
    """Yield a digest of each record of one epoch."""
    batches = source.batches_per_epoch or source.num_batches
    if batches is None:
        raise ValueError(f"{source!r} has no end of epoch. Test its shards with epochs=1.")
    for number in range(batches):
        leaves = flatten(source.batch(number))
        for row in zip(*map(_rows, leaves)):
            digest = hashlib.blake2b(digest_size=16)
            for value in row:
                digest.update(value if isinstance(value, bytes) else _content(np.asarray(value)))
                digest.update(b"|")
            yield digest.digest()


def _content(array: np.ndarray[Any, Any]) -> bytes:
    # The bytes of an array of strings are the addresses of its objects.
    return repr(array.tolist()).encode() if array.dtype.hasobject else array.tobytes()


def _rows(leaf: Any) -> Any:
    """The rows of a component: those of an array, or the text of those of a composite."""
    if not is_composite(leaf):
        return leaf
    composite = as_composite(leaf)
    if isinstance(composite, RaggedValue):
        return [repr(row).encode() for row in composite.to_list()]
    rows: list[list[Any]] = [[] for _ in range(len(composite))]
    for (row, *index), value in zip(np.asarray(composite.indices).tolist(), np.asarray(composite.values).tolist()):
        rows[row].append((index, value))
    return [repr(row).encode() for row in rows]
