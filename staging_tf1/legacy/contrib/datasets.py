"""The transformations of `tf.contrib.data` that `tf.data.experimental` lacks."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from staging_tf1._tf import tf

Transformation = Callable[[Any], Any]


def batch_and_drop_remainder(batch_size: Any) -> Transformation:
    """Return a transformation for `dataset.apply` that batches, and leaves out a last batch that is smaller."""
    return lambda dataset: dataset.batch(batch_size, drop_remainder=True)


def padded_batch_and_drop_remainder(
    batch_size: Any, padded_shapes: Any, padding_values: Any | None = None
) -> Transformation:
    """Return a transformation that pads and batches, and leaves out a last batch that is smaller."""
    return lambda dataset: dataset.padded_batch(batch_size, padded_shapes, padding_values, drop_remainder=True)


def sloppy_interleave(map_func: Callable[..., Any], cycle_length: Any, block_length: Any = 1) -> Transformation:
    """Return a transformation that reads `cycle_length` datasets in parallel, in an order that is not repeatable."""
    made: Transformation = tf.data.experimental.parallel_interleave(map_func, cycle_length, block_length, sloppy=True)
    return made


def sliding_window_batch(
    window_size: int, stride: int | None = None, window_shift: int | None = None, window_stride: int = 1
) -> Transformation:
    """Return a transformation that makes batches of `window_size` elements, `window_stride` apart.

    The next window begins `window_shift` elements later, by default 1. `stride` is its older name. A last window that
    is smaller is left out. Raises ValueError if both names are given.
    """
    if stride is not None and window_shift is not None:
        raise ValueError("sliding_window_batch() got stride and window_shift, expected one of them.")
    shift = stride if stride is not None else window_shift if window_shift is not None else 1

    def batched(*windows: Any) -> Any:
        structure = windows[0] if len(windows) == 1 else windows
        return tf.data.Dataset.zip(tf.nest.map_structure(lambda window: window.batch(window_size), structure))

    return lambda dataset: dataset.window(window_size, shift, window_stride, drop_remainder=True).flat_map(batched)


def reduce_dataset(dataset: Any, reducer: Any) -> Any:
    """Return the state of a `tf.data.experimental.Reducer` after all elements. Its finalize_func is not used."""
    return dataset.reduce(reducer.init_func(np.int64(0)), reducer.reduce_func)


def assert_element_shape(expected_shapes: Any) -> Transformation:
    """Return a transformation that raises InvalidArgumentError for elements of another shape.

    `expected_shapes` has the structure of an element, with a `tf.TensorShape` for each component. The dataset has
    these static shapes.
    """

    def checked(*element: Any) -> Any:
        structure = element[0] if len(element) == 1 else element
        return tf.nest.map_structure(lambda shape, each: tf.ensure_shape(each, shape), expected_shapes, structure)

    return lambda dataset: dataset.map(checked)
