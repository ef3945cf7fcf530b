"""`Preparing`: makes what is fed out of a batch of the source: checked, through `map_fn`, with the stream's state."""

from __future__ import annotations

import re
import threading
from collections.abc import Callable, Iterable
from typing import Any, NamedTuple

import numpy as np

from staging_tf1._tf import fast_callable, tf
from staging_tf1.feed.pipeline import MapOps, Mapped, Producer
from staging_tf1.graph.callsite import site_of_names
from staging_tf1.sources import Source
from staging_tf1.sources.aligned import aligned_copy
from staging_tf1.spec import flatten
from staging_tf1.spec.arrays import as_numpy_dtype


class Feeds(NamedTuple):
    """What is fed for one batch or block, in the order of the sink's placeholders; and the number of records in it."""

    arrays: list[np.ndarray[Any, Any]]
    records: int


class Preparing:
    """Prepares the batches of one producer in one session. Thread-safe.

    Args:
      producer: the producer, with the source that the session reads.
      map_ops: those of its `map_fn`; None if there is none.
    """

    def __init__(self, producer: Producer, map_ops: MapOps | None, session: Any) -> None:
        self._producer = producer
        self._map = None if map_ops is None else _BatchMap(producer, map_ops, session)

    @property
    def maps(self) -> bool:
        return self._map is not None

    def block(self, number: int, rows: Any, count: int) -> Feeds:
        """Prepare `count` full batches of a source with blocks, from `number` on, whose rows are in one array each."""
        flat = flatten(rows)
        records = len(flat[0])
        if not self._producer.plan.by_record:
            flat = [np.reshape(array, (count, records // count, *array.shape[1:])) for array in flat]
        if self._map is not None:
            flat += self._map.seeds(range(number, number + count))
        return Feeds(flat, records)

    def failed(self, number: int, error: tf.errors.OpError) -> tf.errors.OpError:
        """Return the error for batch `number` of a block, in which an op of `map_fn` has failed with `error`."""
        assert self._map is not None
        return self._map.failed(number, error)

    def __call__(self, number: int, batch: Any) -> Feeds:
        """Prepare the source's batch `number`.

        Raises:
          SpecError: the batch does not fit the spec.
          tf.errors.OpError: an op of `map_fn` failed.
        """
        arrays = self._producer.arrays(number, batch)
        records = self._producer.records(arrays)
        if self._map is not None:
            arrays = self._map(number, arrays)
        if self._producer.plan.keeps_state:
            arrays = [*arrays, self._producer.label(number)]
        return Feeds(arrays, records)


class _BatchMap:
    """Runs the ops of a `map_fn`, in the calling thread: several threads run it for several batches at once."""

    def __init__(self, producer: Producer, ops: MapOps, session: Any) -> None:
        mapped = producer.plan.inputs[producer.tower].mapped
        assert mapped is not None
        self._name, self._mapped, self._ops, self._session = producer.name, mapped, ops, session
        self._seeds = None if ops.seed is None else _seeds_of(producer.source)
        self._dtypes = [as_numpy_dtype(tensor.dtype) for tensor in ops.outputs]
        self._call: Callable[..., Any] | None = None
        # Held while the callable is made.
        self._making = threading.Lock()

    def __call__(self, number: int, arrays: list[np.ndarray[Any, Any]]) -> list[np.ndarray[Any, Any]]:
        call = self._call or self._make()
        try:
            results = call(*arrays, *[seed[0] for seed in self.seeds([number])])
        except tf.errors.CancelledError:
            raise
        except tf.errors.OpError as error:
            raise self.failed(number, error) from error
        return [_to_feed(*each) for each in zip(results, self._dtypes, self._mapped.copied, strict=True)]

    def seeds(self, numbers: Iterable[int]) -> list[np.ndarray[Any, Any]]:
        return [] if self._seeds is None else [np.array([self._seeds(number) for number in numbers], np.int64)]

    def failed(self, number: int, error: tf.errors.OpError) -> tf.errors.OpError:
        """Return the error for a batch for which an op of it has failed."""
        text = f"'{self._name}': map_fn {self._mapped.name} failed for batch {number}{_where(error, self._mapped)}"
        return type(error)(error.node_def, error.op, f"{text}: {error.message}")

    def _make(self) -> Callable[..., Any]:
        ops = self._ops
        with self._making:
            if self._call is None:
                feeds = [*ops.placeholders, *([] if ops.seed is None else [ops.seed])]
                self._call = fast_callable(
                    self._session, feeds=feeds, targets=(), fetches=ops.outputs, in_caller_thread=True
                )
            return self._call


def _to_feed(result: Any, dtype: np.dtype[Any], copied: bool) -> np.ndarray[Any, Any]:
    """Return the array to feed for a fetched tensor.

    It is TensorFlow's own memory, which is read in place when it is fed, unless a Python function has returned it:
    TensorFlow uses aligned arrays of the program in place, and the program may write to them again.
    """
    # A scalar is fetched as a number or as bytes, and quantized numbers as plain integers.
    array = np.asarray(result, object if dtype.hasobject else None)
    if array.dtype != dtype:
        array = array.view(dtype)
    return aligned_copy(array) if copied and not dtype.hasobject else array


def _seeds_of(source: Any) -> Callable[[int], tuple[int, int]]:
    """Return a function that makes the seed of a batch from its number: different for all batches of all shards."""
    assert isinstance(source, Source) and source.seed is not None
    seed, fingerprint = source.seed, source.fingerprint()
    index, count = int(fingerprint.get("shard_index", 0)), int(fingerprint.get("shard_count", 1))
    return lambda number: (seed, number * count + index)


def _where(error: tf.errors.OpError, mapped: Mapped) -> str:
    """Return the user's line that has made the op that failed; nothing if the op is unknown, or one of several."""
    # TensorFlow puts the name of a call before those of the ops that it has moved out of the function.
    named = {name.rpartition("PartitionedCall/")[2] for name in re.findall(r"{{node ([^}]+)}}", error.message)}
    site = site_of_names(mapped.function.graph, named)
    return "" if site is None else f", at {site}"
