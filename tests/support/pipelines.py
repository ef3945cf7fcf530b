"""One pipeline of each kind, {classic, staged, lockstep} x {one thread, several} x {one tower, several}."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import tensorflow.compat.v1 as tf

import staging_tf1 as staging
from staging_tf1.graph.dependencies import ancestors
from staging_tf1.sources import ArraySource, GeneratorSource, Source

SPEC = {"id": tf.TensorSpec([None], tf.int64), "double": tf.TensorSpec([None], tf.int64)}


class BrokenDiskError(Exception):
    """What a source of the tests raises at a bad batch."""


class Numbers(Source):
    """The ids 0, 1, 2, ... and their doubles, one record per batch. `trouble` may replace a batch."""

    def __init__(self, count: int, trouble: Callable[[int, Any], Any] = lambda number, batch: batch) -> None:
        ids = np.arange(count)
        self._inner: Source = ArraySource({"id": ids, "double": 2 * ids}, batch_size=1, epochs=1)
        self._trouble = trouble

    spec = property(lambda self: self._inner.spec)
    batch_size = property(lambda self: 1)
    num_records = property(lambda self: self._inner.num_records)
    batches_per_epoch = property(lambda self: self._inner.batches_per_epoch)
    num_batches = property(lambda self: self._inner.num_batches)

    def batch(self, index: int) -> Any:
        batch = self._inner.batch(index)
        return self._trouble(int(batch["id"][0]), batch)

    def shard(self, index: int, count: int) -> Source:
        shard = Numbers(1, self._trouble)
        shard._inner = self._inner.shard(index, count)
        return shard

    def fingerprint(self) -> dict[str, int | str]:
        return self._inner.fingerprint()

    def stream(self) -> GeneratorSource:
        """The same as a stream, read front to back."""

        def numbers() -> Iterator[Any]:
            for index in range(self.num_batches):
                yield self.batch(index)

        return GeneratorSource(numbers, spec=SPEC)


def _classic(threads: int, towers: int, queue: str = "fifo", **more: Any) -> Callable[[Numbers, dict[str, Any]], Any]:
    def build(source: Numbers, options: dict[str, Any]) -> Any:
        queued = staging.CustomRunner(source, queue=queue, num_threads=threads, **options, **more).get_inputs()
        return staging.staged(queued, devices=["/cpu:0"] * towers)

    return build


def _staged(threads: int, towers: int, lockstep: bool, stream: bool) -> Callable[[Numbers, dict[str, Any]], Any]:
    def build(source: Numbers, options: dict[str, Any]) -> Any:
        values = source.stream() if stream else source
        places = ["/cpu:0"] * towers
        return staging.staged(values, devices=places, num_threads=threads, lockstep=lockstep, **options)

    return build


def _queue(threads: int) -> Callable[[Numbers, dict[str, Any]], Any]:
    def build(source: Numbers, options: dict[str, Any]) -> Any:
        return [staging.CustomRunner(source, queue="fifo", num_threads=threads, **options).get_inputs()]

    return build


# The name of a pipeline and its maker: maker(source, options) returns the batch of each tower.
PIPELINES: dict[str, Callable[[Numbers, dict[str, Any]], Any]] = {"queue": _queue(1), "queue, 3 threads": _queue(3)}
for _threads, _towers in ((1, 1), (3, 1), (1, 2), (3, 2)):
    _size = f"{_threads} threads, {_towers} towers"
    PIPELINES[f"classic, {_size}"] = _classic(_threads, _towers)
    for _kind, _stream in (("staged", False), ("stream", True)):
        PIPELINES[f"{_kind}, {_size}"] = _staged(_threads, _towers, False, _stream)
        if _threads == 1:
            PIPELINES[f"{_kind} in lockstep, {_towers} towers"] = _staged(1, _towers, True, _stream)

# The same of queues of records, which may shuffle.
RECORDS = {
    f"{queue} of records, {threads} threads": _classic(threads, 1, queue, batch_size=1, min_after_dequeue=None)
    for queue in ("fifo", "shuffle")
    for threads in (1, 4)
}
# For `slow_cases`: some threads and some towers, where the default run has one of each, and several of both.
MIDDLE_SIZES = ".*(1 threads, 2 towers|3 threads, 1 towers|lockstep, 1 towers).*"
INDEXED = [name for name in PIPELINES if not name.startswith("stream")]


def build(name: str, source: Numbers, **options: Any) -> Any:
    """Return the batches of the named pipeline over `source`, one for each tower."""
    return {**PIPELINES, **RECORDS}[name](source, options)


def to_the_end(run: Callable[[Any], Any], parts: list[Any]) -> list[list[int]]:
    """Return the ids of each tower: common steps while every tower has a batch, then each tower alone."""
    got: list[list[int]] = [[] for _ in parts]
    for towers in [range(len(parts)), *([n] for n in range(len(parts)))]:
        try:
            while True:
                for tower, batch in zip(towers, run([parts[n] for n in towers])):
                    assert 2 * batch["id"][0] == batch["double"][0], "the components of one batch"
                    got[tower].append(int(batch["id"][0]))
        except tf.errors.OutOfRangeError:
            continue
    return got


def half_a_get(taken: Any) -> Any:
    """What a step runs of a get if it fails right after: it takes and counts the element, and keeps the slot."""
    ops = list(ancestors([taken]))
    unstages = [op for op in ops if op.type == "Unstage"]
    counting = [op for op in ops if op.type == "AssignAddVariableOp" and op.inputs[0].op.name.endswith("_meter")]
    (op,) = unstages or counting
    return op
