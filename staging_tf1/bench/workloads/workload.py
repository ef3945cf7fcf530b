"""`Workload`, the base class: a source and the training step that it feeds."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping
from types import MappingProxyType
from typing import Any

import numpy as np

from staging_tf1.bench import NotApplicable
from staging_tf1.sources import Source

__all__ = ["Array", "Batch", "Empty", "Workload"]

Array = np.ndarray[Any, Any]
# Component name to array; the first dimension counts the records.
Batch = dict[str, Array]
# Allocates the memory of a result: `np.empty` if TensorFlow copies it, `sources.aligned_empty` if it is fed without a
# copy.
Empty = Callable[[Any, Any], Array]


class Workload(ABC):
    """A source and a training step, in several forms: each system uses the form that suits it best.

    Attributes:
      name: a name such as `W1`.
      batch_size: records per batch.
      spec: component name to (shape of a record, numpy dtype), as passed to the model.
    """

    name: str = ""
    batch_size: int = 0
    spec: Mapping[str, tuple[tuple[int, ...], Any]] = MappingProxyType({})

    @property
    def batch_dim(self) -> int | None:
        """The first dimension of a batch's tensors; None if it differs between batches."""
        return self.batch_size

    @abstractmethod
    def open(self, records: int, folder: str) -> Any:
        """Make or open the data: `records` records, always the same. `folder` caches data that takes long to make."""

    @abstractmethod
    def batches(self, data: Any, seed: int) -> Iterator[Batch]:
        """Yield batches without end, in plain numpy, as written by hand. Each is a dict of new arrays."""

    @abstractmethod
    def source(self, data: Any, seed: int, *, shuffle: bool = True) -> Source:
        """Return an endless source of this package with the same batches."""

    def maker(self, data: Any, seed: int) -> Callable[[], Source]:
        """Return a function that makes `source`, in a form that can be sent to worker processes."""
        raise NotApplicable(f"{self.name} is not made in the worker processes of others")

    def named(self, staged: Any) -> dict[str, Any]:
        """Return the tensors of a batch of `source` or `compact_source`, by component name."""
        batch: dict[str, Any] = staged
        return batch

    def compact_source(self, data: Any, seed: int) -> Source:
        """Return a source of batches in the smallest dtype, which `expand` converts in the step."""
        raise NotApplicable(f"{self.name} has no compact form of its batches")

    def expand(self, batch: dict[str, Any]) -> dict[str, Any]:
        """Convert the tensors of a compact batch to those of `spec`."""
        raise NotApplicable(f"{self.name} has no compact form of its batches")

    def dataset(self, data: Any, seed: int) -> tuple[Any, dict[Any, Any]]:
        """Return a `tf.data.Dataset` of batches in TensorFlow ops, and the feeds of its iterator's initializer."""
        raise NotApplicable(f"{self.name} makes its batches in Python; tf.data cannot make them in TensorFlow ops")

    def shuffled_dataset(self, data: Any, seed: int) -> tuple[Any, dict[Any, Any]]:
        """Return `dataset` with a shuffle buffer, for workloads whose `dataset` reads front to back."""
        raise NotApplicable(f"tf_data already shuffles all of {self.name}")

    def own_step(self, feeding: Mapping[str, int]) -> Any | None:
        """Return the fetches of a step that calls `staged(..., **feeding)` itself; None if the systems do that."""
        return None

    @abstractmethod
    def model(self, batch: dict[str, Any]) -> Any:
        """Build the training step on the tensors of a batch. Return its fetches."""
