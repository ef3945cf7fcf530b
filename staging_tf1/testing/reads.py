"""Reads of a source in other orders, by several threads and by worker processes, compared with a first read."""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable
from typing import Any, cast

import numpy as np

from staging_tf1.sources.base import Source
from staging_tf1.spec import flatten
from staging_tf1.spec.conform import conform
from staging_tf1.testing.comparing import arrays_in, assert_same, copied
from staging_tf1.workers.pool import PoolOptions, WorkerPool
from staging_tf1.workers.shipping import SharedShipment


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
            for array in (array for leaf in flatten(batch) for array in arrays_in(leaf)):
                array.fill(b"" if array.dtype.hasobject else 0)
    if not source.gives_away:
        return
    held = [source.batch(number) for number in range(len(reference))]
    for number, batch in enumerate(held):
        what = f"{source!r}: batch {number}, kept while others were read (does the source reuse its arrays?)"
        assert_same(reference[number], copied(batch), what)


def read_in_threads(source: Source, reference: list[Any], threads: int) -> None:
    """Read in several threads at the same time, each in an order of its own."""
    barrier = threading.Barrier(threads)

    def read(thread: int) -> None:
        order = np.random.default_rng(thread).permutation(len(reference))
        barrier.wait()
        for number in order.tolist():
            what = f"{source!r}: batch {number}, read by {threads} threads at the same time"
            assert_same(reference[number], copied(source.batch(number)), what)

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
            what = f"{source!r}: batch {number}, made by a worker process (does it depend on a state of this process?)"
            assert_same(reference[number], copied(batch), what)

    _in_threads(processes, read)


def _in_threads(threads: int, read: Callable[[int], None]) -> None:
    """Call `read` with the number of each of several threads, and raise the first of their exceptions."""
    failures: list[BaseException] = []

    def guarded(thread: int) -> None:
        try:
            read(thread)
        except BaseException as error:
            failures.append(error)

    workers = [threading.Thread(target=guarded, args=(index,)) for index in range(threads)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    if failures:
        raise failures[0]


class Trial:
    """Worker processes for one source. A context manager, which ends them. Thread-safe.

    Attributes:
      has_tensorflow: whether a worker has imported TensorFlow so far.
    """

    def __init__(self, source: Source, processes: int) -> None:
        witness = cast(Source, _Witness(source))
        self._pool = WorkerPool(PoolOptions("trial", processes, SharedShipment([witness], users=1)))
        self.has_tensorflow = False

    def __enter__(self) -> Trial:
        return self

    def __exit__(self, *error: object) -> None:
        self._pool.end()

    def batch(self, number: int) -> Any:
        """Return batch `number`, made by a worker. Raises what the source raises, or why no worker can make it."""
        batch = self._pool.make(number).batch
        self.has_tensorflow |= bool(batch["tensorflow"])
        return batch["batch"]


class _Witness:
    """Wraps the source in a worker. `batch` also returns whether TensorFlow is imported there."""

    def __init__(self, source: Source) -> None:
        self._source, self.gives_away = source, source.gives_away

    def batch(self, index: int) -> Any:
        batch = self._source.batch(index)
        return {"batch": batch, "tensorflow": np.array("tensorflow" in sys.modules)}
