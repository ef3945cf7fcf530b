"""One pass over a module's syntax: what stands around each node, and one table of its scopes."""

from __future__ import annotations

import ast
import functools
from collections.abc import Iterator
from dataclasses import dataclass, field

from staging_tf1.legacy.moved_names import plain

_FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda)
COMPREHENSIONS = (ast.ListComp, ast.SetComp, ast.GeneratorExp, ast.DictComp)
# The fields of a node that are read in the scope which it opens.
_INSIDE: dict[type, tuple[str, ...]] = {
    **dict.fromkeys(_FUNCTIONS, ("args", "body")),
    ast.ClassDef: ("body",),
    **dict.fromkeys(COMPREHENSIONS, ("elt", "key", "value", "generators")),
}
# Python shares one node among all places with the same operator or context.
_SHARED = (ast.expr_context, ast.operator, ast.unaryop, ast.boolop, ast.cmpop)


@dataclass(eq=False, slots=True)
class Binding:
    """One place that gives a name its value."""

    node: ast.AST
    value: ast.expr | None = None  # None if it is unknown
    part: bool = False  # the name gets an element of `value`
    imported: str = ""  # the full name of what an import binds


@dataclass(eq=False, slots=True)
class Scope:
    """What a module, function, class, lambda or comprehension binds."""

    node: ast.AST
    above: Scope | None
    names: dict[str, list[Binding]] = field(default_factory=dict)
    declared: dict[str, bool] = field(default_factory=dict)  # by `global` (True) or `nonlocal`


@dataclass(eq=False, slots=True)
class Use:
    """A dotted name, or an imported one."""

    node: ast.AST
    imported: str = ""  # the full name, in an import statement


class Module:
    """A module's nodes in the order of the text, and what its names stand for."""

    def __init__(self, tree: ast.Module, path: str = "") -> None:
        self.path = path
        self.scope = Scope(tree, None)
        self.scopes: dict[ast.AST, Scope] = {}  # in which each node is read
        self.around: dict[ast.AST, tuple[ast.AST, str]] = {}  # the node above each, and the field that holds it
        self.calls: list[ast.Call] = []
        self.uses: list[Use] = []
        self.targets: dict[ast.expr, list[ast.Name]] = {}  # the names that an expression is assigned to
        self.reads: dict[str, list[ast.Name]] = {}  # where each name is read
        self.strings: set[str] = set()
        self._full: dict[ast.AST, str] = {}
        bound: list[tuple[Scope, str, Binding]] = []
        # A stack of its own: long chains of operators would exhaust Python's.
        waiting: list[tuple[ast.AST, Scope]] = [(tree, self.scope)]
        while waiting:
            node, scope = waiting.pop()
            self.scopes[node] = scope
            where = scope
            while isinstance(where.node, COMPREHENSIONS) and isinstance(self.around[node][0], ast.NamedExpr):
                where = where.above or self.scope
            bound.extend((where, name, binding) for name, binding in self._note(node, scope))
            waiting.extend(reversed(list(self._below(node, scope))))
        # `nonlocal` finds what is bound further down, too.
        for scope, name, binding in sorted(bound, key=lambda entry: entry[1] in entry[0].declared):
            self._home(scope, name).names.setdefault(name, []).append(binding)

    # ---- the pass

    def _below(self, node: ast.AST, scope: Scope) -> Iterator[tuple[ast.AST, Scope]]:
        inside = _INSIDE.get(type(node), ())
        inner = Scope(node, scope) if inside else scope
        for name, value in ast.iter_fields(node):
            # The defaults of a function are read outside.
            outside = scope.above or scope if name in ("defaults", "kw_defaults") else scope
            for child in value if isinstance(value, list) else (value,):
                if isinstance(child, ast.AST) and not isinstance(child, _SHARED):
                    self.around[child] = (node, name)
                    yield child, inner if name in inside else outside

    def _note(self, node: ast.AST, scope: Scope) -> Iterator[tuple[str, Binding]]:
        """Note what a rule may ask about a node, and yield the names that it binds."""
        if isinstance(node, ast.Name):
            if isinstance(node.ctx, ast.Store):
                value, part = self._assigned(node)
                if value is not None and not part:
                    self.targets.setdefault(value, []).append(node)
                yield node.id, Binding(node, value, part)
            else:
                self.reads.setdefault(node.id, []).append(node)
        elif isinstance(node, ast.Call):
            self.calls.append(node)
        elif isinstance(node, ast.Attribute):
            if not isinstance(self.around[node][0], ast.Attribute):
                self.uses.append(Use(node))
        elif isinstance(node, ast.Constant):
            if isinstance(node.value, str):
                self.strings.add(node.value)
        elif isinstance(node, (ast.Import, ast.ImportFrom)):
            yield from self._imported(node)
        elif isinstance(node, (ast.Global, ast.Nonlocal)):
            scope.declared.update(dict.fromkeys(node.names, isinstance(node, ast.Global)))
        elif isinstance(node, ast.arg):
            yield node.arg, Binding(node)
        elif not isinstance(node, ast.alias):  # a function, a class, an exception handler, a pattern
            for name in (getattr(node, "name", None), getattr(node, "rest", None)):
                if isinstance(name, str):
                    yield name, Binding(node)

    def _imported(self, node: ast.Import | ast.ImportFrom) -> Iterator[tuple[str, Binding]]:
        if isinstance(node, ast.Import):
            for alias in node.names:
                root = alias.name.partition(".")[0]
                self.uses.append(Use(node, alias.name))
                yield alias.asname or root, Binding(node, imported=alias.name if alias.asname else root)
            return
        for alias in node.names:
            full = f"{'.' * node.level}{node.module or ''}.{alias.name}"
            if not node.level:
                self.uses.append(Use(node, full))
            yield alias.asname or alias.name, Binding(node, imported=full)

    def _assigned(self, target: ast.AST) -> tuple[ast.expr | None, bool]:
        """Return what is assigned to a target, and whether the target gets only a part of it."""
        above, _ = self.around[target]
        if isinstance(above, (ast.Assign, ast.AnnAssign, ast.NamedExpr)):
            return above.value, False
        if isinstance(above, ast.withitem):
            return above.context_expr, False
        if isinstance(above, (ast.For, ast.AsyncFor, ast.comprehension)):
            return above.iter, True
        if not isinstance(above, (ast.Tuple, ast.List, ast.Starred)):
            return None, False
        value, part = self._assigned(above)
        if isinstance(above, ast.Starred) or part or not isinstance(value, (ast.Tuple, ast.List)):
            return value, True
        if len(above.elts) != len(value.elts) or any(
            isinstance(element, ast.Starred) for element in (*above.elts, *value.elts)
        ):
            return value, True
        return value.elts[above.elts.index(target)], False  # type: ignore[arg-type]

    # ---- names

    def _home(self, scope: Scope, name: str) -> Scope:
        """Return the scope that binds `name` for statements in `scope`."""
        if name not in scope.declared:
            return scope
        here = None if scope.declared[name] else scope.above
        while here is not None and (name not in here.names or isinstance(here.node, ast.ClassDef)):
            here = here.above
        return here or self.scope

    def bindings(self, name: ast.Name) -> list[Binding] | None:
        """Return what binds a name where it stands; None for builtins. Methods do not see the names of their class."""
        start = self.scopes[name]
        here: Scope | None = self._home(start, name.id)
        while here is not None:
            if name.id in here.names and (here is start or not isinstance(here.node, ast.ClassDef)):
                return here.names[name.id]
            here = here.above
        return None

    def full_name(self, node: ast.AST) -> str:
        """Return the full name of what ``tf.train.Saver`` or an alias of it stands for.

        Builtins are returned as they are. What is defined in the module or unknown has no full name: "".
        """
        full = self._full.get(node)
        if full is None:
            self._full[node] = ""  # for names that are defined by themselves
            full = self._full[node] = self._full_name(node)
        return full

    def _full_name(self, node: ast.AST) -> str:
        if isinstance(node, ast.Attribute):
            head = self.full_name(node.value)
            return plain(f"{head}.{node.attr}") if head else ""
        if not isinstance(node, ast.Name):
            return ""
        bindings = self.bindings(node)
        if bindings is None:
            return node.id
        imported = [binding.imported for binding in bindings if binding.imported]
        if imported and all(binding.imported or _is_none(binding.value) for binding in bindings):
            return plain(imported[0])
        only = self.only(node)
        return self.full_name(only) if isinstance(only, (ast.Name, ast.Attribute)) else ""

    def only(self, name: ast.Name) -> ast.expr | None:
        """Return the one value that a name ever has; None if it has several, or an unknown one."""
        bindings = self.bindings(name) or []
        return bindings[0].value if len(bindings) == 1 and not bindings[0].part else None

    def value(self, node: ast.AST | None) -> ast.AST | None:
        """Return the expression that a name stands for, if it is assigned once; other expressions as they are."""
        seen = set()
        while isinstance(node, ast.Name) and node not in seen:
            seen.add(node)
            node = self.only(node)
        return node

    def maker(self, node: ast.AST | None) -> str:
        """Return the full name of the function that certainly made an object; "" if it is unknown."""
        value = self.value(node)
        return self.full_name(value.func) if isinstance(value, ast.Call) else ""

    # ---- places

    def out(self, node: ast.AST) -> Iterator[tuple[ast.AST, str]]:
        """Yield what stands around a node in its function, innermost first, and the field that the node is in."""
        while node in self.around:
            node, name = self.around[node]
            if isinstance(node, (*_FUNCTIONS, ast.ClassDef, ast.Module)):
                return
            yield node, name

    def function(self, node: ast.AST) -> ast.AST:
        """Return the function, class or module whose body a node belongs to."""
        scope = self.scopes[node]
        while isinstance(scope.node, COMPREHENSIONS) and scope.above is not None:
            scope = scope.above
        return scope.node

    def above(self, node: ast.AST) -> Iterator[ast.AST]:
        """Yield everything around a node, innermost first."""
        while node in self.around:
            node = self.around[node][0]
            yield node

    @functools.cached_property
    def inside(self) -> dict[ast.AST, list[ast.Call]]:
        """The calls in each statement, without those in the functions that it defines."""
        inside: dict[ast.AST, list[ast.Call]] = {}
        for call in self.calls:
            for above, _ in self.out(call):
                inside.setdefault(above, []).append(call)
        return inside

    def imports(self, package: str) -> bool:
        """Whether `package` or something in it is imported."""
        return any(f"{use.imported}.".startswith(f"{package}.") for use in self.uses if use.imported)


def method(call: ast.Call) -> str:
    """Return the last part of a called name: "run" of ``sess.run(...)``."""
    return last_name(call.func)


def receiver(call: ast.Call) -> ast.expr | None:
    """Return the object whose method is called."""
    return call.func.value if isinstance(call.func, ast.Attribute) else None


def last_name(node: ast.AST | None) -> str:
    """Return the last identifier of an expression: "session" of ``self.session``."""
    return str(getattr(node, "attr", "") or getattr(node, "id", ""))


def dotted(node: ast.AST | None) -> str | None:
    """Return a dotted name such as ``a.b.c`` as text; None for any other expression."""
    if isinstance(node, ast.Name):
        return node.id
    head = dotted(node.value) if isinstance(node, ast.Attribute) else None
    return None if head is None else f"{head}.{node.attr}"  # type: ignore[union-attr]


def argument(call: ast.Call, name: str, position: int | None = None) -> ast.expr | None:
    """Return an argument by keyword or position; None if it is missing."""
    for keyword in call.keywords:
        if keyword.arg == name:
            return keyword.value
    plain = [arg for arg in call.args if not isinstance(arg, ast.Starred)]
    return plain[position] if position is not None and position < len(plain) else None


def arguments(call: ast.Call) -> list[ast.expr]:
    """Return the values that are passed, by position and by keyword."""
    return [*call.args, *(keyword.value for keyword in call.keywords)]


def position(node: ast.AST) -> tuple[int, int]:
    """Return the line and the column of a node."""
    return getattr(node, "lineno", 0), getattr(node, "col_offset", 0)


def is_open(call: ast.Call) -> bool:
    """Whether a call has arguments that the text does not show: ``*args`` or ``**options``."""
    return any(keyword.arg is None for keyword in call.keywords) or any(
        isinstance(value, ast.Starred) for value in call.args
    )


def _is_none(node: ast.AST | None) -> bool:
    return isinstance(node, ast.Constant) and node.value is None
