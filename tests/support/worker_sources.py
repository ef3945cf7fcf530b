"""Sources for worker processes. This module must not import TensorFlow, because workers import it."""

from __future__ import annotations

import contextlib
import ctypes
import os
import pickle
import signal
import sys
import time
import types
import warnings
from collections.abc import Callable
from typing import Any

import numpy as np
from absl import logging

from staging_tf1.sources import ArraySource, RecordSource, Source, aligned_empty
from staging_tf1.spec import ArraySpec
from staging_tf1.testing.reads import copied


class OwnError(Exception):
    """An error whose constructor wants other arguments than it passes on."""

    def __init__(self, number: int, *, reason: str) -> None:
        super().__init__(f"{number}: {reason}")
        self.reason = reason


class Reporting(Source):
    """Batch `k` is what `make(k)` returns, the process that made it, and whether that has imported TensorFlow."""

    def __init__(self, count: int | None, make: Callable[[int], Any] = lambda index: np.array([index])) -> None:
        self._count, self._make = count, make

    spec = property(
        lambda self: {
            "x": ArraySpec((None,), np.int64),
            "pid": ArraySpec((), np.int64),
            "has_tf": ArraySpec((), np.bool_),
        }
    )
    batch_size = property(lambda self: 1)
    num_records = property(lambda self: self._count)
    batches_per_epoch = property(lambda self: self._count)
    num_batches = property(lambda self: self._count)

    def batch(self, index: int) -> Any:
        made = self._make(index)
        return {"x": made, "pid": np.array(os.getpid()), "has_tf": np.array("tensorflow" in sys.modules)}

    def shard(self, index: int, count: int) -> Source:
        assert self._count is not None
        own = range(index, self._count, count)
        return Reporting(len(own), lambda place: self._make(own[place]))

    def fingerprint(self) -> dict[str, int | str]:
        return {"source": "Reporting", "num_records": self._count or -1, "batch_size": 1}


class Each(Source):
    """The first `most` batches of each of `sources`, as one component: the numbers and bytes in them."""

    def __init__(self, sources: dict[str, Source], most: int) -> None:
        self.sources = sources
        self.wanted = [
            (name, number)
            for name, made in sources.items()
            for number in range(most if made.num_batches is None else min(most, made.num_batches))
        ]

    spec = property(lambda self: {"x": ArraySpec((None,), np.int64)})
    batch_size = property(lambda self: 1)
    num_records = property(lambda self: len(self.wanted))
    batches_per_epoch = property(lambda self: len(self.wanted))
    num_batches = property(lambda self: len(self.wanted))

    def batch(self, index: int) -> Any:
        name, number = self.wanted[index]
        assert not {"staging_tf1.workers.worker", "tensorflow"} <= sys.modules.keys(), "a worker imports TensorFlow"
        arrays = [array for _, array in copied(self.sources[name].batch(number))]
        text = b"".join(b"".join(map(_as_bytes, array.reshape(-1).tolist())) for array in arrays)
        return {"x": np.frombuffer(text, np.uint8).astype(np.int64)}

    def shard(self, index: int, count: int) -> Source:
        raise NotImplementedError

    def fingerprint(self) -> dict[str, int | str]:
        return {"source": "Each"}


def _as_bytes(value: Any) -> bytes:
    return value if isinstance(value, bytes) else repr(value).encode() + b" "


class Squares(RecordSource):
    """A source of numbered records, as users write one."""

    def record_spec(self, batch_dim: int | None) -> ArraySpec:
        return ArraySpec((batch_dim,), np.dtype(np.int64))

    def gather(self, records: Any) -> Any:
        if isinstance(records, slice):
            records = np.arange(records.start, records.stop, records.step)
        return records.astype(np.int64) ** 2


def positive(batch: Any) -> Any:
    """A transform without random numbers, for an array or a dict of arrays."""
    return {name: np.abs(array) for name, array in batch.items()} if isinstance(batch, dict) else np.abs(batch)


class Keeping(Reporting):
    """Writes all batches to the same array, which it makes with the first one."""

    gives_away = False

    def __init__(self) -> None:
        super().__init__(None)
        self._kept: Any = None

    def batch(self, index: int) -> Any:
        if self._kept is None:
            self._kept = aligned_empty(3, np.int64)
        self._kept[:] = index
        return {"x": self._kept}


def noisy(batch: Any, rng: np.random.Generator) -> Any:
    """A transform with random numbers, part of it in aligned memory."""
    out = aligned_empty(batch["x"].shape, np.float64)
    np.add(batch["x"], rng.random(batch["x"].shape), out=out)
    return {"x": out, "label": batch["label"] * 2}


def fail_at(bad: int, error: Callable[[], BaseException]) -> Callable[[int], Any]:
    """Make batches, and raise what `error` returns for number `bad`."""

    def make(index: int) -> Any:
        if index == bad:
            raise error()
        return np.array([index])

    return make


def die_at(bad: int, times: int, folder: str, signal_number: int = signal.SIGKILL) -> Callable[[int], Any]:
    """Make batches, and die of a signal the first `times` that number `bad` is made."""

    def make(index: int) -> Any:
        if index == bad:
            deaths = len(os.listdir(folder))
            if deaths < times:
                with open(os.path.join(folder, str(deaths)), "w"):
                    pass
                os.kill(os.getpid(), signal_number)
                time.sleep(60)
        return np.array([index])

    return make


def hang_at(bad: int) -> Callable[[int], Any]:
    """Make batches, and stay in a call of C that holds the GIL at number `bad`."""

    def make(index: int) -> Any:
        if index == bad:
            hold_the_lock()
        return np.array([index])

    return make


def hold_the_lock() -> None:
    """Wait in C, with the GIL, without an end. A signal ends one call."""
    while True:
        ctypes.PyDLL(None).sleep(60)


def chatty(index: int) -> Any:
    """Log, warn and print."""
    logging.error("logged in batch %d", index)
    warnings.warn(f"warned in batch {index}", UserWarning, stacklevel=1)
    print(f"printed in batch {index}", flush=True)
    return np.array([index])


def digits(count: int = 40, **options: Any) -> ArraySource:
    """Records whose batches tell whether they were mixed up."""
    arrays = {"x": np.arange(3.0 * count).reshape(count, 3), "label": np.arange(count)}
    return ArraySource(arrays, **{"batch_size": 4, "epochs": 2, **options})


def address_in_buffer(index: int) -> Any:
    """An array that tells its own address."""
    made = aligned_empty(2000, np.int64)
    made[:] = index
    made[0] = made.__array_interface__["data"][0]
    return made


def growing(index: int) -> Any:
    """Batches of 8 KB times their number."""
    return np.full(index * 1024 + 1, index, np.int64)


LARGEST = 4 << 20


def of_random_size(index: int) -> Any:
    """Batches of any size up to `LARGEST`."""
    return np.full(np.random.default_rng(index).integers(1, LARGEST // 8), index, np.int64)


def inheritable(index: int) -> Any:
    """The descriptors that a program started here would have, except the standard ones."""
    found = []
    for descriptor in map(int, os.listdir("/proc/self/fd")):
        with contextlib.suppress(OSError):  # that of the list itself is closed
            if descriptor > 2 and os.get_inheritable(descriptor):
                found.append(descriptor)
    return np.array(found, np.int64)


def a_megabyte(index: int) -> Any:
    """Batches of a megabyte."""
    made = aligned_empty(1 << 17, np.int64)
    made[:] = index
    return made


class OutOfBand:
    """A value that pickles with a buffer of its own, as pyarrow's do, and becomes a `bytearray`."""

    def __reduce_ex__(self, protocol: Any) -> Any:
        return bytearray, (pickle.PickleBuffer(bytearray(b"its own")),)


def odd_values(index: int) -> Any:
    """Values that are no arrays."""
    return types.MappingProxyType(
        {
            "buffer": OutOfBand(),
            "view": memoryview(np.arange(6)),
            "columns": memoryview(np.arange(6).reshape(2, 3)[:, ::2]),  # type: ignore[arg-type]
            "bytes": memoryview(b"abc"),
        }
    )


class Unloadable:
    """A function that cannot be unpickled."""

    def __call__(self, index: int) -> Any:
        return np.array([index])

    def __reduce__(self) -> Any:
        return _cannot_import, ()


def _cannot_import() -> None:
    raise ImportError("no module named x")


def numbers(count: int) -> ArraySource:
    """The ids 0, 1, 2, ... and their doubles, one record per batch."""
    ids = np.arange(count)
    return ArraySource({"id": ids, "double": 2 * ids}, batch_size=1, epochs=1)


def nine_and_a_half(index: int) -> Any:
    """Batches of 9.5 MB."""
    made = aligned_empty(19 << 16, np.int64)
    made[:] = index
    return made


def one_of_eight(index: int) -> Any:
    """Batches of 3 MB, of which number 4 takes longer and has 8 MB."""
    time.sleep(0.3 if index == 4 else 0)
    return np.full((8 if index == 4 else 3) << 17, index, np.int64)


def as_floats(batch: Any) -> Any:
    """A transform that quadruples the bytes of a batch."""
    return {"x": batch["x"].astype(np.float32)}


class LongImport:
    """A transform whose module takes long to import, in a worker process: until the test opens the pipe."""

    def __init__(self, pipe: str) -> None:
        self._pipe = pipe

    def __reduce__(self) -> Any:
        return importing, (self._pipe,)

    def __call__(self, batch: Any) -> Any:
        return batch


def importing(pipe: str) -> LongImport:
    """Wait for the other end of the pipe, as an import waits for a disk."""
    os.close(os.open(pipe, os.O_RDONLY))
    return LongImport(pipe)
