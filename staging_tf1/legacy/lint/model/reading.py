"""The records of what one pass over a file finds."""

from __future__ import annotations

import ast
from dataclasses import dataclass, field

from staging_tf1.legacy.lint.model.scopes import Binding, Context, Scope


@dataclass(eq=False, slots=True)
class Call:
    """One call."""

    node: ast.Call
    scope: Scope
    context: Context

    @property
    def line(self) -> int:
        """The line of the call."""
        return self.node.lineno

    @property
    def method(self) -> str:
        """The last part of the called name: "run" of ``sess.run(...)``."""
        func = self.node.func
        if isinstance(func, ast.Attribute):
            return func.attr
        return func.id if isinstance(func, ast.Name) else ""

    @property
    def receiver(self) -> ast.expr | None:
        """The object whose method is called."""
        return self.node.func.value if isinstance(self.node.func, ast.Attribute) else None


@dataclass(eq=False, slots=True)
class Use:
    """A dotted name, or an imported one."""

    node: ast.AST
    scope: Scope
    context: Context
    imported: str = ""  # the full name, in an import statement


@dataclass(eq=False, slots=True)
class Write:
    """An assignment to an element: ``x[...] = value``."""

    target: ast.Subscript
    scope: Scope
    context: Context


@dataclass(eq=False, slots=True)
class Loop:
    """One `for` or `while` statement."""

    node: ast.For | ast.AsyncFor | ast.While
    context: Context  # that of its body

    @property
    def line(self) -> int:
        """The line of the statement."""
        return self.node.lineno


@dataclass(slots=True)
class Reading:
    """What one pass over a file finds."""

    module: Scope
    calls: list[Call] = field(default_factory=list)
    uses: list[Use] = field(default_factory=list)
    loops: list[Loop] = field(default_factory=list)
    writes: list[Write] = field(default_factory=list)
    functions: list[Scope] = field(default_factory=list)
    classes: list[Scope] = field(default_factory=list)
    inner: dict[ast.AST, Scope] = field(default_factory=dict)  # the scopes of functions, lambdas and comprehensions
    stored: list[tuple[ast.Attribute, Binding]] = field(default_factory=list)  # x.name = value
    strings: set[str] = field(default_factory=set)  # string constants
