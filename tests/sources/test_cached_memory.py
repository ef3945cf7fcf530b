"""sources.cached of large records: few of them are in memory at the same time."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tensorflow as tf2

from staging_tf1.sources import MapSource, cached, concatenate
from staging_tf1.tf_data import Elements

READ: dict[str, Any] = dict(batch_size=1, progress=False)


class Dataset:
    """A dataset that notes how many records it was asked for at once."""

    def __init__(self, count: int, size_of: Callable[[int], int]) -> None:
        self.count, self.size_of, self.asked = count, size_of, list[int]()

    def __len__(self) -> int:
        return self.count

    def __getitem__(self, i: int) -> Any:
        return {"text": b"x" * self.size_of(i), "tokens": np.zeros(self.size_of(i), np.uint8)}

    def __getitems__(self, numbers: list[int]) -> list[Any]:
        self.asked.append(len(numbers))
        return [self[i] for i in numbers]


WAYS: dict[str, Callable[[Dataset], Any]] = {
    "map-style": lambda data: data,
    "source": lambda data: MapSource(data, batch_size=2, epochs=1),
    "concatenation": lambda data: concatenate([MapSource(data, batch_size=2, epochs=1)]),
}


@pytest.mark.parametrize("way", WAYS)
def test_few_large_records_are_read_at_once(way: str, tmp_path: Path) -> None:
    large = Dataset(20, lambda i: 1 << 20 if i else 1)
    cached(WAYS[way](large), tmp_path / "large", **READ)
    # Two components of 1 MiB: 8 MiB are 4 records.
    assert max(large.asked) <= 4
    small = Dataset(600, lambda i: 1)
    cached(WAYS[way](small), tmp_path / "small", **READ)
    assert max(small.asked) == 256


def test_few_strings_of_a_dataset_are_fetched_at_once() -> None:
    def most(value: Any) -> int:
        elements = Elements(tf2.data.Dataset.from_tensors(value).repeat(300), "cached()")
        return max(len(batch) for batch, _ in elements.blocks(None))

    assert most("text") <= 8 and most(1) == 256
