"""`tf.contrib.layers.l1_regularizer` and `l2_regularizer`."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from staging_tf1._tf import tf

Regularizer = Callable[[Any], Any]


def _checked(scale: float) -> float:
    if isinstance(scale, int) and not isinstance(scale, bool):
        raise ValueError(f"scale cannot be an integer: {scale}")
    if scale < 0.0:
        raise ValueError(f"Setting a scale less than 0 on a regularizer: {scale}")
    return scale


def _regularizer(scale: float, name: str, norm: Callable[[Any], Any]) -> Regularizer:
    def regularize(weights: Any) -> Any:
        with tf.name_scope(name, values=[weights]) as scope:
            factor = tf.convert_to_tensor(scale, dtype=weights.dtype.base_dtype, name="scale")
            return tf.multiply(factor, norm(weights), name=scope)

    return (lambda weights: None) if scale == 0.0 else regularize


def l1_regularizer(scale: float, scope: str | None = None) -> Regularizer:
    """Return a function of the weights: `scale` times the sum of their absolute values, or None if `scale` is 0."""
    return _regularizer(_checked(scale), scope or "l1_regularizer", lambda w: tf.reduce_sum(tf.abs(w)))


def l2_regularizer(scale: float, scope: str | None = None) -> Regularizer:
    """Return a function of the weights: `scale` times half the sum of their squares, or None if `scale` is 0."""
    return _regularizer(_checked(scale), scope or "l2_regularizer", tf.nn.l2_loss)
