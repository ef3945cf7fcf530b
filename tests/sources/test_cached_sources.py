"""sources.cached of other sources: a cache has the rows of the source's batches, for one epoch without a shuffle."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from staging_tf1.errors import RecordFileError
from staging_tf1.sources import (
    ArraySource,
    MapSource,
    SequenceSource,
    cached,
    concatenate,
    mix,
    zip_records,
)
from staging_tf1.sources.records import RecordSource

ONCE: dict[str, Any] = dict(batch_size=4, epochs=1)
READ: dict[str, Any] = dict(batch_size=1000, epochs=1, progress=False)


def arrays(start: int, count: int) -> RecordSource:
    return ArraySource(np.arange(start, start + count), **ONCE)


def mixture(seed: int | None = 3) -> RecordSource:
    return mix([arrays(0, 12), arrays(100, 5)], weights=[0.5, 0.5], seed=seed)


def collated(start: int = 0) -> RecordSource:
    data = list(range(start, start + 10))
    return MapSource(data, collate=lambda records: np.array(records) * 10, **ONCE)


KINDS: dict[str, Callable[[], Any]] = {
    "arrays": lambda: arrays(0, 10),
    "map": lambda: MapSource(list(range(10)), **ONCE),
    "sequence": lambda: SequenceSource([np.arange(4), np.arange(3)], epochs=1),
    "take": lambda: arrays(0, 10).take(7),
    "skip": lambda: arrays(0, 10).skip(3),
    "split": lambda: arrays(0, 10).split(0.6, seed=1)[0],
    "shard": lambda: arrays(0, 10).shard(1, 3),
    "transform": lambda: arrays(0, 10).with_options(transform=lambda batch: batch * 2),
    "concatenation": lambda: concatenate([arrays(0, 5), arrays(100, 6)]),
    "zipped": lambda: zip_records((arrays(0, 9), arrays(100, 9))),
    "collate": collated,
    "shard of collate": lambda: collated().shard(1, 3),
    "concatenation of collate": lambda: concatenate([arrays(0, 5), collated()]),
    "zipped with collate": lambda: zip_records((arrays(0, 10), collated())),
    "mixture with collate": lambda: mix([arrays(0, 10), collated()], seed=1),
    "mixture": mixture,
    "shard of a mixture": lambda: mixture().shard(1, 2),
    "mixture with a transform": lambda: mixture().with_options(transform=lambda batch: batch * 2),
}


@pytest.mark.parametrize("kind", KINDS)
def test_a_cache_has_the_rows_of_the_batches(kind: str, tmp_path: Path) -> None:
    source = KINDS[kind]()
    batches = [source.batch(k) for k in range(source.num_batches)]
    wanted = np.concatenate([np.stack(b, 1) if isinstance(b, tuple) else b for b in batches]).tolist()
    found = cached(source, tmp_path / "cache", **READ).batch(0)
    assert (np.stack(found, 1) if isinstance(found, tuple) else found).tolist() == wanted


@pytest.mark.parametrize("kind", ["pandas.DataFrame", "pandas.Series", "h5py.Dataset", "dict of h5py.Dataset"])
def test_tables_are_no_batches(kind: str, tmp_path: Path) -> None:
    library = pytest.importorskip(kind.split()[-1].split(".")[0])
    if "h5py" in kind:
        data = library.File(tmp_path / "x.h5", "w").create_dataset("x", data=np.zeros((3, 2)))
        data = {"x": data} if "dict" in kind else data
    else:
        data = library.DataFrame({"x": [1, 2]})
        data = data["x"] if "Series" in kind else data
    with pytest.raises(
        ValueError, match=r"got batched=True, but arrays as data, whose rows are records\. Leave it out"
    ):
        cached(data, tmp_path / "cache", batched=True, **READ)


@pytest.mark.parametrize("transform", [None, lambda batch: batch + 0], ids=["records", "batches"])
def test_another_seed_of_a_mixture_is_a_change(tmp_path: Path, transform: Any) -> None:
    options: dict[str, Any] = {**READ, "if_changed": "error"}
    cached(mixture(1).with_options(transform=transform), tmp_path / "cache", **options)
    cached(mixture(1).with_options(transform=transform), tmp_path / "cache", **options)
    with pytest.raises(RecordFileError, match=r"is out of date: seed: 1 in the cache, 2 now"):
        cached(mixture(2).with_options(transform=transform), tmp_path / "cache", **options)
    cached(arrays(0, 9).with_options(seed=1), tmp_path / "other", **options)
    cached(arrays(0, 9).with_options(seed=2), tmp_path / "other", **options)


def test_a_seed_that_a_mixture_drew_is_no_change(tmp_path: Path) -> None:
    path = tmp_path / "cache"
    rows = [cached(mixture(None), path, **{**READ, "if_changed": "error"}).batch(0).tolist() for _ in range(2)]
    assert rows[0] == rows[1]
