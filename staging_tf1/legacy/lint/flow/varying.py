"""Whether an expression is another object in each iteration of a loop."""

from __future__ import annotations

import ast

from staging_tf1.legacy.lint.flow.program import Program
from staging_tf1.legacy.lint.model.reading import Loop
from staging_tf1.legacy.lint.model.scopes import Scope, Variable

_MAKING = frozenset({"tensorflow.Variable", "tensorflow.get_variable"})


def varies_with(program: Program, node: ast.expr, scope: Scope, loop: Loop) -> bool:
    """Whether `node` is an element of what `loop` goes through, or is made in it."""
    waiting: list[tuple[ast.expr, Scope]] = [(node, scope)]
    seen: set[Variable] = set()
    while waiting:
        one, where = waiting.pop()
        if isinstance(one, ast.Call) and program.values.full_name(one.func, where) in _MAKING:
            return True
        for name in ast.walk(one):
            variable = where.find(name.id) if isinstance(name, ast.Name) else None
            if variable is None or variable in seen:
                continue
            seen.add(variable)
            for binding in variable.bindings:
                if binding.kind == "parameter":
                    waiting.extend(program.values.given(binding.scope, variable.name))
                elif loop.context in binding.context.around() and binding.value is not None:
                    if binding.kind == "element" and binding.context is loop.context and not _counts(loop.node):
                        return True
                    waiting.append((binding.value, binding.scope))
    return False


def _counts(loop: ast.AST) -> bool:
    """Whether a loop goes through numbers, which select nothing by themselves."""
    over = getattr(loop, "iter", None)
    return isinstance(over, ast.Call) and isinstance(over.func, ast.Name) and over.func.id in ("range", "xrange")
