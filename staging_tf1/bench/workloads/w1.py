"""W1: a small step, where feeding takes most of the time."""

from __future__ import annotations

from types import MappingProxyType
from typing import Any

import numpy as np

from staging_tf1._tf import tf
from staging_tf1.bench.workloads.arrays import ArrayWorkload, random_images
from staging_tf1.bench.workloads.facts import FACTS
from staging_tf1.bench.workloads.models import dense_loss
from staging_tf1.bench.workloads.workload import Batch, Empty

__all__ = ["W1"]


class W1(ArrayWorkload):
    """128x784 float32 from bytes in memory, gathered and scaled in numpy; softmax regression, Adam."""

    name = "W1"
    batch_size = FACTS["W1"].batch_size
    spec = MappingProxyType({"image": ((784,), np.float32), "label": ((), np.int32)})

    def open(self, records: int, folder: str) -> Batch:
        return random_images(records, (784,), classes=10)

    def reshape(self, batch: Batch, rng: np.random.Generator, empty: Empty) -> Batch:
        return batch

    def dataset(self, data: Batch, seed: int) -> tuple[Any, dict[Any, Any]]:
        return self.gathered(data, seed)

    def model(self, batch: dict[str, Any]) -> Any:
        return tf.train.AdamOptimizer(0.001).minimize(dense_loss(batch, hidden=(), classes=10))
