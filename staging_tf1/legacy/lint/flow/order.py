"""Which of two calls runs first."""

from __future__ import annotations

import ast

from staging_tf1.legacy.lint.model.reading import Call


def position(node: ast.AST) -> tuple[int, int]:
    """Return the line and column of a node."""
    return getattr(node, "lineno", 0), getattr(node, "col_offset", 0)


def before(first: Call, second: Call) -> bool:
    """Whether `first` is written before `second`."""
    return position(first.node) < position(second.node)


def certainly_before(first: Call, second: Call) -> bool:
    """Whether `first` runs before `second` in the same function, on every way to `second`."""
    if first.scope.function() is not second.scope.function() or not before(first, second):
        return False
    blocks = {(here.node, here.block) for here in second.context.around()}
    return all(
        (here.node, here.block) in blocks for here in first.context.around() if here.kind in ("branch", "loop", "try")
    )
