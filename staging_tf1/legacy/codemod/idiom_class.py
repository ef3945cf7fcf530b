"""Reads a class that feeds a queue from threads: its methods, if they are of a known shape, and what it holds."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import libcst as cst

from staging_tf1.legacy.codemod.import_lines import code, expression, names_in
from staging_tf1.legacy.codemod.names import Imports, dotted

# Calls of these in __init__ only compute a value.
_WITHOUT_EFFECT = ("dict", "float", "int", "len", "list", "max", "min", "range", "set", "str", "tuple")
# What can be carried to another place.
_PLAIN = (cst.Name, cst.Attribute, cst.Integer, cst.Float, cst.SimpleString)


class UnknownShapeError(Exception):
    """The code is not of a known shape; the message says what is different."""


def assignments(function: cst.FunctionDef, imports: Imports) -> dict[str, cst.BaseExpression]:
    """Return what `__init__` assigns to attributes and locals. Raises UnknownShapeError if it does anything else."""
    assigned: dict[str, cst.BaseExpression] = {}
    lines = statements(function.body)
    while lines:
        line = lines.pop(0)
        if isinstance(line, cst.With) and len(line.items) == 1 and "device" in code(line.items[0].item):
            lines[:0] = statements(line.body)
            continue
        one = line.body[0] if isinstance(line, cst.SimpleStatementLine) else None
        name = dotted(one.targets[0].target) if isinstance(one, cst.Assign) and len(one.targets) == 1 else None
        if not isinstance(one, cst.Assign) or name is None or not _is_new(name, assigned):
            raise UnknownShapeError(f"__init__ does more than to assign attributes once: {shown(line)}")
        _check_calls(one.value, imports)
        assigned[name] = one.value
    return assigned


def _is_new(name: str, assigned: Mapping[str, cst.BaseExpression]) -> bool:
    return name not in assigned and (name.startswith("self.") or "." not in name)


def _check_calls(value: cst.BaseExpression, imports: Imports) -> None:
    """Raise if the value comes from a call that may have an effect, because the class and its calls are removed."""
    for call in calls_in(value):
        name = imports.meaning(call.func)
        if not name.startswith(("tensorflow.", "self.")) and name not in _WITHOUT_EFFECT:
            raise UnknownShapeError(f"__init__ calls {code(call.func)}()")


def batch_size_of(module: cst.Module, function: cst.FunctionDef, queue: str) -> cst.BaseExpression | None:
    """Return N if the method returns ``self.queue.dequeue_many(N)``, perhaps by way of names; None for dequeue()."""
    lines = [line.body[0] for line in statements(function.body) if isinstance(line, cst.SimpleStatementLine)]
    plain = f"{function.name.value}() does more than to return {queue}.dequeue_many(N)"
    if len(lines) != len(statements(function.body)) or not lines or not isinstance(lines[-1], cst.Return):
        raise UnknownShapeError(plain)
    value = lines[-1].value
    if len(lines) == 2 and isinstance(lines[0], cst.Assign) and value is not None:
        if _names(lines[0].targets[0].target) != _names(value):
            raise UnknownShapeError(plain)
        value = lines[0].value
    elif len(lines) != 1:
        raise UnknownShapeError(plain)
    if isinstance(value, cst.Call) and dotted(value.func) == f"{queue}.dequeue" and not value.args:
        return None
    if not (isinstance(value, cst.Call) and dotted(value.func) == f"{queue}.dequeue_many" and len(value.args) == 1):
        raise UnknownShapeError(plain)
    number = value.args[0].value
    own = {one.name.value for one in function.params.params} - {"self"}
    if own.isdisjoint(names_in(number)):
        return number
    if not isinstance(number, cst.Name):
        raise UnknownShapeError(f"{function.name.value}() computes its batch size, {code(number)}")
    calls = [call for call in calls_of(module, function.name.value) if call.args]
    if len(calls) != 1 or len(calls[0].args) != 1:
        raise UnknownShapeError(f"{function.name.value}() is called with several batch sizes")
    return calls[0].args[0].value


def threads_of(module: cst.Module, start: cst.FunctionDef) -> cst.BaseExpression:
    """Return the number of threads that the start method starts, or ``self.x`` for what the constructor gets."""
    plain = f"{start.name.value}() starts a number of threads that is no constant"
    loops = [line for line in statements(start.body) if isinstance(line, cst.For) and "Thread(" in code(line)]
    if not loops:
        return cst.Integer("1")
    times = loops[0].iter
    counted = isinstance(times, cst.Call) and dotted(times.func) in ("range", "xrange") and len(times.args) == 1
    if len(loops) != 1 or not isinstance(times, cst.Call) or not counted:
        raise UnknownShapeError(plain)
    number = times.args[0].value
    if (dotted(number) or "").startswith("self."):
        return number
    parameters = [param for param in start.params.params if param.name.value != "self"]
    place = next((i for i, param in enumerate(parameters) if param.name.value == code(number)), None)
    numbers = {code(number)}
    if place is not None:
        name, default = code(number), parameters[place].default
        calls = calls_of(module, start.name.value)
        given = [arg.value for call in calls for i, arg in enumerate(call.args) if _is_argument(arg, i, place, name)]
        numbers = {code(value) for value in given}
        if default is not None and len(given) < len(calls):
            numbers.add(code(default))
    if len(numbers) != 1 or not (text := numbers.pop()).isdigit() or int(text) < 1:
        raise UnknownShapeError(plain)
    return cst.Integer(text)


def calls_in(node: cst.CSTNode) -> list[cst.Call]:
    """Return all calls in a piece of code."""
    calls: list[cst.Call] = []

    class Calls(cst.CSTVisitor):
        def visit_Call(self, node: cst.Call) -> None:
            calls.append(node)

    node.visit(Calls())
    return calls


def calls_of(module: cst.Module, method: str) -> list[cst.Call]:
    """Return the calls of a method of that name on any object."""
    return [one for one in calls_in(module) if isinstance(one.func, cst.Attribute) and one.func.attr.value == method]


def _is_argument(arg: cst.Arg, place: int, wanted: int, name: str) -> bool:
    return arg.keyword.value == name if arg.keyword is not None else place == wanted


def _names(node: cst.BaseExpression) -> list[str | None]:
    return [dotted(element) for element in elements_of(node)]


def elements_of(node: cst.BaseExpression) -> list[cst.BaseExpression]:
    """Return the elements of a list or tuple; any other expression is the only one."""
    return [element.value for element in node.elements] if isinstance(node, (cst.List, cst.Tuple)) else [node]


def statements(block: cst.BaseSuite) -> list[cst.CSTNode]:
    """Return the statements of a block without its docstrings."""
    return [
        one
        for one in block.body
        if not (
            isinstance(one, cst.SimpleStatementLine)
            and isinstance(one.body[0], cst.Expr)
            and isinstance(one.body[0].value, cst.SimpleString)
        )
    ]


def shown(node: cst.CSTNode) -> str:
    """Return the beginning of a statement, for a message."""
    return code(node).strip().splitlines()[-1][:60]


@dataclass(frozen=True)
class Values:
    """What the attributes of a class mean where the class was called."""

    assigned: Mapping[str, cst.BaseExpression]  # what __init__ assigns, to "self.x" or to a local name
    given: Mapping[str, cst.BaseExpression | None]  # its arguments

    def of(self, value: cst.BaseExpression, in_init: bool = False) -> str:
        """Return the source of an expression of the class. Only in `__init__`, names are its arguments and locals."""
        new = value.visit(_Carried(self, in_init))
        assert isinstance(new, cst.BaseExpression)
        if "self" in names_in(new):
            raise UnknownShapeError(f"{code(value)} uses self")
        return code(new)

    def attribute(self, name: str) -> str:
        """Return the source of what ``self.x`` holds."""
        if name not in self.assigned:
            raise UnknownShapeError(f"{name} is not assigned in __init__")
        return self._source_of(name)

    def name(self, name: str) -> str:
        """Return the source of what a name in `__init__` holds: an argument, a local or a global."""
        if name in self.assigned:
            if name in self.given:
                raise UnknownShapeError(f"its argument {name} is changed in __init__")
            return self._source_of(name)
        if name not in self.given:
            return name
        passed = self.given[name]
        if not isinstance(passed, _PLAIN):
            raise UnknownShapeError(f"its argument {name} is no name or constant")
        return code(passed)

    def _source_of(self, name: str) -> str:
        value = self.assigned[name]
        if calls_in(value):
            raise UnknownShapeError(f"{name} is made by a call, {code(value)}")
        text = self.of(value, in_init=True)
        return text if isinstance(value, _PLAIN) else f"({text})"


class _Carried(cst.CSTTransformer):
    def __init__(self, values: Values, in_init: bool) -> None:
        super().__init__()
        self._values = values
        self._in_init = in_init

    def leave_Name(self, original_node: cst.Name, updated_node: cst.Name) -> cst.BaseExpression:
        return expression(self._values.name(original_node.value)) if self._in_init else updated_node

    def visit_Attribute(self, node: cst.Attribute) -> bool:
        return False  # The name of the attribute is no name.

    def leave_Attribute(self, original_node: cst.Attribute, updated_node: cst.Attribute) -> cst.BaseExpression:
        name = dotted(original_node) or ""
        if name.startswith("self.") and name.count(".") == 1:
            return expression(self._values.attribute(name))
        value = original_node.value.visit(self)
        assert isinstance(value, cst.BaseExpression)
        return updated_node.with_changes(value=value)

    def visit_Arg(self, node: cst.Arg) -> bool:
        return False  # Nor is the keyword.

    def leave_Arg(self, original_node: cst.Arg, updated_node: cst.Arg) -> cst.Arg:
        value = original_node.value.visit(self)
        assert isinstance(value, cst.BaseExpression)
        return updated_node.with_changes(value=value)
