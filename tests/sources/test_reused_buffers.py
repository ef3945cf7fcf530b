"""Datasets that return the same buffer, dict or list for each record: it is copied before the next one is read."""

from __future__ import annotations

import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from staging_tf1 import sources

COUNT = 24


class Dataset:
    """Record i is `fill(kept, i)`, made of what is kept."""

    def __init__(self, kept: Any, fill: Callable[[Any, int], Any]) -> None:
        self.kept, self.fill = kept, fill

    def __len__(self) -> int:
        return COUNT

    def __getitem__(self, number: int) -> Any:
        return self.fill(self.kept, number)


class Many(Dataset):
    """Reads all into one buffer."""

    def __getitems__(self, numbers: list[int]) -> Any:
        return [self[number] for number in numbers]


def filled(kept: Any, number: int) -> Any:
    """Set the values of an array, list or bytearray."""
    kept[:] = bytes([number]) * 4 if isinstance(kept, bytearray) else [number] * len(kept)
    return kept


def updated(kept: dict[str, Any], number: int) -> Any:
    kept.update(x=np.full(2, number), y=number)
    return kept


def array() -> Any:
    return np.zeros(3)


DATASETS: dict[str, Callable[[], Dataset]] = {
    "array": lambda: Dataset(array(), filled),
    "view": lambda: Dataset(array(), lambda kept, number: filled(kept, number)[::2]),
    "dict": lambda: Dataset({}, updated),
    "array in a dict": lambda: Dataset(array(), lambda kept, number: {"x": filled(kept, number), "y": number}),
    "list": lambda: Dataset([0, 0], filled),
    "bytes": lambda: Dataset(bytearray(4), lambda kept, number: np.frombuffer(filled(kept, number), np.uint8)),
    "many": lambda: Many(array(), filled),
}


def values(batch: Any) -> list[float]:
    """The number of the record in each row; they must be equal in all components and places."""
    leaves = list(batch.values()) if isinstance(batch, dict) else [batch]
    columns = [np.asarray(leaf).reshape(len(leaf), -1) for leaf in leaves]
    rows = np.concatenate(columns, axis=1)
    assert (rows == rows[:, :1]).all(), rows
    found: list[float] = rows[:, 0].tolist()
    return found


def collated(records: list[Any]) -> Any:
    return np.stack([np.asarray(record["x"] if isinstance(record, dict) else record) for record in records])


@pytest.mark.parametrize("kind", DATASETS)
@pytest.mark.parametrize("batch_size", [1, 2, 8])
def test_each_record_is_its_own(kind: str, batch_size: int, tmp_path: Path) -> None:
    expected, new = list(range(COUNT)), DATASETS[kind]
    made: dict[str, Any] = {
        "MapSource": sources.MapSource(new(), batch_size=batch_size),
        "collate": sources.MapSource(new(), batch_size=batch_size, collate=collated),
        "cached": sources.cached(new(), tmp_path / "cache", batch_size=batch_size),
        "threads": sources.MapSource(new(), batch_size=batch_size, threads=4),
        "load": sources.MapSource(range(COUNT), load=new().__getitem__, batch_size=batch_size),
        "load, threads": sources.MapSource(range(COUNT), load=new().__getitem__, batch_size=batch_size, threads=4),
    }
    for name, source in made.items():
        batches = [source.batch(index) for index in range(COUNT // batch_size)]
        assert [value for batch in batches for value in values(batch)] == expected, name


@pytest.mark.parametrize("kind", DATASETS)
def test_composed_sources_and_concurrent_readers(kind: str) -> None:
    source = sources.MapSource(DATASETS[kind](), batch_size=4)
    both = sources.concatenate([source, source])
    barrier = threading.Barrier(3)

    def read(start: int) -> list[float]:
        barrier.wait(60)
        return [value for index in range(start, 12, 3) for value in values(both.batch(index))]

    with ThreadPoolExecutor(3) as pool:
        found = [value for part in pool.map(read, range(3)) for value in part]
    assert sorted(found) == sorted([*range(COUNT), *range(COUNT)])


def test_a_buffer_that_is_only_reused_later() -> None:
    later = Dataset(array(), lambda kept, number: filled(kept if number >= 8 else array(), number))
    source = sources.MapSource(later, batch_size=8)
    assert [value for index in range(3) for value in values(source.batch(index))] == list(range(COUNT))


def test_records_of_different_lengths() -> None:
    lengths = Dataset(array(), lambda kept, number: filled(kept, number)[: number % 3 + 1])
    source = sources.MapSource(lengths, batch_size=6)
    padded = source.pad().batch(1)
    assert [row[0] for row in padded] == [6, 7, 8, 9, 10, 11]
    ragged = source.ragged().batch(1)
    assert np.unique(ragged.flat_values).tolist() == [6, 7, 8, 9, 10, 11]
    assert len(ragged.flat_values) == 1 + 2 + 3 + 1 + 2 + 3


@pytest.mark.skipif(not hasattr(np.dtypes, "StringDType"), reason="numpy 1 has no StringDType")
def test_a_reused_buffer_of_strings() -> None:
    # copy.deepcopy() of numpy 2.0 takes such strings for Python objects, and crashes.
    def fill(kept: Any, number: int) -> Any:
        kept[:] = ["x" * number, "\0"]
        return {"words": kept[:]}

    strings = Dataset(np.array(["", ""], np.dtypes.StringDType()), fill)
    source = sources.MapSource(strings, batch_size=COUNT, epochs=1)
    for _ in range(100):
        assert source.batch(0)["words"].tolist() == [[b"x" * number, b"\0"] for number in range(COUNT)]
