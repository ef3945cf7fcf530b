"""Sources with a pace and with faults, and what they ought to deliver."""

from __future__ import annotations

import random
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import tensorflow.compat.v1 as tf
from soak.plan import Plan

from staging_tf1.sources import ArraySource, Source

# What the graph says of a bad record.
BAD_RECORD = "bad record"


class BrokenDiskError(Exception):
    """What a source raises at a bad record."""


ERRORS: dict[str, Callable[[str], Exception]] = {
    "BrokenDiskError": BrokenDiskError,
    "StopIteration": StopIteration,
    "OutOfRangeError": lambda text: tf.errors.OutOfRangeError(None, None, text),
    "AbortedError": lambda text: tf.errors.AbortedError(None, None, text),
}


def laid_out(layout: str, array: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    """The same numbers, as a file of another machine, a slice or a view of a record would give them."""
    if layout == "big-endian":
        return array.astype(array.dtype.newbyteorder(">"))
    if layout == "strided":
        return np.repeat(array, 2)[::2]
    if layout == "reversed":
        return array[::-1].copy()[::-1]
    if layout == "unaligned":
        return np.frombuffer(b"x" + array.tobytes(), np.uint8)[1:].view(array.dtype)
    if layout == "read-only":
        array.flags.writeable = False
    return array


class Pace:
    """How long somebody takes for the thing number n: not at all, computing, or waiting as on a slow disk."""

    def __init__(self, kind: str, seed: str) -> None:
        self._kind, self._seed = kind, seed
        self._never = threading.Event()

    def pause(self, number: int) -> None:
        if self._kind == "none":
            return
        choose = random.Random(f"{self._seed}/{number}")
        secs = choose.choice([0.0, 0.0005, 0.004])
        if self._kind == "wait":
            self._never.wait(secs)
            return
        until = time.perf_counter() + secs
        while time.perf_counter() < until:
            pass


class SoakSource(Source):
    """Record ids, and their doubles to see that components stay together."""

    def __init__(
        self,
        plan: Plan,
        raised: list[Exception],
        inner: Source | None = None,
        interrupt: Callable[[], None] = lambda: None,
    ) -> None:
        ids = np.arange(plan.records)
        self.inner = inner or ArraySource({"id": ids, "double": 2 * ids}, batch_size=plan.batch, epochs=1)
        self._plan, self._raised, self._interrupt = plan, raised, interrupt
        self._pace = Pace(plan.source_pace, f"{plan.seed}/source")
        # Which of the batches `as_generator` gives.
        self._part = slice(None)

    spec = property(lambda self: self.inner.spec)
    batch_size = property(lambda self: self.inner.batch_size)
    num_records = property(lambda self: self.inner.num_records)
    batches_per_epoch = property(lambda self: self.inner.batches_per_epoch)
    num_batches = property(lambda self: self.inner.num_batches)

    def batch(self, index: int) -> Any:
        self._pace.pause(index)
        if self._plan.stop == "interrupt" and index == self._plan.stop_at:
            self._interrupt()
        batch = self.inner.batch(index)
        if self._plan.bad.isdisjoint(batch["id"].tolist()):
            return {name: laid_out(self._plan.layout, array) for name, array in batch.items()}
        if self._plan.fault == "misfit":
            return {**batch, "double": batch["double"].astype(np.float64)}
        error = ERRORS[self._plan.error](f"batch {index}")
        self._raised.append(error)
        raise error

    def shard(self, index: int, count: int) -> SoakSource:
        return self._like(self.inner.shard(index, count))

    def _like(self, inner: Source) -> SoakSource:
        return SoakSource(self._plan, self._raised, inner, self._interrupt)

    def parts(self, count: int) -> list[SoakSource]:
        """The same source for `count` generators, of which each gives every so-manieth batch."""
        parts = [self._like(self.inner) for _ in range(count)]
        for n, part in enumerate(parts):
            part._part = slice(n, None, count)
        return parts

    def fingerprint(self) -> dict[str, int | str]:
        return self.inner.fingerprint()

    def as_generator(self) -> Iterator[Any]:
        """The same batches in the same two buffers, again and again."""
        buffers: dict[str, Any] = {}
        for index in range(self.num_batches)[self._part]:
            batch = self.batch(index)
            for name, array in batch.items():
                if name not in buffers or buffers[name].dtype != array.dtype:
                    buffers[name] = np.empty(self._plan.batch, array.dtype)
                buffers[name][: len(array)] = array
            yield {name: buffers[name][: len(array)] for name, array in batch.items()}


def good_batches(plan: Plan) -> list[list[list[int]]]:
    """For each tower the batches that must come, in order, if nothing ends the run before."""
    source: Any = SoakSource(plan, []).inner
    everything = ids_of(source)
    if plan.kind == "generators":
        parts = [everything[n :: plan.threads] for n in range(plan.threads)]
        return [[ids for part in parts for ids in (part if plan.fault == "none" else upto_first_bad(plan, part))]]
    if plan.streams and plan.fault != "none":
        # A generator does not go on after an exception.
        everything = upto_first_bad(plan, everything)
    if plan.streams or plan.from_dataset or "classic" in plan.kind:
        # Towers that share an input take turns; a bad batch costs none.
        everything = what_comes(plan, everything)
        per_tower = [everything[tower :: plan.towers] for tower in range(plan.towers)]
    else:
        shards = [source.shard(n, plan.towers) for n in range(plan.towers)] if plan.towers > 1 else [source]
        per_tower = [ids_of(shard) for shard in shards]
    return [what_comes(plan, batches) for batches in per_tower]


def ids_of(source: Source) -> list[list[int]]:
    assert source.num_batches is not None
    return [source.batch(k)["id"].tolist() for k in range(source.num_batches)]


def what_comes(plan: Plan, batches: list[list[int]]) -> list[list[int]]:
    """Those of the batches that are good, and that no bad one keeps from coming."""
    if plan.fault == "ignored":
        return [ids for ids in batches if plan.bad.isdisjoint(ids)]
    return upto_first_bad(plan, batches) if plan.fault != "none" and plan.in_order else batches


def upto_first_bad(plan: Plan, batches: list[list[int]]) -> list[list[int]]:
    bad = (n for n, ids in enumerate(batches) if not plan.bad.isdisjoint(ids))
    return batches[: next(bad, len(batches))]
