"""`tf.contrib.training.GreedyLoadBalancingStrategy`, which balances the load of parameter servers."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any


def byte_size_load_fn(op: Any) -> float:
    """Return the size of a variable op's only output, in bytes. Raises ValueError if its shape is not fully known."""
    if len(op.outputs) != 1:
        raise ValueError(f"{op.name} has {len(op.outputs)} outputs, expected 1.")
    shape = op.get_attr("shape") if op.type == "VarHandleOp" else op.outputs[0].shape.as_proto()
    sizes = [dimension.size for dimension in shape.dim]
    if shape.unknown_rank or any(size < 0 for size in sizes):
        raise ValueError(f"{op.name} has a shape that is not fully known: {sizes}.")
    dtype = op.get_attr("dtype") if op.type == "VarHandleOp" else op.outputs[0].dtype
    total = float(dtype.size)
    for size in sizes:
        total *= size
    return total


class GreedyLoadBalancingStrategy:
    """Places each variable on the server with the least load so far, for `tf.train.replica_device_setter`."""

    def __init__(self, num_tasks: int, load_fn: Callable[[Any], float]) -> None:
        self._load_fn = load_fn
        self._loads = [0.0] * num_tasks

    def __call__(self, op: Any) -> int:
        task = self._loads.index(min(self._loads))
        self._loads[task] += self._load_fn(op)
        return task
