"""W3: remote storage."""

from __future__ import annotations

import time
from typing import Any

import numpy as np

from staging_tf1._tf import tf
from staging_tf1.bench.errors import NotApplicable
from staging_tf1.bench.workloads.models import dense_loss
from staging_tf1.bench.workloads.w1 import W1
from staging_tf1.bench.workloads.workload import Batch, Empty

__all__ = ["W3"]

_WAIT_SECS = 0.020


class W3(W1):
    """Like W1, but each batch waits 20 ms; two hidden layers of 896."""

    name = "W3"

    def reshape(self, batch: Batch, rng: np.random.Generator, empty: Empty) -> Batch:
        # The wait is part of the workload: it simulates remote storage with a latency of 20 ms and no CPU time.
        time.sleep(_WAIT_SECS)
        return batch

    def dataset(self, data: Batch, seed: int) -> tuple[Any, dict[Any, Any]]:
        raise NotApplicable("W3 waits in Python; tf.data cannot make its batches in TensorFlow ops")

    def model(self, batch: dict[str, Any]) -> Any:
        return tf.train.GradientDescentOptimizer(0.01).minimize(dense_loss(batch, hidden=(896, 896), classes=10))
