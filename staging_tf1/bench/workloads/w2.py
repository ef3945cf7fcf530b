"""W2: large batches and a step that keeps the cores busy."""

from __future__ import annotations

from types import MappingProxyType
from typing import Any

import numpy as np

from staging_tf1._tf import tf
from staging_tf1.bench.workloads.arrays import ArrayWorkload, random_images
from staging_tf1.bench.workloads.facts import FACTS
from staging_tf1.bench.workloads.models import convolutional_loss
from staging_tf1.bench.workloads.workload import Batch, Empty

__all__ = ["W2"]


class W2(ArrayWorkload):
    """64x96x96x3 float32 from bytes in memory, gathered, flipped, scaled in numpy; two convolutions, SGD."""

    name = "W2"
    draws = True
    batch_size = FACTS["W2"].batch_size
    spec = MappingProxyType({"image": ((96, 96, 3), np.float32), "label": ((), np.int32)})

    def open(self, records: int, folder: str) -> Batch:
        return random_images(records, (96, 96, 3), classes=10)

    def reshape(self, batch: Batch, rng: np.random.Generator, empty: Empty) -> Batch:
        """Flip a random half of the images, in place: the gathered rows belong to this batch."""
        image = batch["image"]
        for number in np.flatnonzero(rng.random(len(image)) < 0.5):
            image[number] = image[number, :, ::-1].copy()
        return batch

    def dataset(self, data: Batch, seed: int) -> tuple[Any, dict[Any, Any]]:
        return self.gathered(data, seed)

    def in_graph(self, batch: dict[str, Any]) -> dict[str, Any]:
        flipped = tf.image.random_flip_left_right(batch["image"])
        return self.expand(batch | {"image": flipped})

    def model(self, batch: dict[str, Any]) -> Any:
        return tf.train.GradientDescentOptimizer(0.01).minimize(convolutional_loss(batch, (16, 32), classes=10))
