"""Where values come from: full names of imported things, the calls that made an object, the function that is called."""

from __future__ import annotations

import ast
from collections.abc import Iterable
from dataclasses import dataclass

from staging_tf1.legacy.lint.model.reading import Binding, Call, Reading, Scope, Variable
from staging_tf1.legacy.moved_names import plain

# Calls whose result holds what they are given.
_HOLDING = frozenset({"zip", "enumerate", "list", "tuple", "reversed", "sorted", "iter", "next", "dict", "set"})
_TAKING_OUT = frozenset({"values", "items", "pop", "popleft", "copy"})


@dataclass(frozen=True)
class Instance:
    """The object that a method of a class calls `self`."""

    of: Scope


# What a value may come from: the call that made it, a function or class, an object, a variable or expression of
# unknown content, or an import.
Origin = Call | Scope | Instance | Variable | Binding | ast.expr


class Values:
    """Answers questions about the values of expressions. Ask with the scope in which the expression stands."""

    def __init__(self, reading: Reading) -> None:
        self._reading = reading
        self._calls = {call.node: call for call in reading.calls}
        self._names: dict[ast.AST, str] = {}
        self._origins: dict[Variable, tuple[Origin, ...]] = {}
        self._under_way: dict[Variable, tuple[Origin, ...]] = {}  # those that a question has met, so far
        self._callees: dict[ast.Call, list[Scope]] = {}
        self._circular = False
        self._depth = 0
        self.callers: dict[Scope, list[Arguments]] = {}
        # What a file says of its attributes decides what its calls call, and those decide what parameters are.
        give_attributes(reading, self)
        self._forget()
        self.callers = find_callers(reading, self)
        self._forget()

    # ---- names

    def full_name(self, node: ast.expr, scope: Scope) -> str:
        """Return the full name of what ``tf.train.Saver`` or an alias of it stands for.

        Builtins are returned as they are. What is defined in the file or unknown has no full name: "".
        """
        full = self._names.get(node)
        if full is None:
            self._names[node] = ""  # for names that are defined by themselves
            full = self._names[node] = self._full_name(node, scope)
        return full

    def _full_name(self, node: ast.expr, scope: Scope) -> str:
        if isinstance(node, ast.Attribute):
            head = self.full_name(node.value, scope)
            return plain(f"{head}.{node.attr}") if head else ""
        if not isinstance(node, ast.Name):
            return ""
        variable = scope.find(node.id)
        if variable is None:
            return node.id
        imported = [one.imported for one in variable.bindings if one.kind == "import"]
        if imported and all(one.kind == "import" or _is_none(one.value) for one in variable.bindings):
            return plain(imported[0])
        if len(variable.bindings) == 1:
            only = variable.bindings[0]
            if only.kind == "value" and isinstance(only.value, (ast.Name, ast.Attribute)):
                return self.full_name(only.value, only.scope)
        return ""

    def call_name(self, call: Call) -> str:
        """Return the full name of the called function, or ""."""
        return self.full_name(call.node.func, call.scope)

    def uses(self, package: str) -> bool:
        """Whether `package` or something in it is imported."""
        return any(
            one.imported == package or one.imported.startswith(package + ".")
            for one in self._reading.uses
            if one.imported
        )

    # ---- origins

    def origins(self, node: ast.expr, scope: Scope, index: int = -1) -> tuple[Origin, ...]:
        """Return what the value of an expression may come from. A container comes from what it holds."""
        origins: dict[Origin, None] = {}
        waiting: list[tuple[ast.expr, Scope, int]] = [(node, scope, index)]
        seen: set[tuple[ast.AST, int]] = set()
        while waiting:
            one, where, part = waiting.pop()
            if (one, part) in seen:
                continue
            seen.add((one, part))
            if isinstance(one, ast.Name):
                variable = where.find(one.id)
                origins.update(dict.fromkeys([one] if variable is None else self.of_variable(variable)))
            elif isinstance(one, ast.Attribute):
                origins.update(dict.fromkeys(self._of_attribute(one, where)))
            elif isinstance(one, ast.Call):
                self._through_call(one, where, part, origins, waiting)
            else:
                through = _parts(one, part)
                if through is None:
                    origins[one] = None
                else:
                    inner = self._reading.inner.get(one, where)
                    waiting.extend((below, inner, -1) for below in through)
        return tuple(origins)

    def of_variable(self, variable: Variable) -> tuple[Origin, ...]:
        """Return what the value of a variable may come from."""
        known = self._origins.get(variable)
        if known is not None:
            return known
        if variable in self._under_way:
            self._circular = True
            return self._under_way[variable]
        self._under_way[variable] = ()
        self._depth += 1
        origins: dict[Origin, None] = {}
        for binding in variable.bindings:
            origins.update(dict.fromkeys(self._of_binding(variable, binding)))
        self._depth -= 1
        result = self._under_way[variable] = tuple(origins)
        if self._depth == 0:
            # Within a circle of names, all results but the outermost are incomplete.
            self._origins.update({variable: result} if self._circular else self._under_way)
            self._under_way.clear()
            self._circular = False
        return result

    def _of_binding(self, variable: Variable, binding: Binding) -> Iterable[Origin]:
        if binding.inner is not None:
            return (binding.inner,)
        if binding.kind == "import":
            return (binding,)
        if binding.kind == "parameter":
            return self._of_parameter(variable, binding)
        if binding.value is not None:
            return self.origins(binding.value, binding.scope, binding.index)
        return (variable,)

    def _of_parameter(self, variable: Variable, binding: Binding) -> Iterable[Origin]:
        owner = self.owner(binding.scope)
        if owner is not None and binding.scope.parameters[:1] == [variable.name]:
            return (Instance(owner),)
        given = self.given(binding.scope, variable.name)
        if not given:
            return (variable,)
        return [origin for value, scope in given for origin in self.origins(value, scope)]

    def given(self, function: Scope, parameter: str) -> list[tuple[ast.expr, Scope]]:
        """Return the values that the callers in this file pass for a parameter."""
        values = []
        for arguments in self.callers.get(function, ()):
            for name, value in arguments.keywords:
                if name == parameter:
                    values.append((value, arguments.scope))
            names = function.parameters[arguments.skips :]
            if parameter in names and names.index(parameter) < len(arguments.positional):
                values.append((arguments.positional[names.index(parameter)], arguments.scope))
        return values

    def _of_attribute(self, node: ast.Attribute, scope: Scope) -> list[Origin]:
        if self.full_name(node, scope):
            return [node]
        origins: list[Origin] = []
        for owner in self.classes(node.value, scope):
            attribute = self.attribute(owner, node.attr)
            if attribute is not None:
                origins.extend(self.of_variable(attribute))
        return origins or [node]

    def _through_call(
        self,
        node: ast.Call,
        scope: Scope,
        part: int,
        origins: dict[Origin, None],
        waiting: list[tuple[ast.expr, Scope, int]],
    ) -> None:
        name = self.full_name(node.func, scope)
        if name in _HOLDING:
            waiting.extend((arg, scope, -1) for arg in node.args)
            return
        functions = [] if name else [one for one in self.callees(node, scope) if one.kind == "function"]
        if functions:
            waiting.extend((one.value, one.context.scope, part) for function in functions for one in function.returns)
        elif not name and isinstance(node.func, ast.Attribute) and node.func.attr in _TAKING_OUT:
            waiting.append((node.func.value, scope, -1))
        else:
            origins[self._calls.get(node, node)] = None

    # ---- classes and functions of this file

    def classes(self, node: ast.expr, scope: Scope) -> list[Scope]:
        """Return the classes of this file that an object may belong to."""
        classes: dict[Scope, None] = {}
        for origin in self.origins(node, scope):
            if isinstance(origin, Instance):
                classes[origin.of] = None
            elif isinstance(origin, Call):
                called = [] if self.call_name(origin) else self.callees(origin.node, origin.scope)
                classes.update(dict.fromkeys(one for one in called if one.kind == "class"))
        return list(classes)

    def callees(self, node: ast.Call, scope: Scope) -> list[Scope]:
        """Return the functions and classes of this file that a call may call."""
        callees = self._callees.get(node)
        if callees is None:
            self._callees[node] = []  # for calls that depend on their own result: x = x.next()
            callees = self._callees[node] = self.definitions(node.func, scope)
        return callees

    def definitions(self, node: ast.expr, scope: Scope) -> list[Scope]:
        """Return the functions and classes of this file that an expression may name."""
        return [origin for origin in self.origins(node, scope) if isinstance(origin, Scope)]

    def attribute(self, owner: Scope, name: str) -> Variable | None:
        """Return an attribute or method of a class, or of a class of this file that it derives from."""
        waiting, seen = [owner], set()
        while waiting:
            one = waiting.pop(0)
            if one in seen:
                continue
            seen.add(one)
            variable = one.attributes.get(name) or one.variables.get(name)
            if variable is not None:
                return variable
            if isinstance(one.node, ast.ClassDef) and one.above is not None:
                above = one.above
                waiting.extend(base for text in one.node.bases for base in self.definitions(text, above))
        return None

    def owner(self, function: Scope) -> Scope | None:
        """Return the class that a method belongs to; None for functions and static methods."""
        above = function.above
        if (
            above is None
            or above.kind != "class"
            or not isinstance(function.node, (ast.FunctionDef, ast.AsyncFunctionDef))
        ):
            return None
        static = any(isinstance(one, ast.Name) and one.id == "staticmethod" for one in function.node.decorator_list)
        return None if static else above

    def _forget(self) -> None:
        self._callees.clear()
        self._origins.clear()
        self._names.clear()


def _is_none(node: ast.expr | None) -> bool:
    return isinstance(node, ast.Constant) and node.value is None


def _parts(node: ast.expr, part: int) -> list[ast.expr] | None:
    """Return the expressions that an expression passes on; None if it makes a value of its own."""
    if isinstance(node, (ast.Tuple, ast.List, ast.Set)):
        if 0 <= part < len(node.elts) and not any(isinstance(one, ast.Starred) for one in node.elts):
            return [node.elts[part]]
        return list(node.elts)
    if isinstance(node, ast.Dict):
        return list(node.values)
    if isinstance(node, (ast.Subscript, ast.Starred, ast.NamedExpr, ast.Await)):
        return [node.value]
    if isinstance(node, ast.IfExp):
        return [node.body, node.orelse]
    if isinstance(node, ast.BoolOp):
        return list(node.values)
    if isinstance(node, (ast.ListComp, ast.SetComp, ast.GeneratorExp)):
        return [node.elt]
    if isinstance(node, ast.DictComp):
        return [node.value]
    return None


@dataclass(frozen=True)
class Arguments:
    """What one caller passes to a function."""

    scope: Scope
    positional: tuple[ast.expr, ...]
    keywords: tuple[tuple[str, ast.expr], ...]
    skips: int  # parameters that are bound already: `self` of a method


def give_attributes(reading: Reading, values: Values) -> None:
    """Give each assigned attribute to the class of its object."""
    of_self: list[tuple[Scope, ast.Attribute, Binding]] = []
    others = []
    for target, binding in reading.stored:
        owner = _self_of(values, target.value, binding.scope)
        if owner is not None:
            of_self.append((owner, target, binding))
        else:
            others.append((target, binding))
    for owner, target, binding in of_self:
        _give(owner, target.attr, binding)
    for target, binding in others:
        for owner in values.classes(target.value, binding.scope):
            _give(owner, target.attr, binding)


def _self_of(values: Values, node: ast.expr, scope: Scope) -> Scope | None:
    if not isinstance(node, ast.Name):
        return None
    variable = scope.find(node.id)
    if variable is None or len(variable.bindings) != 1 or variable.bindings[0].kind != "parameter":
        return None
    function = variable.bindings[0].scope
    return values.owner(function) if function.parameters[:1] == [node.id] else None


def find_callers(reading: Reading, values: Values) -> dict[Scope, list[Arguments]]:
    """Return what the callers of each function pass to it, threads included."""
    callers: dict[Scope, list[Arguments]] = {}
    for call in reading.calls:
        name = values.call_name(call)
        if name and name not in ("threading.Thread", "Thread"):
            continue
        for function, arguments in _passed(values, call, name):
            callers.setdefault(function, []).append(arguments)
    return callers


def _passed(values: Values, call: Call, name: str) -> Iterable[tuple[Scope, Arguments]]:
    keywords = tuple((one.arg, one.value) for one in call.node.keywords if one.arg is not None)
    positional = tuple(call.node.args)
    target: ast.expr = call.node.func
    if name:  # a thread
        given = dict(keywords)
        wanted = given.get("target") or (positional[1] if len(positional) > 1 else None)
        if wanted is None:
            return
        target = wanted
        packed, named = given.get("args"), given.get("kwargs")
        positional = tuple(packed.elts) if isinstance(packed, (ast.Tuple, ast.List)) else ()
        keywords = tuple(_dict_items(named))
    star = next((index for index, one in enumerate(positional) if isinstance(one, ast.Starred)), len(positional))
    for one in values.definitions(target, call.scope):
        function, skips = one, 0
        if one.kind == "class":
            init = values.attribute(one, "__init__")
            inits = [binding.inner for binding in init.bindings if binding.inner is not None] if init else []
            if not inits or inits[0] is None:
                continue
            function, skips = inits[0], 1
        elif values.owner(one) is not None and isinstance(target, ast.Attribute):
            skips = 0 if values.definitions(target.value, call.scope) else 1
        yield function, Arguments(call.scope, positional[:star], keywords, skips)


def _give(owner: Scope, name: str, binding: Binding) -> None:
    variable = owner.attributes.get(name)
    if variable is None:
        variable = owner.attributes[name] = Variable(name, owner)
    variable.bindings.append(binding)


def _dict_items(node: ast.expr | None) -> Iterable[tuple[str, ast.expr]]:
    if isinstance(node, ast.Dict):
        for key, value in zip(node.keys, node.values):
            if isinstance(key, ast.Constant) and isinstance(key.value, str):
                yield key.value, value
