"""Carries expressions of a feeding class to the place where the class was called."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import libcst as cst

from staging_tf1.legacy.codemod.idiom_methods import UnknownShapeError, calls_in
from staging_tf1.legacy.codemod.import_lines import code, expression, names_in
from staging_tf1.legacy.codemod.names import dotted

_PLAIN = (cst.Name, cst.Attribute, cst.Integer, cst.Float, cst.SimpleString)


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
