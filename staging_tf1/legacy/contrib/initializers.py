"""`tf.contrib.layers.xavier_initializer` and its kin, over `tf.initializers.variance_scaling`."""

from __future__ import annotations

from typing import Any

from staging_tf1._tf import tf

# tf.initializers.variance_scaling divides a truncated normal's stddev by its standard deviation after
# truncation; contrib multiplied the variance by 1.3 instead. The quotient keeps contrib's numbers.
_STDDEV_OF_TRUNCATED = 0.87962566103423978
_CONTRIB_TRUNCATION = 1.3


def variance_scaling_initializer(
    factor: float = 2.0,
    mode: str = "FAN_IN",
    uniform: bool = False,
    seed: int | None = None,
    dtype: Any = None,
) -> Any:
    """An initializer with variance ``factor / n``, as tf.contrib.layers had it.

    Args:
      factor: the variance times n.
      mode: what n is: "FAN_IN", "FAN_OUT" or "FAN_AVG".
      uniform: draw from a uniform distribution, else from a truncated normal one.
      seed: of the random op.
      dtype: of the values, a floating one; float32 if None.

    Raises:
      ValueError: an unknown mode.
      TypeError: a dtype that is not floating.
    """
    dtype = tf.as_dtype(tf.float32 if dtype is None else dtype)
    if not dtype.is_floating:
        raise TypeError(f"Cannot create initializer for non-floating point type: got {dtype.name}.")
    if mode not in ("FAN_IN", "FAN_OUT", "FAN_AVG"):
        raise ValueError(f"Unknown mode {mode!r}: use FAN_IN, FAN_OUT or FAN_AVG.")
    distribution = "uniform" if uniform else "truncated_normal"
    scale = factor if uniform else factor * _CONTRIB_TRUNCATION * _STDDEV_OF_TRUNCATED**2
    # TensorFlow warns of a dtype here, even of the one that it takes anyway.
    given = {} if dtype == tf.float32 else {"dtype": dtype}
    return tf.initializers.variance_scaling(
        scale=scale, mode=mode.lower(), distribution=distribution, seed=seed, **given
    )


def xavier_initializer(uniform: bool = True, seed: int | None = None, dtype: Any = None) -> Any:
    """Glorot and Bengio's initializer (2010), as tf.contrib.layers had it.

    Args:
      uniform: draw from a uniform distribution, else from a truncated normal one.
      seed: of the random op.
      dtype: of the values; float32 if None.
    """
    return variance_scaling_initializer(factor=1.0, mode="FAN_AVG", uniform=uniform, seed=seed, dtype=dtype)
