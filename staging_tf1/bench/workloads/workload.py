"""`Workload`: what has to be fed to which training step."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping
from types import MappingProxyType
from typing import Any

import numpy as np

from staging_tf1.bench.errors import NotApplicable
from staging_tf1.sources import Source

__all__ = ["Array", "Batch", "Empty", "Workload"]

Array = np.ndarray[Any, Any]
# Component name to array, the records along the first dimension.
Batch = dict[str, Array]
# Makes the memory of a result: `np.empty` where TensorFlow will copy it, `sources.aligned_empty` where it is handed
# over.
Empty = Callable[[Any, Any], Array]


class Workload(ABC):
    """A source and a training step, written so that each system can take them in the form that it works best with.

    Attributes:
      name: `W1` and so on.
      batch_size: records in a batch.
      spec: component name to (shape of a record, numpy dtype), as the model gets them.
    """

    name: str = ""
    batch_size: int = 0
    spec: Mapping[str, tuple[tuple[int, ...], Any]] = MappingProxyType({})

    @property
    def batch_dim(self) -> int | None:
        """The first dimension of the tensors of a batch; None where batches differ in it."""
        return self.batch_size

    @abstractmethod
    def open(self, records: int, folder: str) -> Any:
        """Makes or opens the data: `records` records, the same ones each time. `folder` keeps what takes long."""

    @abstractmethod
    def batches(self, data: Any, seed: int) -> Iterator[Batch]:
        """Batches without end, in plain numpy, as a careful user writes it by hand; each a dict of new arrays."""

    @abstractmethod
    def source(self, data: Any, seed: int, *, shuffle: bool = True) -> Source:
        """The same batches from a source of this package, without end."""

    def named(self, staged: Any) -> dict[str, Any]:
        """The tensors of a batch of `source` or `compact_source`, by component name."""
        batch: dict[str, Any] = staged
        return batch

    def compact_source(self, data: Any, seed: int) -> Source:
        """Batches in the smallest dtype, for `expand` to convert behind the staging area."""
        raise NotApplicable(f"{self.name} has no smaller form of its batches")

    def expand(self, batch: dict[str, Any]) -> dict[str, Any]:
        """Makes tensors of `spec` from those of a compact batch."""
        raise NotApplicable(f"{self.name} has no smaller form of its batches")

    def dataset(self, data: Any, seed: int) -> tuple[Any, dict[Any, Any]]:
        """The same in TensorFlow ops: a `tf.data.Dataset` of batches, and the feeds of its iterator's initializer."""
        raise NotApplicable(f"{self.name} needs Python for its batches, so tf.data cannot make them in TensorFlow ops")

    def shuffled_dataset(self, data: Any, seed: int) -> tuple[Any, dict[Any, Any]]:
        """`dataset` with a shuffle buffer, where `dataset` itself reads front to back."""
        raise NotApplicable(f"tf_data shuffles all of {self.name} as it is")

    @abstractmethod
    def model(self, batch: dict[str, Any]) -> Any:
        """Builds the training step on the tensors of a batch; what it returns is fetched at each step."""
