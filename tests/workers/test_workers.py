"""Worker processes without a session: the same batches as threads make, in memory that is not copied."""

from __future__ import annotations

import gc
import mmap
import os
import sys
import types
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import worker_sources
from pools import pools
from worker_sources import Reporting, digits

from staging_tf1 import sources
from staging_tf1.errors import SourceError
from staging_tf1.sources.aligned import is_aligned
from staging_tf1.spec import flatten
from staging_tf1.workers.buffers import Lent
from staging_tf1.workers.shipping import Shipment, unloaded


def assert_same(first: Any, second: Any) -> None:
    for left, right in zip(flatten(first), flatten(second), strict=True):
        assert left.dtype == right.dtype
        np.testing.assert_array_equal(left, right)


def address_of(array: np.ndarray[Any, Any]) -> int:
    return int(array.__array_interface__["data"][0])


def _saved(folder: Path) -> str:
    path = str(folder / "array.npy")
    np.save(path, np.arange(90).reshape(30, 3))
    return path


def test_a_transform_writes_into_the_buffer() -> None:
    """The array is where `aligned_empty` has put it: nobody copies it on its way, also not TensorFlow."""
    with pools(Reporting(4, worker_sources.address_in_buffer)) as (pool,):
        for number in range(4):
            batch = pool.make(number)
            array = batch["x"]
            assert type(array.base) is Lent and is_aligned(array) and array.flags.writeable
            # The worker wrote the offset in its own mapping of the buffer.
            offset = address_of(array) - address_of(array.base)
            assert array[0] % mmap.PAGESIZE == offset % mmap.PAGESIZE


def test_a_buffer_is_used_again_when_its_batch_is_gone() -> None:
    with pools(digits(400)) as (pool,):
        held = pool.make(0)
        places = {address_of(pool.make(number)["x"]) for number in range(1, 9)}
        assert len(places) == 1 and address_of(held["x"]) not in places
        np.testing.assert_array_equal(held["label"], [0, 1, 2, 3])
        once = pool.memory_bytes
        del held
        for number in range(20):
            pool.make(number)
        assert pool.memory_bytes == once


def test_a_source_that_keeps_its_arrays_is_copied() -> None:
    """The worker writes to the array again, in the buffer of a batch that is still in use."""
    with pools(worker_sources.Keeping()) as (pool,):
        batches = [pool.make(number) for number in range(5)]
        assert [batch["x"].tolist() for batch in batches] == [[number] * 3 for number in range(5)]


def test_values_that_are_no_arrays_arrive_as_they_are() -> None:
    with pools(Reporting(None, worker_sources.odd_values)) as (pool,):
        got = pool.make(0)["x"]
    assert type(got) is types.MappingProxyType
    assert bytes(got["buffer"]) == b"its own"
    expected = worker_sources.odd_values(0)
    for key in ("view", "columns", "bytes"):
        assert_same(got[key], np.asarray(expected[key]))


def test_buffers_grow_with_the_batches() -> None:
    source = Reporting(None, worker_sources.growing)
    with pools(source) as (pool,):
        for number in [0, 1, 30, 2, 200, 3]:
            assert_same(pool.make(number)["x"], worker_sources.growing(number))
        assert 200 * 8192 <= pool.memory_bytes < 2.5 * 200 * 8192


def test_a_batch_beyond_the_memory_limit_says_so() -> None:
    with pools(Reporting(None, worker_sources.a_megabyte), memory_limit=1 << 20) as (pool,):
        expected = r"'test/0': batch 7 needs 1,048,\d\d\d bytes of shared memory, but memory_limit is 1,048,576"
        with pytest.raises(SourceError, match=expected):
            pool.make(7)


def size_of(shipment: Shipment) -> int:
    return os.fstat(shipment.descriptor).st_size


def test_arrays_are_shared_and_not_pickled_into_each_worker() -> None:
    big = np.arange(3_000_000)
    source = digits().shard(0, 2), digits().shard(1, 2)
    shipments = [Shipment([sources.ArraySource(big, batch_size=4)]), Shipment(source)]
    try:
        assert big.nbytes < size_of(shipments[0]) < big.nbytes + 10_000
        both = sources.ArraySource(big, batch_size=4)
        shipments.append(Shipment([both.shard(0, 2), both.shard(1, 2)]))
        assert size_of(shipments[2]) < big.nbytes + 10_000, "the shards have the same array"
    finally:
        for shipment in shipments:
            shipment.close()


def test_memory_mapped_arrays_are_opened_again(tmp_path: Path) -> None:
    mapped = np.load(_saved(tmp_path), mmap_mode="r")
    np.save(tmp_path / "columns.npy", np.asfortranarray(np.arange(9000).reshape(1000, 9)))
    by_column = np.load(tmp_path / "columns.npy", mmap_mode="r")
    views = {"whole": mapped, "part": mapped[3:], "columns": mapped[:, ::2], "plain": np.asarray(mapped)[5:]}
    views |= {"by column": by_column, "a column": by_column[:, 3], "transposed": by_column.T, "rows": by_column[7::2]}
    views |= {"last columns": by_column[:, 5:], "backwards": by_column[::-1]}
    for name, view in views.items():
        shipment = Shipment([sources.ArraySource(view, batch_size=4, epochs=1)])
        try:
            assert size_of(shipment) < 4000
            (source,) = unloaded(os.dup(shipment.descriptor))
            assert_same(source.batch(0), view[:4]), name
        finally:
            shipment.close()


def test_memory_stays_flat_over_batches_of_all_sizes() -> None:
    """The shared memory is that of the largest batches, and the worker's own does not grow."""
    steps = int(os.environ.get("STAGING_TF1_WORKER_STEPS", "400"))
    with pools(Reporting(None, worker_sources.of_random_size), processes=2) as (pool,):
        rss = []
        for number in range(steps):
            assert (pool.make(number)["x"] == number).all()
            if number in (steps // 2, steps - 1):
                rss.append(sum(map(memory_of, [os.getpid(), *pool.pids])))
        assert pool.memory_bytes < 4 * 1.5 * worker_sources.LARGEST
        assert rss[1] < rss[0] + 2 * worker_sources.LARGEST


def memory_of(pid: int) -> int:
    """The memory of a process, in bytes."""
    with open(f"/proc/{pid}/statm") as file:
        return int(file.read().split()[1]) * mmap.PAGESIZE


def test_programs_that_a_source_starts_inherit_no_descriptor() -> None:
    with pools(Reporting(None, worker_sources.inheritable)) as (pool,):
        assert pool.make(0)["x"].tolist() == []


@pytest.mark.skipif(sys.version_info < (3, 13), reason="Python keeps a descriptor for each mapping")
def test_batches_that_are_held_need_no_descriptors() -> None:
    with pools(digits(400)) as (pool,):
        held = [pool.make(0)]
        before = len(os.listdir("/proc/self/fd")), len(os.listdir(f"/proc/{pool.pids[0]}/fd"))
        held += [pool.make(number) for number in range(1, 9)]
        assert (len(os.listdir("/proc/self/fd")), len(os.listdir(f"/proc/{pool.pids[0]}/fd"))) == before


def test_nothing_is_left_behind() -> None:
    with pools(digits()) as (pool,):
        pool.make(0)
    gc.collect()  # of earlier tests
    before = set(os.listdir("/proc/self/fd"))
    with pools(digits(), digits(), processes=2) as made:
        pids = []
        for pool in made:
            pool.make(0)
            pids += pool.pids
        assert len(set(pids)) == 4
    assert set(os.listdir("/proc/self/fd")) == before
    for pid in pids:
        with pytest.raises(ChildProcessError):
            os.waitpid(pid, os.WNOHANG)
