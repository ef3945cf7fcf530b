"""Connects what a file defines: attributes with their classes, and parameters with what callers pass."""

from __future__ import annotations

import ast
from collections.abc import Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from staging_tf1.legacy.lint.model.reading import Call, Reading
from staging_tf1.legacy.lint.model.scopes import Binding, Scope, Variable

if TYPE_CHECKING:
    from staging_tf1.legacy.lint.model.values import Values


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
            made = values.attribute(one, "__init__")
            found = [each.inner for each in made.bindings if each.inner is not None] if made else []
            if not found or found[0] is None:
                continue
            function, skips = found[0], 1
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
