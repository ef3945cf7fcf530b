"""`tf.contrib.data`: the transformations that `tf.data.experimental` lacks."""

from __future__ import annotations

from staging_tf1.legacy.contrib.datasets import (
    assert_element_shape,
    batch_and_drop_remainder,
    padded_batch_and_drop_remainder,
    reduce_dataset,
    sliding_window_batch,
    sloppy_interleave,
)

__all__ = [
    "assert_element_shape",
    "batch_and_drop_remainder",
    "padded_batch_and_drop_remainder",
    "reduce_dataset",
    "sliding_window_batch",
    "sloppy_interleave",
]
