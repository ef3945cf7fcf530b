"""Batches by number, for worker processes. Imports no TensorFlow, because those import this module."""

from __future__ import annotations

from collections.abc import Callable
from functools import cached_property
from typing import Any

from staging_tf1.sources import Source

__all__ = ["Numbered"]

# More batches than a measurement takes, for libraries that need a length.
_MANY = 10**9


class Numbered:
    """The batches of a source, as a map-style dataset: item k is batch k. Each process makes the source itself."""

    def __init__(self, make: Callable[[], Source]) -> None:
        self._make = make

    @cached_property
    def _source(self) -> Source:
        return self._make()

    def __len__(self) -> int:
        return _MANY

    def __getitem__(self, number: int) -> Any:
        return self._source.batch(int(number))
