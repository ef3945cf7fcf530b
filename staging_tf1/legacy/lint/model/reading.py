"""The records of what one pass over a file finds."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from dataclasses import dataclass, field


@dataclass(eq=False, slots=True)
class Context:
    """The statement block around a node: one step up in the nesting of a function, with what encloses it."""

    kind: str  # "function", "loop", "with", "branch" or "try"
    node: ast.AST
    above: Context | None
    scope: Scope
    block: str = ""  # which block of the node: "body", "orelse", "handler" or "finalbody"

    def around(self) -> Iterator[Context]:
        """Yield this context and those around it in the same function, innermost first."""
        here: Context | None = self
        while here is not None and here.scope is self.scope:
            yield here
            here = here.above

    def loops(self) -> list[Context]:
        """Return the loops around it in the same function, innermost first."""
        return [here for here in self.around() if here.kind == "loop"]


@dataclass(eq=False, slots=True)
class Binding:
    """One statement that gives a name its value."""

    kind: str  # "value", "element", "part", "context", "import", "parameter", "function", "class", "added" or "other"
    scope: Scope  # in which `value` is read
    context: Context
    node: ast.AST  # the statement or target, for its line
    value: ast.expr | None = None
    imported: str = ""  # the full name of what an import binds
    index: int = -1  # of "part": which element of the value
    inner: Scope | None = None  # of "function" and "class": the scope that the name stands for


@dataclass(eq=False, slots=True)
class Variable:
    """A name in a scope, or an attribute of the objects of a class."""

    name: str
    scope: Scope
    bindings: list[Binding] = field(default_factory=list)


@dataclass(eq=False, slots=True)
class Scope:
    """A module, function, class, lambda or comprehension."""

    kind: str
    node: ast.AST
    above: Scope | None
    name: str = ""
    context: Context | None = None  # where it is defined
    variables: dict[str, Variable] = field(default_factory=dict)
    attributes: dict[str, Variable] = field(default_factory=dict)  # of a class: what its methods assign to self
    outer: dict[str, Scope | None] = field(default_factory=dict)  # names declared global or nonlocal
    parameters: list[str] = field(default_factory=list)
    returns: list[Returned] = field(default_factory=list)

    def function(self) -> Scope:
        """Return the function, class or module whose body this scope is part of."""
        scope = self
        while scope.kind == "comprehension" and scope.above is not None:
            scope = scope.above
        return scope

    def module(self) -> Scope:
        """Return the outermost scope."""
        scope = self
        while scope.above is not None:
            scope = scope.above
        return scope

    def variable(self, name: str) -> Variable:
        """Return the variable that an assignment to `name` binds here."""
        home = self
        if name in self.outer:
            home = self.outer[name] or self._enclosing(name)
        variable = home.variables.get(name)
        if variable is None:
            variable = home.variables[name] = Variable(name, home)
        return variable

    def _enclosing(self, name: str) -> Scope:
        above = self.above
        while above is not None:
            if name in above.variables and above.kind != "class":
                return above
            above = above.above
        return self.module()

    def find(self, name: str) -> Variable | None:
        """Return the variable that reading `name` finds; None for builtins. Class bodies are invisible to methods."""
        if name in self.outer:
            return (self.outer[name] or self._enclosing(name)).variables.get(name)
        scope: Scope | None = self
        while scope is not None:
            if (scope.kind != "class" or scope is self) and (variable := scope.variables.get(name)) is not None:
                return variable
            scope = scope.above
        return None


@dataclass(eq=False, slots=True)
class Returned:
    """One return or yield statement."""

    value: ast.expr
    context: Context
    yields: bool


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

    @property
    def arguments(self) -> list[ast.expr]:
        """The values that are passed, by position and by keyword."""
        return [*self.node.args, *(keyword.value for keyword in self.node.keywords)]


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
