"""Gives random ops without a seed of their own the seed that they had in TF1, if the graph has one.

TF1 used the number of ops that the graph had. TensorFlow 2 counts the random ops instead, so after
``tf.set_random_seed(1)`` it draws other numbers than TF1. Several functions also make fewer ops than in TF1. The most
usual of them make the same ops again, so that random ops behind them have the same seed.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from types import ModuleType
from typing import Any


class _NumbersOfOps(dict[Any, int]):
    """Stands in for TensorFlow's dictionary of the next seed of each graph."""

    def setdefault(self, graph: Any, default: int = 0) -> int:
        return int(graph.version)

    def __getitem__(self, graph: Any) -> int:
        return 0

    def __setitem__(self, graph: Any, seed: int) -> None:
        pass  # the next seed depends on the graph only


def attach(module: ModuleType) -> None:
    """Change the loaded ``tensorflow.python.framework.random_seed`` for all graphs of this process."""
    module.__dict__["_graph_to_seed_dict"] = _NumbersOfOps()


def attach_uniform(module: ModuleType) -> None:
    """Let `random_uniform` scale numbers between 0 and 1, too. Change ``tensorflow.python.ops.random_ops``."""
    to_dtype = module.__dict__["dtypes"].as_dtype

    def as_before(genuine: Any, shape: Any, minval: Any = 0, maxval: Any = None, dtype: Any = "float32", *more: Any,
                  **how: Any) -> Any:  # fmt: skip
        if to_dtype(dtype).is_floating:
            # Bounds of type int are left out of the graph.
            minval = float(minval) if isinstance(minval, int) else minval
            maxval = 1.0 if maxval is None else float(maxval) if isinstance(maxval, int) else maxval
        return genuine(shape, minval, maxval, dtype, *more, **how)

    _wrap(module, "random_uniform", as_before)


def attach_dropout(module: ModuleType) -> None:
    """Let dropout multiply with a mask, in graphs. Change ``tensorflow.python.ops.nn_ops``."""
    inside = module.__dict__

    def as_before(genuine: Any, x: Any, rate: Any, noise_shape: Any, uniform_sampler: Any, dummy_rng_step: Any,
                  name: Any, default_name: str) -> Any:  # fmt: skip
        if inside["context"].executing_eagerly() or default_name != "dropout":
            return genuine(x, rate, noise_shape, uniform_sampler, dummy_rng_step, name, default_name)
        with inside["ops"].name_scope(name, default_name, [x]):
            x = inside["ops"].convert_to_tensor(x, name="x")
            is_number = isinstance(rate, (int, float))
            if not x.dtype.is_floating or (is_number and not 0 < rate < 1):
                return genuine(x, rate, noise_shape, uniform_sampler, dummy_rng_step, name, default_name)
            rate = inside["ops"].convert_to_tensor(rate, dtype=x.dtype, name="rate")
            if inside["tensor_util"].constant_value(rate) == 0:
                return x
            numbers = uniform_sampler(shape=inside["_get_noise_shape"](x, noise_shape), dtype=x.dtype)
            scale = 1 / (1 - rate)
            kept = numbers >= rate
            made = x * scale * inside["math_ops"].cast(kept, x.dtype)
            made.set_shape(x.get_shape())
            return made

    _wrap(module, "_dropout", as_before)


def attach_split(module: ModuleType) -> None:
    """Let `tf.split` make the constant of the number of pieces. Change ``tensorflow.python.ops.gen_array_ops``.

    `tf.split` itself is registered for dispatch, by its identity.
    """
    ops, context = module.__dict__["_ops"], module.__dict__["_context"]

    def as_before(genuine: Any, axis: Any, value: Any, num_split: Any, name: Any = None) -> Any:
        if not context.context().executing_eagerly():
            ops.convert_to_tensor(num_split)
        return genuine(axis, value, num_split, name)

    _wrap(module, "split", as_before)


def attach_convolution(module: ModuleType) -> None:
    """Let convolutional layers make the constant of their dilation. Change ``base_conv`` of Keras 2, not of Keras 3."""
    tf = module.__dict__.get("tf")
    if tf is None:
        return

    def as_before(genuine: Any, self: Any, *arguments: Any, **how: Any) -> Any:
        made = genuine(self, *arguments, **how)
        if not tf.executing_eagerly():
            tf.constant(self.dilation_rate, tf.int32, name="dilation_rate")
        return made

    _wrap(module.__dict__["Conv"], "convolution_op", as_before)


def attach_normalization(module: ModuleType) -> None:
    """Let fused batch normalization make its constants. Change ``batch_normalization`` of Keras 2, not of Keras 3."""
    tf = module.__dict__.get("tf")
    if tf is None:
        return

    def as_before(genuine: Any, self: Any, *arguments: Any, training: Any, **how: Any) -> Any:
        made = genuine(self, *arguments, training=training, **how)
        constant = tf.get_static_value(training)
        if constant is not None and not tf.executing_eagerly():
            for _ in range(2 if constant else 1):
                tf.constant([], tf.float32)
        return made

    _wrap(module.__dict__["BatchNormalizationBase"], "_fused_batch_norm", as_before)


def _wrap(owner: Any, name: str, as_before: Callable[..., Any]) -> None:
    genuine = getattr(owner, name)

    @functools.wraps(genuine)
    def wrapped(*arguments: Any, **how: Any) -> Any:
        return as_before(genuine, *arguments, **how)

    setattr(owner, name, wrapped)
