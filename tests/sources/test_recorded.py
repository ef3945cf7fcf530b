"""Sources deliver what `recorded.json` holds: the same fingerprints, batches, cache keys and checkpoints.

A change here makes checkpoints and caches of earlier versions invalid. Run this file as a program to record new
sources: those that are recorded stay as they are.
"""

from __future__ import annotations

import copy
import hashlib
import json
import pickle
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import cloudpickle
import numpy as np
import pytest
import tensorflow.compat.v1 as tf
from recorded import train, variables_in, write_checkpoint

import staging_tf1 as staging
from staging_tf1 import sources, testing
from staging_tf1.spec import flatten, flatten_with_paths
from staging_tf1.spec.ragged import RaggedValue

RECORDED = Path(__file__).with_name("recorded.json")
# Batches whose contents are recorded.
BATCHES = 12
# How many batches the recorded checkpoint has consumed.
CONSUMED = 3


def numbered(count: int = 23, **options: Any) -> sources.ArraySource:
    given = dict(batch_size=4, shuffle=True, seed=7, epochs=3)
    return sources.ArraySource({"i": np.arange(count), "s": np.arange(count) ** 2}, **{**given, **options})


def of_files(folder: Path, **options: Any) -> sources.TFRecordSource:
    files = [str(folder / name) for name in ("a.tfrecord", "b.tfrecord")]
    if not Path(files[0]).exists():
        for first, file in zip((0, 13), files):
            sources.write_tfrecords([str(n).encode() for n in range(first, first + 13)], file)
    return sources.TFRecordSource(files, **{**dict(batch_size=4, shuffle=True, seed=7, epochs=2), **options})


def sentences(**options: Any) -> sources.MapSource:
    records = [{"words": np.arange(1 + n % 5), "n": n} for n in range(19)]
    return sources.MapSource(records, **{**dict(batch_size=4, shuffle=True, seed=7, epochs=2), **options})


def words() -> sources.MapSource:
    return sources.MapSource([np.arange(n, n + 1 + n % 5) for n in range(29)], batch_size=3, shuffle=True, seed=7)


def in_cache(folder: Path, **options: Any) -> sources.CachedSource:
    rows = lambda: ({"i": n, "words": np.arange(n % 3)} for n in range(11))  # noqa: E731
    return sources.cached(
        rows, folder / "cache", version=1, progress=False, batch_size=3, seed=7, shuffle=True, **options
    )


def noisy(batch: Any, rng: np.random.Generator) -> Any:
    return {**batch, "noise": rng.integers(1000, size=len(batch["i"]))}


class Squares(sources.RecordSource):
    """A subclass as a user writes it."""

    def record_spec(self, batch_dim: int | None) -> Any:
        return sources.ArraySource(np.arange(1), batch_size=1).record_spec(batch_dim)

    def gather(self, records: Any) -> Any:
        if isinstance(records, slice):
            records = np.arange(records.start, records.stop, records.step)
        return np.asarray(records) ** 2


KEYS = [f"key {n % 5}" for n in range(23)]
SOURCES: dict[str, Callable[[Path], sources.RecordSource]] = {
    "array": lambda _: numbered(),
    "array in order": lambda _: numbered(shuffle=False, seed=None),
    "array across epochs": lambda _: numbered(across_epochs=True, epochs=None),
    "array without remainder": lambda _: numbered(drop_remainder=True),
    "shard": lambda _: numbered(shard=(1, 3)),
    "shard of a shard": lambda _: numbered().shard(1, 2).shard(1, 2),
    "transform": lambda _: numbered(transform=noisy),
    "transform of a shard": lambda _: numbered(shuffle=False, transform=noisy).shard(1, 2),
    "another seed": lambda _: numbered().with_seed(9),
    "other options": lambda _: numbered().with_options(batch_size=5, shuffle=False, epochs=1),
    "take": lambda _: numbered().take(9),
    "skip": lambda _: numbered().skip(4).shard(0, 2),
    "split": lambda _: numbered().split(0.7, seed=1)[0],
    "other part of a split": lambda _: numbered().split(0.7, seed=1)[1].take(4),
    "split by key": lambda _: numbered().split(0.5, seed=1, key=KEYS)[1],
    "selected": lambda _: numbered().select([3, 22, 3, 5, 0, 9]).skip(1),
    "weighted": lambda _: numbered(shuffle=False).weighted(range(23), num_records=40),
    "balanced": lambda _: numbered(seed=None).select(range(10)).balanced([n % 3 for n in range(10)], seed=2),
    "packed": lambda _: words().skip(2).packed(7, [1 + n % 5 for n in range(2, 29)]).shard(1, 2),
    "subclass": lambda _: Squares(23, batch_size=4, shuffle=True, seed=7).skip(2),
    "files": lambda folder: of_files(folder),
    "parsed files": lambda folder: of_files(folder, parse_fn=int, cache_bytes=100).take(20).shard(1, 2),
    "files of bytes": lambda folder: of_files(folder, as_uint8=True).take(10),
    "map": lambda _: sentences().pad().shard(1, 2),
    "padded by length": lambda _: sentences().pad(8).by_length([1 + n % 5 for n in range(19)], block=2),
    "padded in order": lambda _: sentences(shuffle=False, seed=None).pad().by_length([n % 5 for n in range(19)]),
    "ragged": lambda _: sentences(collate="ragged").skip(1),
    "sequence": lambda _: sources.SequenceSource([[1, 2], [3, 4], [5]], shuffle=True, seed=7, epochs=2),
    "cached": lambda folder: in_cache(folder).pad(),
    "concatenated": lambda _: sources.concatenate([numbered().take(5), numbered(9)]).skip(1),
    "concatenated files": lambda folder: sources.concatenate([of_files(folder), of_files(folder).take(3)]),
    "zipped": lambda _: sources.zip_records({"a": numbered(), "b": numbered().take(30)}).shard(0, 2),
    "mixed": lambda _: sources.mix([numbered(), numbered(9).skip(1)], [2, 1]),
    "mixed in order": lambda _: sources.mix([numbered(shuffle=False), numbered(9, shuffle=False)], seed=3).shard(1, 2),
    "mixed by length": lambda _: sources.mix([sentences(), sentences()], [0.3, 0.7]).pad(),
}


# Those that a run trains and restores: all ways to arrange records.
CHECKPOINTS = (
    "array",
    "split by key",
    "shard of a shard",
    "padded by length",
    "concatenated files",
    "zipped",
    "mixed",
    "weighted",
)


def digest(source: sources.Source) -> str:
    """A hash of the spec and the first batches."""
    told = [repr(source.spec)]
    for batch in [source.batch(k) for k in range(min(BATCHES, source.num_batches or BATCHES))]:
        for path, leaf in flatten_with_paths(batch):
            told.append(f"{path} {leaf.to_list() if isinstance(leaf, RaggedValue) else leaf.tolist()}")
    return hashlib.sha256("\n".join(told).encode()).hexdigest()[:16]


def described(source: sources.RecordSource) -> dict[str, Any]:
    described: dict[str, Any] = {"fingerprint": source.fingerprint(), "batches": digest(source)}
    described["records"] = [source.record_ids(k).tolist() for k in range(min(3, source.num_batches or 3))]
    with tempfile.TemporaryDirectory() as folder:
        try:
            described["cached"] = sources.cached(source, f"{folder}/cache", batch_size=1, progress=False).num_records
        except ValueError:  # padded, or a random transform
            return described
        key = json.loads(Path(folder, "cache", "manifest.json").read_text())["key"]
    described["cache key"] = {name: key[name] for name in key if name not in ("version", "files", "batched", "limit")}
    return described


def run(source: sources.Source, folder: Path, steps: int) -> list[Any]:
    """Train some steps from the checkpoint in a folder, and save one. Returns the first component of each batch."""
    with tf.Graph().as_default():
        return [flatten(batch)[0].tolist() for batch in train(staging.staged(source), folder, steps)]


@pytest.mark.parametrize("name", SOURCES)
def test_a_source_is_as_it_was_recorded(name: str, tmp_path: Path) -> None:
    recorded = json.loads(RECORDED.read_text())["sources"][name]
    assert json.loads(json.dumps(described(SOURCES[name](tmp_path)))) == recorded


# Whose rows depend on their batch, or whose batches are no records.
NOT_DIVIDED = (
    *("array without remainder", "transform", "transform of a shard"),
    *("map", "padded in order", "mixed by length", "sequence"),
)


@pytest.mark.parametrize("name", SOURCES)
def test_a_source_keeps_the_promises_of_all_sources(name: str, tmp_path: Path) -> None:
    source = SOURCES[name](tmp_path)
    testing.assert_resumes_everywhere(source, max_batches=15)
    testing.assert_deterministic(source, threads=3, max_batches=8)
    if name not in NOT_DIVIDED:
        testing.assert_shards_partition(source.with_options(epochs=1, across_epochs=False), 2)
    for other in (pickle.loads(cloudpickle.dumps(source)), copy.copy(source), copy.deepcopy(source)):
        assert other.fingerprint() == source.fingerprint() and digest(other) == digest(source)


@pytest.mark.parametrize("name", CHECKPOINTS)
@pytest.mark.usefixtures("quick_graphs")
def test_a_recorded_checkpoint_restores(name: str, tmp_path: Path) -> None:
    write_checkpoint(tmp_path, json.loads(RECORDED.read_text())["checkpoints"][name])
    source = SOURCES[name](tmp_path)
    expected = [flatten(source.batch(k))[0].tolist() for k in (CONSUMED, CONSUMED + 1)]
    assert run(source, tmp_path, 2) == expected


def record() -> None:
    """Add sources that are not recorded yet."""
    recorded = json.loads(RECORDED.read_text()) if RECORDED.exists() else {"sources": {}, "checkpoints": {}}
    for name, source in SOURCES.items():
        with tempfile.TemporaryDirectory() as folder:
            if name not in recorded["sources"]:
                recorded["sources"][name] = described(source(Path(folder)))
            if name in CHECKPOINTS and name not in recorded["checkpoints"]:
                run(source(Path(folder)), Path(folder), CONSUMED)
                recorded["checkpoints"][name] = variables_in(Path(folder))
    RECORDED.write_text(json.dumps(recorded, indent=1, sort_keys=True) + "\n")


if __name__ == "__main__":
    record()
