"""`PutMeter`: how long the computation of a batch takes that runs ahead."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from staging_tf1._tf import deterministic_ops, tf


class PutMeter:
    """Sums [batches, seconds from the start of a put until its values are computed].

    It measures in the graph, because to Python a put that waits for a free slot looks like a slow put.

    Attributes:
      value: the sums, as a tensor.
      reset: the op that sets them to zero.
    """

    def __init__(self) -> None:
        self._began = tf.timestamp()
        self._sums = tf.Variable(np.zeros(2), trainable=False, collections=[], use_resource=True, name="put_meter")
        self.reset = self._sums.initializer
        self.value = tf.get_default_graph().as_graph_element(self._sums)

    @staticmethod
    def made() -> PutMeter | None:
        """Return a new one; None with deterministic ops, where TensorFlow refuses to read the clock."""
        return None if deterministic_ops() else PutMeter()

    def count(self, values: Sequence[Any]) -> Any:
        """Return the op that counts a put when `values` are computed."""
        with tf.control_dependencies(values):
            spent = tf.timestamp() - self._began
        return self._sums.assign_add(tf.stack([tf.constant(1.0, tf.float64), spent]), read_value=False)
