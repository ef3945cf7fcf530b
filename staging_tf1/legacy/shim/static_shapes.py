"""Restores static shapes that TensorFlow 1 inferred and TensorFlow 2 does not."""

from __future__ import annotations

import functools
from types import ModuleType
from typing import Any


def attach(module: ModuleType) -> None:
    """Give the result of `conv2d_transpose` the shape that the program names, if it is constant.

    TensorFlow 2 takes its batch size from the input instead, so a program with a placeholder of any batch size, and a
    constant one in `output_shape`, gets an unknown size.

    Args:
      module: the loaded ``tensorflow.python.ops.nn_ops``.
    """
    genuine = module.__dict__["conv2d_transpose"]

    @functools.wraps(genuine)
    def conv2d_transpose(
        value: Any = None, filter: Any = None, output_shape: Any = None, *args: Any, **how: Any
    ) -> Any:
        made = genuine(value, filter, output_shape, *args, **how)
        op = getattr(made, "op", None)  # None outside graphs
        if op is not None and op.type == "Conv2DBackpropInput":
            made.set_shape(module.__dict__["tensor_util"].constant_value_as_shape(op.inputs[0]))
        return made

    module.__dict__["conv2d_transpose"] = conv2d_transpose
