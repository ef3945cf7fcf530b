"""Reads the statements of a file in one pass: scopes, bindings, loops, and every call with its place."""

from __future__ import annotations

import ast
from collections.abc import Callable, Sequence
from typing import Any

from staging_tf1.legacy.lint.model.reading import Binding, Call, Context, Loop, Reading, Returned, Scope, Use, Write

_COMPREHENSIONS = (ast.ListComp, ast.SetComp, ast.GeneratorExp, ast.DictComp)
# Nodes without a call or dotted name below them.
_LEAVES = (ast.Constant, ast.Name, ast.expr_context, ast.operator, ast.cmpop, ast.boolop, ast.unaryop)
_ADDING = ("append", "add", "insert", "extend")


def read(tree: ast.Module) -> Reading:
    """Return what the syntax tree of a file contains."""
    module = Scope("module", tree, None)
    reading = Reading(module)
    reader = _Reader(reading)
    reader.block(tree.body, Context("function", tree, None, module))
    reader.read_later()
    return reading


class _Reader:
    def __init__(self, reading: Reading) -> None:
        self._reading = reading
        # Bodies of functions are read after the statements around them, so every global name is known before.
        self._later: list[Callable[[], None]] = []
        self._statements: dict[type, Callable[[Any, Context], None]] = {
            ast.FunctionDef: self._function,
            ast.AsyncFunctionDef: self._function,
            ast.ClassDef: self._class,
            ast.Assign: self._assign,
            ast.AnnAssign: self._annotated,
            ast.AugAssign: self._augmented,
            ast.For: self._for,
            ast.AsyncFor: self._for,
            ast.While: self._while,
            ast.If: self._if,
            ast.With: self._with,
            ast.AsyncWith: self._with,
            ast.Try: self._try,
            ast.Import: self._import,
            ast.ImportFrom: self._import_from,
            ast.Return: self._return,
            ast.Global: self._global,
            ast.Nonlocal: self._nonlocal,
            ast.Match: self._match,
        }
        if hasattr(ast, "TryStar"):
            self._statements[ast.TryStar] = self._try

    def read_later(self) -> None:
        """Read the bodies of functions, outer ones first."""
        while self._later:
            waiting, self._later = self._later, []
            for body in waiting:
                body()

    def block(self, body: Sequence[ast.stmt], context: Context) -> None:
        """Read statements."""
        for statement in body:
            handler = self._statements.get(type(statement))
            if handler is not None:
                handler(statement, context)
            else:
                for child in ast.iter_child_nodes(statement):
                    self._expression(child, context.scope, context)

    # ---- definitions

    def _function(self, node: ast.FunctionDef | ast.AsyncFunctionDef, context: Context) -> None:
        for decorator in node.decorator_list:
            self._expression(decorator, context.scope, context)
        scope = self._inner("function", node, context, node.name)
        self._bind(node.name, Binding("function", context.scope, context, node, inner=scope))
        self._defaults(node.args, context)
        self._parameters(node.args, scope)
        inside = Context("function", node, context, scope)
        self._later.append(lambda: self.block(node.body, inside))

    def _class(self, node: ast.ClassDef, context: Context) -> None:
        for part in (*node.decorator_list, *node.bases, *(keyword.value for keyword in node.keywords)):
            self._expression(part, context.scope, context)
        scope = self._inner("class", node, context, node.name)
        self._bind(node.name, Binding("class", context.scope, context, node, inner=scope))
        self.block(node.body, Context("function", node, context, scope))

    def _lambda(self, node: ast.Lambda, scope: Scope, context: Context) -> None:
        inner = Scope("function", node, scope, "<lambda>", context)
        self._reading.inner[node] = inner
        self._reading.functions.append(inner)
        self._defaults(node.args, context)
        inside = Context("function", node, context, inner)
        inner.returns.append(Returned(node.body, inside, False))
        self._parameters(node.args, inner, inside)
        self._expression(node.body, inner, inside)

    def _inner(self, kind: str, node: ast.AST, context: Context, name: str) -> Scope:
        scope = Scope(kind, node, context.scope, name, context)
        self._reading.inner[node] = scope
        (self._reading.functions if kind == "function" else self._reading.classes).append(scope)
        return scope

    def _defaults(self, arguments: ast.arguments, context: Context) -> None:
        for default in (*arguments.defaults, *arguments.kw_defaults):
            if default is not None:
                self._expression(default, context.scope, context)

    def _parameters(self, arguments: ast.arguments, scope: Scope, inside: Context | None = None) -> None:
        context = inside or Context("function", scope.node, scope.context, scope)
        plain = (*arguments.posonlyargs, *arguments.args)
        scope.parameters = [one.arg for one in plain]
        for one in (*plain, *arguments.kwonlyargs, arguments.vararg, arguments.kwarg):
            if one is not None:
                variable = scope.variable(one.arg)
                variable.bindings.append(Binding("parameter", scope, context, one))

    # ---- assignments

    def _bind(self, name: str, binding: Binding) -> None:
        binding.context.scope.variable(name).bindings.append(binding)

    def _assign(self, node: ast.Assign, context: Context) -> None:
        self._expression(node.value, context.scope, context)
        for target in node.targets:
            self._target(target, node.value, "value", context.scope, context)

    def _annotated(self, node: ast.AnnAssign, context: Context) -> None:
        if node.value is not None:
            self._expression(node.value, context.scope, context)
            self._target(node.target, node.value, "value", context.scope, context)

    def _augmented(self, node: ast.AugAssign, context: Context) -> None:
        self._expression(node.value, context.scope, context)
        self._target(node.target, node.value, "added", context.scope, context)
        if isinstance(node.target, ast.Name):
            self._reading.writes.append(
                Write(ast.Subscript(node.target, ast.Constant(0), ast.Store()), context.scope, context)
            )
            ast.copy_location(self._reading.writes[-1].target, node.target)

    def _target(
        self, target: ast.expr, value: ast.expr, kind: str, scope: Scope, context: Context, index: int = -1
    ) -> None:
        """Bind what is assigned to: a name, an attribute, an element, or several of them."""
        if isinstance(target, ast.Name):
            scope.variable(target.id).bindings.append(Binding(kind, scope, context, target, value, index=index))
        elif isinstance(target, (ast.Tuple, ast.List)):
            self._unpack(target, value, kind, scope, context)
        elif isinstance(target, ast.Starred):
            self._target(target.value, value, "element", scope, context)
        elif isinstance(target, ast.Attribute):
            self._expression(target.value, scope, context)
            binding = Binding(kind, scope, context, target, value, index=index)
            self._reading.stored.append((target, binding))
        elif isinstance(target, ast.Subscript):
            self._expression(target.value, scope, context)
            self._expression(target.slice, scope, context)
            self._reading.writes.append(Write(target, scope, context))
            # A container is what is put into it.
            self._target(target.value, value, "added", scope, context)

    def _unpack(self, target: ast.Tuple | ast.List, value: ast.expr, kind: str, scope: Scope, context: Context) -> None:
        starred = any(isinstance(one, ast.Starred) for one in target.elts)
        written = value.elts if isinstance(value, (ast.Tuple, ast.List)) and kind == "value" else None
        whole = written is not None and len(written) == len(target.elts) and not starred
        whole = whole and not any(isinstance(one, ast.Starred) for one in written or ())
        for index, one in enumerate(target.elts):
            if whole and written is not None:
                self._target(one, written[index], "value", scope, context)
            elif kind == "value" and not starred:
                self._target(one, value, "part", scope, context, index)
            else:
                self._target(one, value, "element", scope, context)

    # ---- control flow

    def _for(self, node: ast.For | ast.AsyncFor, context: Context) -> None:
        self._expression(node.iter, context.scope, context)
        inside = Context("loop", node, context, context.scope, "body")
        self._target(node.target, node.iter, "element", context.scope, inside)
        self._reading.loops.append(Loop(node, inside))
        self.block(node.body, inside)
        self.block(node.orelse, Context("branch", node, context, context.scope, "orelse"))

    def _while(self, node: ast.While, context: Context) -> None:
        inside = Context("loop", node, context, context.scope, "body")
        self._expression(node.test, context.scope, inside)
        self._reading.loops.append(Loop(node, inside))
        self.block(node.body, inside)
        self.block(node.orelse, Context("branch", node, context, context.scope, "orelse"))

    def _if(self, node: ast.If, context: Context) -> None:
        self._expression(node.test, context.scope, context)
        self.block(node.body, Context("branch", node, context, context.scope, "body"))
        self.block(node.orelse, Context("branch", node, context, context.scope, "orelse"))

    def _with(self, node: ast.With | ast.AsyncWith, context: Context) -> None:
        inside = Context("with", node, context, context.scope, "body")
        for item in node.items:
            self._expression(item.context_expr, context.scope, inside)
            if item.optional_vars is not None:
                self._target(item.optional_vars, item.context_expr, "context", context.scope, inside)
        self.block(node.body, inside)

    def _try(self, node: Any, context: Context) -> None:
        self.block(node.body, Context("try", node, context, context.scope, "body"))
        for handler in node.handlers:
            inside = Context("try", node, context, context.scope, "handler")
            if handler.type is not None:
                self._expression(handler.type, context.scope, inside)
            if handler.name:
                self._bind(handler.name, Binding("other", context.scope, inside, handler))
            self.block(handler.body, inside)
        self.block(node.orelse, Context("try", node, context, context.scope, "orelse"))
        self.block(node.finalbody, Context("try", node, context, context.scope, "finalbody"))

    def _match(self, node: ast.Match, context: Context) -> None:
        self._expression(node.subject, context.scope, context)
        for case in node.cases:
            inside = Context("branch", node, context, context.scope, "body")
            for part in ast.walk(case.pattern):
                name = getattr(part, "name", None) or getattr(part, "rest", None)
                if isinstance(name, str):
                    self._bind(name, Binding("element", context.scope, inside, part, node.subject))
            self.block(case.body, inside)

    def _return(self, node: ast.Return, context: Context) -> None:
        if node.value is not None:
            self._expression(node.value, context.scope, context)
            context.scope.returns.append(Returned(node.value, context, False))

    def _global(self, node: ast.Global, context: Context) -> None:
        module = context.scope.module()
        context.scope.outer.update(dict.fromkeys(node.names, module))

    def _nonlocal(self, node: ast.Nonlocal, context: Context) -> None:
        context.scope.outer.update(dict.fromkeys(node.names))

    # ---- imports

    def _import(self, node: ast.Import, context: Context) -> None:
        for alias in node.names:
            root = alias.name.partition(".")[0]
            bound, full = (alias.asname, alias.name) if alias.asname else (root, root)
            self._bind(bound, Binding("import", context.scope, context, node, imported=full))
            self._reading.uses.append(Use(node, context.scope, context, alias.name))

    def _import_from(self, node: ast.ImportFrom, context: Context) -> None:
        module = "." * node.level + (node.module or "")
        for alias in node.names:
            full = f"{module}.{alias.name}"
            if alias.name != "*":
                self._bind(alias.asname or alias.name, Binding("import", context.scope, context, node, imported=full))
            if not node.level:
                self._reading.uses.append(Use(node, context.scope, context, full))

    # ---- expressions

    def _expression(self, node: ast.AST, scope: Scope, context: Context) -> None:
        """Note the calls and dotted names of an expression. Long chains of operators must not exhaust the stack."""
        waiting = [node]
        reading = self._reading
        while waiting:
            one = waiting.pop()
            kind = type(one)
            if kind is ast.Name or kind is ast.Load:
                continue
            if isinstance(one, ast.Constant):
                if isinstance(one.value, str):
                    reading.strings.add(one.value)
            elif isinstance(one, ast.Call):
                self._call(one, scope, context)
                waiting.extend(keyword.value for keyword in reversed(one.keywords))
                waiting.extend(reversed(one.args))
                waiting.append(one.func)
            elif isinstance(one, ast.Attribute):
                below = one.value
                while isinstance(below, ast.Attribute):
                    below = below.value
                if isinstance(below, ast.Name):
                    reading.uses.append(Use(one, scope, context))
                else:
                    waiting.append(below)
            elif isinstance(one, ast.Lambda):
                self._lambda(one, scope, context)
            elif isinstance(one, _COMPREHENSIONS):
                self._comprehension(one, scope, context)
            elif isinstance(one, ast.NamedExpr):
                waiting.append(one.value)
                self._target(one.target, one.value, "value", scope.function(), context)
            elif isinstance(one, (ast.Yield, ast.YieldFrom)):
                if one.value is not None:
                    waiting.append(one.value)
                    scope.function().returns.append(Returned(one.value, context, True))
            elif not isinstance(one, _LEAVES):
                waiting.extend(reversed(list(ast.iter_child_nodes(one))))

    def _call(self, node: ast.Call, scope: Scope, context: Context) -> None:
        self._reading.calls.append(Call(node, scope, context))
        func = node.func
        if isinstance(func, ast.Attribute) and func.attr in _ADDING and node.args:
            self._added(func.value, node.args[-1], scope, context)

    def _added(self, holder: ast.expr, value: ast.expr, scope: Scope, context: Context) -> None:
        while isinstance(holder, ast.Subscript):
            holder = holder.value
        binding = Binding("added", scope, context, holder, value)
        if isinstance(holder, ast.Attribute):
            self._reading.stored.append((holder, binding))
        elif isinstance(holder, ast.Name) and (variable := scope.find(holder.id)) is not None:
            variable.bindings.append(binding)

    def _comprehension(self, node: Any, scope: Scope, context: Context) -> None:
        inner = Scope("comprehension", node, scope, "", context)
        self._reading.inner[node] = inner
        for generator in node.generators:
            self._expression(generator.iter, inner, context)
            self._target(generator.target, generator.iter, "element", inner, context)
            for test in generator.ifs:
                self._expression(test, inner, context)
        for part in (node.key, node.value) if isinstance(node, ast.DictComp) else (node.elt,):
            self._expression(part, inner, context)
