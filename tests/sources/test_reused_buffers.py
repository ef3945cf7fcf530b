"""Datasets that return the same buffer, dict or list for each record: it is copied before the next one is read."""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from staging_tf1 import sources

COUNT = 24


class Dataset:
    """`value_of(i)` is record i, in what `__getitem__` has returned before."""

    def __init__(self) -> None:
        self.buffer = np.zeros(3)

    def __len__(self) -> int:
        return COUNT

    def __getitem__(self, number: int) -> Any:
        self.buffer[:] = number
        return self.buffer


class View(Dataset):
    def __getitem__(self, number: int) -> Any:
        self.buffer[:] = number
        return self.buffer[::2]


class Dict(Dataset):
    def __init__(self) -> None:
        self.record: dict[str, Any] = {}

    def __getitem__(self, number: int) -> Any:
        self.record.update(x=np.full(2, number), y=number)
        return self.record


class BufferInDict(Dataset):
    def __getitem__(self, number: int) -> Any:
        self.buffer[:] = number
        return {"x": self.buffer, "y": number}


class List(Dataset):
    def __init__(self) -> None:
        self.record = [0, 0]

    def __getitem__(self, number: int) -> Any:
        self.record[:] = [number, number]
        return self.record


class Bytes(Dataset):
    def __init__(self) -> None:
        self.data = bytearray(4)

    def __getitem__(self, number: int) -> Any:
        self.data[:] = bytes([number]) * 4
        return np.frombuffer(self.data, np.uint8)


class Many(Dataset):
    """Reads all into one buffer."""

    def __getitems__(self, numbers: list[int]) -> Any:
        return [self[number] for number in numbers]


class Lengths(Dataset):
    """Records of different lengths, for `pad` and `ragged`."""

    def __getitem__(self, number: int) -> Any:
        self.buffer[:] = number
        return self.buffer[: number % 3 + 1]


DATASETS = [Dataset, View, Dict, BufferInDict, List, Bytes, Many]


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
def test_each_record_is_its_own(kind: type[Dataset], batch_size: int, tmp_path: Path) -> None:
    expected = list(range(COUNT))
    made: dict[str, Any] = {
        "MapSource": sources.MapSource(kind(), batch_size=batch_size),
        "collate": sources.MapSource(kind(), batch_size=batch_size, collate=collated),
        "cached": sources.cached(kind(), tmp_path / "cache", batch_size=batch_size),
        "threads": sources.MapSource(kind(), batch_size=batch_size, threads=4),
        "load": sources.MapSource(range(COUNT), load=kind().__getitem__, batch_size=batch_size),
        "load, threads": sources.MapSource(range(COUNT), load=kind().__getitem__, batch_size=batch_size, threads=4),
    }
    for name, source in made.items():
        batches = [source.batch(index) for index in range(COUNT // batch_size)]
        assert [value for batch in batches for value in values(batch)] == expected, name


@pytest.mark.parametrize("kind", DATASETS)
def test_composed_sources_and_concurrent_readers(kind: type[Dataset]) -> None:
    source = sources.MapSource(kind(), batch_size=4)
    both = sources.concatenate([source, source])
    barrier = threading.Barrier(3)

    def read(start: int) -> list[float]:
        barrier.wait(60)
        return [value for index in range(start, 12, 3) for value in values(both.batch(index))]

    with ThreadPoolExecutor(3) as pool:
        found = [value for part in pool.map(read, range(3)) for value in part]
    assert sorted(found) == sorted([*range(COUNT), *range(COUNT)])


def test_records_of_different_lengths() -> None:
    source = sources.MapSource(Lengths(), batch_size=6)
    padded = source.pad().batch(1)
    assert [row[0] for row in padded] == [6, 7, 8, 9, 10, 11]
    ragged = source.ragged().batch(1)
    assert np.unique(ragged.flat_values).tolist() == [6, 7, 8, 9, 10, 11]
    assert len(ragged.flat_values) == 1 + 2 + 3 + 1 + 2 + 3


@pytest.mark.skipif(not hasattr(np.dtypes, "StringDType"), reason="numpy 1 has no StringDType")
def test_a_reused_buffer_of_strings() -> None:
    # copy.deepcopy() of numpy 2.0 takes such strings for Python objects, and crashes.
    class Strings(Dataset):
        def __init__(self) -> None:
            self.buffer = np.array(["", ""], np.dtypes.StringDType())

        def __getitem__(self, number: int) -> Any:
            self.buffer[:] = ["x" * number, "\0"]
            return {"words": self.buffer[:]}

    source = sources.MapSource(Strings(), batch_size=COUNT, epochs=1)
    for _ in range(100):
        assert source.batch(0)["words"].tolist() == [[b"x" * number, b"\0"] for number in range(COUNT)]
