"""Every public source, and every composition of two, makes the same batches in worker processes."""

from __future__ import annotations

import itertools
import os
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from pools import pools
from worker_sources import Each, Squares, digits, noisy, positive

from staging_tf1 import sources, testing
from staging_tf1.errors import RecordFileError, SourceError
from staging_tf1.sources import RecordSource, Source
from staging_tf1.workers.shipping import check_picklable

# Of all sources of records; so any two of them can be composed. They are 64-bit integers.
COUNT = 23
OPTIONS: dict[str, Any] = dict(batch_size=4, epochs=2, shuffle=True, seed=3)
# What is no source of numbered records; tests of their own have their batches.
STREAMS = {"GeneratorSource", "StreamSource"}
BASES = {"Source", "RecordSource"}


def of_records(folder: Path) -> dict[str, RecordSource]:
    """Each public source of records."""
    encoded = [str(number).encode() for number in range(COUNT)]
    np.save(folder / "mapped.npy", np.arange(COUNT))
    found: dict[str, RecordSource] = {
        "ArraySource": sources.ArraySource(np.arange(COUNT), **OPTIONS),
        "ArraySource, memory-mapped": sources.ArraySource(np.load(folder / "mapped.npy", mmap_mode="r"), **OPTIONS),
        "MapSource": sources.MapSource(list(range(COUNT)), **OPTIONS),
        "MapSource, loading": sources.MapSource(encoded, load=int, **OPTIONS),
        "CachedSource": sources.cached(np.arange(COUNT), folder / "cache", **OPTIONS),
        "TFRecordSource": sources.TFRecordSource(
            sources.write_tfrecords(encoded, str(folder / "n.tfrecord")), parse_fn=int, **OPTIONS
        ),
        "TFRecordSource, pread, cached": sources.TFRecordSource(
            str(folder / "n.tfrecord"), parse_fn=int, access="pread", cache_bytes=200, **OPTIONS
        ),
        "a user's": Squares(COUNT, **OPTIONS),
    }
    try:
        import array_record  # noqa: F401
    except ImportError:
        return found
    paths = sources.write_array_records(encoded, str(folder / "n.array_record"))
    return {**found, "ArrayRecordSource": sources.ArrayRecordSource(paths, parse_fn=int, **OPTIONS)}


def of_batches() -> dict[str, Source]:
    """Each public source whose batches somebody else makes."""
    batches = [np.arange(first, first + 4) for first in range(0, COUNT - 3, 4)]
    found: dict[str, Source] = {"SequenceSource": sources.SequenceSource(batches, epochs=2)}
    try:
        import grain
    except ImportError:
        return found
    return {**found, "GrainSource": sources.GrainSource(grain.MapDataset.range(COUNT).batch(4))}


def derived(name: str, source: RecordSource) -> dict[str, RecordSource]:
    """What the methods of a source make of it."""
    whole = {
        name: source,
        f"{name}.shard": source.shard(1, 3),
        f"{name}.with_options": source.with_options(batch_size=3, transform=positive),
        f"{name}.with_seed": source.with_seed(8),
    }
    if name.startswith("mix"):
        return whole  # which arranges the records
    first, rest = source.split(0.4, seed=2)
    return whole | {
        f"{name}.take": source.take(9),
        f"{name}.skip": source.skip(9),
        f"{name}.split 0": first,
        f"{name}.split 1": rest,
        f"{name}.by_length": source.by_length([number % 5 for number in range(source.num_records or 0)]),
    }


def composed(first_name: str, second_name: str, first: RecordSource, second: RecordSource) -> dict[str, RecordSource]:
    return {
        f"concatenate({first_name}, {second_name})": sources.concatenate([first, second]),
        f"mix({first_name}, {second_name})": sources.mix([first, second], [2, 1], seed=5),
        f"zip_records({first_name}, {second_name})": sources.zip_records({"a": first, "b": second}),
    }


def test_every_source_and_every_composition_of_two(tmp_path: Path) -> None:
    """One source has the batches of all others, because each start of processes takes a second."""
    records = of_records(tmp_path)
    unparsed = sources.TFRecordSource(str(tmp_path / "n.tfrecord"), **OPTIONS)
    randomized = digits(shuffle=True, seed=1, transform=noisy)
    everything: dict[str, Source] = {**of_batches(), "unparsed": unparsed, "with random numbers": randomized}
    for name, source in records.items():
        everything.update(derived(name, source))
    for (first_name, first), (second_name, second) in itertools.product(records.items(), repeat=2):
        everything.update(composed(first_name, second_name, first, second))
    for name, pair in composed("CachedSource", "a user's", records["CachedSource"], records["a user's"]).items():
        everything.update(derived(name, pair))
        if name.startswith("concatenate"):
            everything[f"concatenate({name}, MapSource)"] = sources.concatenate([pair, records["MapSource"]])
    for source in everything.values():
        assert check_picklable("staged()", source) is None, "no random generator"
    each = Each(everything, 2)
    testing.assert_works_in_processes(each, max_batches=each.num_batches)


def test_records_of_other_sizes_and_kinds(tmp_path: Path) -> None:
    """Strings, sparse layouts and several components, in a cache and out of it."""
    rows = [{"x": np.arange(n % 5 + 1), "text": b"t" * n, "name": f"n{n}"} for n in range(COUNT)]
    everything: dict[str, Source] = {}
    for name, source in {
        "MapSource": sources.MapSource(rows, **OPTIONS),
        "cached": sources.cached(rows, tmp_path / "cache", **OPTIONS),
    }.items():
        everything[f"{name}.pad"] = source.pad()
        everything[f"{name}.ragged"] = source.ragged()
        everything[f"{name}, concatenated"] = sources.concatenate([source, source.take(5)]).pad()
        everything[f"{name}, zipped"] = sources.zip_records({"a": source, "b": source}).pad()
    each = Each(everything, 3)
    testing.assert_works_in_processes(each, max_batches=each.num_batches)


def test_every_public_source_is_in_the_tables(tmp_path: Path) -> None:
    names = {name.partition(",")[0] for name in {**of_records(tmp_path), **of_batches()}}
    public = {name for name in sources.__all__ if name.endswith("Source")} - STREAMS - BASES
    missing = public - names
    assert missing <= {"ArrayRecordSource", "GrainSource"}, "where these packages are not installed"


def test_a_cache_is_mapped_once_for_all_its_parts(tmp_path: Path) -> None:
    source = sources.cached(np.arange(COUNT), tmp_path / "cache", **OPTIONS)
    parts = sources.concatenate([source.skip(number) for number in range(9)])
    with pools(Each({"one": source}, 1)) as (single,), pools(Each({"parts": parts}, 1)) as (several,):
        for pool in (single, several):
            pool.make(0)
        counts = [_mapped_files(pool.pids[0], str(tmp_path)) for pool in (single, several)]
    assert counts[0] == counts[1] > 0


def _mapped_files(pid: int, folder: str) -> int:
    with open(f"/proc/{pid}/maps") as file:
        return sum(folder in line for line in file)


def test_a_worker_refuses_a_cache_that_was_replaced(tmp_path: Path) -> None:
    source = sources.cached(np.arange(COUNT), tmp_path / "cache", **OPTIONS)
    expected = r"cannot load the source: RecordFileError: the cache '.*cache' was replaced by .*\w\. A worker"
    with pools(source) as (pool,):
        sources.cached(np.arange(COUNT) + 1, tmp_path / "cache", version=2, **OPTIONS)
        with pytest.raises(SourceError, match=expected):
            pool.make(0)
    # The same records in another cache are the same.
    sources.cached(np.arange(COUNT), tmp_path / "cache", version=3, **OPTIONS)
    with pools(source) as (pool,):
        np.testing.assert_array_equal(pool.make(1), source.batch(1))


def test_a_worker_finds_a_cache_by_its_whole_path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    source = sources.cached(np.arange(COUNT), "cache", **OPTIONS)
    os.mkdir("elsewhere")
    monkeypatch.chdir(tmp_path / "elsewhere")
    testing.assert_works_in_processes(source, processes=1, max_batches=2)
    with pytest.raises(RecordFileError, match="found no cache at path"):
        sources.CachedSource("cache", batch_size=4)
