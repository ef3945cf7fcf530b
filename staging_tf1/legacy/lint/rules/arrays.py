"""Methods that numpy's arrays have lost."""

from __future__ import annotations

import ast

from staging_tf1.legacy.lint.flow.analysis import Analysis
from staging_tf1.legacy.lint.model.reading import Call
from staging_tf1.legacy.lint.model.scopes import Scope
from staging_tf1.legacy.lint.rule import Found, Rule

# Functions of numpy whose result is an array, or a scalar with the same methods.
_MAKING = frozenset(
    f"numpy.{name}"
    for name in """array asarray ascontiguousarray zeros ones empty full arange linspace zeros_like ones_like empty_like
    full_like concatenate stack vstack hstack dstack reshape transpose squeeze expand_dims frombuffer fromstring
    fromfile loadtxt genfromtxt ndarray float32 float64 int32 int64 uint8 random.rand random.randn random.randint
    random.uniform random.normal random.random random.permutation tile repeat where clip packbits pad rot90 flip
    flipud fliplr""".split()
)
# Methods of arrays that return arrays, and that strings, bytes and images of other libraries do not have.
_ONLY_ARRAYS = frozenset({"astype", "reshape", "ravel", "flatten", "transpose", "squeeze"})


def tostring(analysis: Analysis) -> Found:
    """STG119."""
    for call in analysis.program.calls:
        if call.method != "tostring" or call.receiver is None or analysis.program.name(call):
            continue
        if _is_array(analysis, call.receiver, call.scope):
            yield (
                call.node,
                "tostring() of numpy arrays was removed in numpy 2.3: write tobytes(), which returns the same bytes",
            )


def _is_array(analysis: Analysis, node: ast.expr, scope: Scope) -> bool:
    """Whether a value is an array, wherever it may come from."""
    origins = analysis.values.origins(node, scope)
    return bool(origins) and all(_makes_an_array(analysis, one) for one in origins)


def _makes_an_array(analysis: Analysis, origin: object) -> bool:
    if not isinstance(origin, Call):
        return False
    name = analysis.program.name(origin)
    if name:
        return name in _MAKING
    return origin.method in _ONLY_ARRAYS and not analysis.values.callees(origin.node, origin.scope)


RULES = (Rule("STG119", "tostring", tostring),)
