"""Calls that make local variables, which `tf.global_variables_initializer` does not initialize."""

from __future__ import annotations

import ast

from staging_tf1.legacy.lint.model.scopes import Scope
from staging_tf1.legacy.lint.model.values import Values

# Functions that make a local variable if they get `num_epochs`, with its position.
_WITH_EPOCHS = {
    "tensorflow.train.string_input_producer": 1,
    "tensorflow.train.slice_input_producer": 1,
    "tensorflow.train.range_input_producer": 1,
    "tensorflow.train.input_producer": 2,
    "tensorflow.train.limit_epochs": 1,
}
_MATCHING = ("tensorflow.train.match_filenames_once", "tensorflow.io.match_filenames_once")
_METRICS = "tensorflow.metrics."


def local_variable(values: Values, node: ast.Call, scope: Scope) -> str:
    """Return what makes a local variable in a call; "" if nothing does."""
    name = values.full_name(node.func, scope)
    short = name.replace("tensorflow.", "tf.", 1)
    if name in _MATCHING or (name.startswith(_METRICS) and name.count(".") == 2):
        return f"{short}()"
    if name in _WITH_EPOCHS:
        position = _WITH_EPOCHS[name]
        given = [one.value for one in node.keywords if one.arg == "num_epochs"] or node.args[position : position + 1]
        if given and _is_a_number(values, given[0], scope):
            return f"{short}(num_epochs=)"
    return ""


def _is_a_number(values: Values, node: ast.expr, scope: Scope) -> bool:
    """Whether a value is a number, rather than None: as written, or as every caller in the file passes it."""
    origins = values.origins(node, scope)
    return bool(origins) and all(
        (isinstance(one, ast.Constant) and isinstance(one.value, int)) or _is_a_flag(one) for one in origins
    )


def _is_a_flag(origin: object) -> bool:
    return isinstance(origin, ast.Attribute) and isinstance(origin.value, ast.Name) and origin.value.id == "FLAGS"
