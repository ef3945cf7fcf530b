"""Computes the regularization loss of a variable as TF1 did: once, when `tf.get_variable` makes it.

TensorFlow 2 calls the regularizer twice, and again for each use of the loss, which is not a tensor. The graph then has
more ops than in TF1, so the random ops behind it get other seeds.
"""

from __future__ import annotations

import functools
from types import ModuleType
from typing import Any


def attach(module: ModuleType) -> None:
    """Change the loaded ``tensorflow.python.ops.variable_scope`` for all graphs of this process."""
    ops = module.__dict__["ops"]
    store = module.__dict__["_VariableStore"]
    genuine = store._get_single_variable

    @functools.wraps(genuine)
    def get_single_variable(self: Any, name: str, *args: Any, regularizer: Any = None, **how: Any) -> Any:
        if regularizer is None or ops.executing_eagerly_outside_functions():
            return genuine(self, name, *args, regularizer=regularizer, **how)
        is_new = name not in self._vars
        made = genuine(self, name, *args, **how)
        if is_new:
            with ops.colocate_with(made), ops.name_scope(f"{name}/Regularizer/"), ops.init_scope():
                loss = regularizer(made)
            if loss is not None:
                ops.add_to_collection(ops.GraphKeys.REGULARIZATION_LOSSES, loss)
        return made

    store._get_single_variable = get_single_variable
