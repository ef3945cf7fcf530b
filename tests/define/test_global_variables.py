"""What programs do with all of `tf.global_variables()`, in a graph that has a pipeline."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import tensorflow.compat.v1 as tf

import staging_tf1 as staging
from staging_tf1.sources import ArraySource

IDIOMS: dict[str, Callable[[], Any]] = {
    "count parameters": lambda: sum(int(np.prod(v.shape.as_list())) for v in tf.global_variables()),
    "count elements": lambda: sum(v.shape.num_elements() for v in tf.global_variables()),
    "histograms": lambda: [tf.summary.histogram(v.op.name, v) for v in tf.global_variables()],
    "averages": lambda: tf.train.ExponentialMovingAverage(0.9).apply(tf.global_variables()),
    "norm": lambda: tf.global_norm([tf.cast(v, tf.float32) for v in tf.global_variables()]),
}


# The position has an open shape, and the fingerprint is a string.
@pytest.mark.xfail(strict=True, raises=(TypeError, ValueError, tf.errors.UnimplementedError))
@pytest.mark.parametrize("idiom", IDIOMS)
def test_an_idiom_over_all_global_variables(graph: Any, idiom: str) -> None:
    batch = staging.staged(ArraySource(np.arange(8, dtype=np.float32), batch_size=4))
    tf.get_variable("weights", [3])
    done = IDIOMS[idiom]()
    with staging.StagingSession() as sess:
        # An average of nothing is a no-op; a number is no fetch.
        sess.run([batch, *([] if isinstance(done, int) else [done])])
