"""`tf.contrib.layers.xavier_initializer` and `variance_scaling_initializer`, built on `tf.initializers`."""

from __future__ import annotations

from typing import Any

from staging_tf1._tf import tf

# For a truncated normal distribution, tf.initializers.variance_scaling divides stddev by the standard deviation
# after truncation; contrib multiplied the variance by 1.3 instead. This factor reproduces contrib's numbers.
_STDDEV_OF_TRUNCATED = 0.87962566103423978
_CONTRIB_TRUNCATION = 1.3


def variance_scaling_initializer(
    factor: float = 2.0,
    mode: str = "FAN_IN",
    uniform: bool = False,
    seed: int | None = None,
    dtype: Any = None,
) -> Any:
    """Return an initializer with variance ``factor / n``, as in tf.contrib.layers.

    `mode` is the meaning of n: "FAN_IN", "FAN_OUT" or "FAN_AVG". Values come from a truncated normal distribution, or
    from a uniform one. Their dtype is float32 if None.

    Raises:
      ValueError: the mode is unknown.
      TypeError: the dtype is not a floating-point type.
    """
    dtype = tf.as_dtype(tf.float32 if dtype is None else dtype)
    if not dtype.is_floating:
        raise TypeError(f"Cannot create initializer for non-floating point type: got {dtype.name}.")
    if mode not in ("FAN_IN", "FAN_OUT", "FAN_AVG"):
        raise ValueError(f"Unknown mode {mode!r}: use FAN_IN, FAN_OUT or FAN_AVG.")
    distribution = "uniform" if uniform else "truncated_normal"
    scale = factor if uniform else factor * _CONTRIB_TRUNCATION * _STDDEV_OF_TRUNCATED**2
    # TensorFlow warns about any dtype that is passed here, even about its default.
    given = {} if dtype == tf.float32 else {"dtype": dtype}
    return tf.initializers.variance_scaling(
        scale=scale, mode=mode.lower(), distribution=distribution, seed=seed, **given
    )


def xavier_initializer(uniform: bool = True, seed: int | None = None, dtype: Any = None) -> Any:
    """Return the initializer of Glorot and Bengio (2010), as in tf.contrib.layers.

    Values come from a uniform distribution, or from a truncated normal one. Their dtype is float32 if None.
    """
    return variance_scaling_initializer(factor=1.0, mode="FAN_AVG", uniform=uniform, seed=seed, dtype=dtype)
