"""The assertions for users' sources: what they accept, and how they name each fault."""

from __future__ import annotations

import itertools
import os
import sys
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

from staging_tf1.sources import ArraySource, GeneratorSource, aligned_empty
from staging_tf1.testing import (
    assert_deterministic,
    assert_resumes_everywhere,
    assert_shards_partition,
    assert_works_in_processes,
)


def _source(**options: Any) -> ArraySource:
    arrays = {"x": np.arange(10), "y": np.linspace(0, 1, 20).reshape(10, 2)}
    return ArraySource(arrays, **{"batch_size": 3, "epochs": 2, "seed": 1, **options})


@pytest.mark.parametrize("shuffle", [False, True])
@pytest.mark.parametrize("across_epochs", [False, True])
def test_array_sources_keep_every_promise(shuffle: bool, across_epochs: bool) -> None:
    def make() -> ArraySource:
        return _source(shuffle=shuffle, across_epochs=across_epochs)

    assert_resumes_everywhere(make)
    assert_deterministic(make, threads=4)
    for n in (1, 2, 3, 10):
        assert_shards_partition(_source(shuffle=shuffle, epochs=1, across_epochs=across_epochs), n)


def test_random_transforms_depend_on_the_batch_number_only() -> None:
    def add_noise(batch: dict[str, Any], rng: np.random.Generator) -> dict[str, Any]:
        return {"x": batch["x"], "y": batch["y"] + rng.normal(size=batch["y"].shape)}

    assert_resumes_everywhere(lambda: _source(shuffle=True, transform=add_noise))
    assert_deterministic(_source(shuffle=True, transform=add_noise), threads=3)


class _Broken(ArraySource):
    """An ArraySource whose `batch` a test replaces."""

    def __init__(self, **options: Any) -> None:
        super().__init__(np.arange(12, dtype=np.int64), batch_size=4, epochs=1, **options)
        self.reads = itertools.count()


class _DependsOnReads(_Broken):
    def batch(self, index: int) -> Any:
        return super().batch(index) + next(self.reads)


class _ReusesItsArray(_Broken):
    _kept = np.zeros(4, np.int64)

    def batch(self, index: int) -> Any:
        self._kept[...] = super().batch(index)
        return self._kept


class _AnotherDtype(_Broken):
    def batch(self, index: int) -> Any:
        return super().batch(index).astype(np.int32)


class _NoEnd(_Broken):
    def batch(self, index: int) -> Any:
        return super().batch(index % 3)


class _OverlappingShards(_Broken):
    def shard(self, index: int, count: int) -> Any:
        return super().shard(0, count)


FAULTS: list[tuple[Any, Any, str]] = [
    (
        assert_deterministic,
        _DependsOnReads,
        r"differs in 4 of 4 values, first at \[0\]: got .*11.*, expected .*10.* as",
    ),
    (assert_deterministic, _ReusesItsArray, r"batch 0, kept while others were read \(does the source reuse its"),
    (assert_deterministic, _AnotherDtype, r"does not match the spec of the source\. batch 0: .*int32 \[4\], expected"),
    (assert_resumes_everywhere, _NoEnd, r"has 3 batches, but batch\(3\) returned a batch; it must raise IndexError"),
    (
        lambda make: assert_shards_partition(make, 2),
        _OverlappingShards,
        r"its 12 records: 6 records are missing, 6 are repeated\.$",
    ),
]


@pytest.mark.parametrize(("check", "make", "message"), FAULTS, ids=[make.__name__ for _, make, _ in FAULTS])
def test_a_fault_is_named(check: Any, make: Any, message: str) -> None:
    with pytest.raises(AssertionError, match=message):
        check(make)


def test_sources_that_leave_out_records_cannot_be_tested_for_partition() -> None:
    with pytest.raises(ValueError, match=r"delivers 9 of its 10 records in an epoch \(drop_remainder\?\)"):
        assert_shards_partition(_source(drop_remainder=True), 2)


def _counting() -> Iterator[np.ndarray]:
    for number in range(4):
        yield np.full(2, number)


def test_a_generator_resumes_by_skipping_only_if_told_to() -> None:
    assert_resumes_everywhere(lambda: GeneratorSource(_counting, resume="skip"))
    message = r"^GeneratorSource\(_counting\) does not resume at batch 1: generator '_counting' cannot resume at"
    with pytest.raises(AssertionError, match=message):
        assert_resumes_everywhere(GeneratorSource(_counting))


def test_a_generator_that_yields_something_else_each_time_is_caught() -> None:
    passes = itertools.count()

    def drifting() -> Iterator[np.ndarray]:
        first = next(passes)
        for number in range(4):
            yield np.full(2, number + first)

    with pytest.raises(AssertionError, match=r"restarted at batch 0: batch 0: differs in 2 of 2 values"):
        assert_resumes_everywhere(lambda: GeneratorSource(drifting, resume="skip"))


def test_streams_have_no_batch_numbers_to_be_deterministic_about() -> None:
    with pytest.raises(TypeError, match=r"does not support random access\. Use assert_resumes_everywhere\.$"):
        assert_deterministic(GeneratorSource(_counting))  # type: ignore[arg-type]


def test_nan_equals_nan_and_given_away_arrays_may_be_spoiled() -> None:
    source = ArraySource(np.array([np.nan, 1.0, np.nan]), batch_size=2, epochs=1)
    assert_deterministic(source)
    mine = aligned_empty(3, np.float32)
    mine[...] = 1
    assert_deterministic(ArraySource(mine, batch_size=2, epochs=1))


class _HoldsAGenerator(ArraySource):
    def __init__(self) -> None:
        super().__init__(np.arange(12), batch_size=4, epochs=1)
        self.words = {"new": (word for word in ())}


class _KnowsItsProcess(ArraySource):
    """Counts from 0 in a worker process, and from 100 in the process that made it."""

    def __init__(self) -> None:
        super().__init__(np.arange(12), batch_size=4, epochs=1)
        self.home = os.getpid()

    def batch(self, index: int) -> Any:
        return super().batch(index) + (0 if self.home != os.getpid() else 100)


class _RaisesElsewhere(_KnowsItsProcess):
    def batch(self, index: int) -> Any:
        if self.home != os.getpid() and index < 2:
            raise KeyError("no such setting")
        return ArraySource.batch(self, index)


class _NeedsTensorFlow(_KnowsItsProcess):
    def batch(self, index: int) -> Any:
        if self.home != os.getpid():
            # As if it were imported: a real import takes seconds.
            sys.modules["tensorflow"] = sys
        return ArraySource.batch(self, index)


def test_sources_work_in_processes() -> None:
    assert_works_in_processes(lambda: _source(shuffle=True), processes=1)
    endless = _source(epochs=None, transform=lambda batch, rng: {"x": batch["x"] + rng.integers(9)})
    assert_works_in_processes(endless, processes=1, max_batches=5)


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (
            _HoldsAGenerator,
            "staged(_HoldsAGenerator) got num_processes= with a source that cannot be moved to another process: "
            "_HoldsAGenerator.words['new'] is a generator (TypeError: cannot pickle",
        ),
        (_KnowsItsProcess, "made by a worker process (does it depend on a state of this process?): differs in 4 of 4"),
        (_RaisesElsewhere, "batch 1 raised in a worker process, but not here: KeyError: 'no such setting'"),
        (_NeedsTensorFlow, "a worker process has imported TensorFlow to load"),
    ],
)
def test_what_does_not_work_in_processes_is_told(make: Any, message: str) -> None:
    with pytest.raises(AssertionError) as raised:
        assert_works_in_processes(make, processes=1)
    assert message in str(raised.value)


def test_a_worker_may_import_tensorflow_if_the_test_says_so() -> None:
    assert_works_in_processes(_NeedsTensorFlow, processes=1, allow_tensorflow=True)


def test_a_stream_does_not_work_in_processes() -> None:
    with pytest.raises(TypeError, match="does not support random access"):
        assert_works_in_processes(GeneratorSource(lambda: iter([np.zeros(1)])))  # type: ignore[arg-type]
