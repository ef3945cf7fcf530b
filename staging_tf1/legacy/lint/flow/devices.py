"""The ``tf.device`` scopes around a call."""

from __future__ import annotations

import ast

from staging_tf1.legacy.lint.flow.program import Program
from staging_tf1.legacy.lint.model.reading import Call

# Scopes that place no ops on a device.
_PLACELESS = frozenset(
    """Session InteractiveSession Graph as_default name_scope variable_scope control_dependencies op_scope
    arg_scope gfile open GFile GradientTape StagingSession MonitoredTrainingSession MonitoredSession suppress""".split()
)


def devices(program: Program, call: Call) -> tuple[str, ...] | None:
    """Return the arguments of the device scopes around a call in its function, innermost first, as source text.

    None if another context manager of unknown effect is around it.
    """
    found = []
    for here in call.context.around():
        if here.kind != "with" or not isinstance(here.node, (ast.With, ast.AsyncWith)):
            continue
        for item in here.node.items:
            made = item.context_expr
            last = _last(made)
            if last == "device" and isinstance(made, ast.Call) and made.args:
                found.append(ast.unparse(made.args[0]))
            elif last not in _PLACELESS:
                return None
    return tuple(found)


def _last(node: ast.expr) -> str:
    if isinstance(node, ast.Call):
        node = node.func
    if isinstance(node, ast.Attribute):
        return node.attr
    return node.id if isinstance(node, ast.Name) else ""


def is_gpu(device: str) -> bool:
    """Whether the source text of a device is a literal that names a GPU."""
    return "gpu" in device.lower() and device[:1] in "'\"f"
