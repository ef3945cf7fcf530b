"""Recognises areas that have one put and one get, if they are unambiguous."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import libcst as cst

from staging_tf1.legacy.codemod.import_lines import code
from staging_tf1.legacy.codemod.names import Imports, dotted

_PLAIN_AREA_ARGUMENTS = ("dtypes", "shapes", "capacity", "memory_limit")


@dataclass(frozen=True)
class Staging:
    """An area, its one put and its one get."""

    area: str
    put: str
    values: str  # the argument of put, as source
    options: str  # capacity and memory_limit, as source


def find_stagings(module: cst.Module, imports: Imports) -> list[Staging]:
    """Return the areas that have one put in the same block of statements, at any level."""
    blocks = _Blocks()
    module.visit(blocks)
    return [one for body in [module.body, *blocks.bodies] for one in _in_block(body, imports)]


class _Blocks(cst.CSTVisitor):
    def __init__(self) -> None:
        self.bodies: list[Sequence[cst.BaseStatement]] = []

    def visit_IndentedBlock(self, node: cst.IndentedBlock) -> None:
        self.bodies.append(node.body)


def _in_block(body: Sequence[cst.BaseStatement], imports: Imports) -> list[Staging]:
    areas: dict[str, str] = {}
    stagings = []
    for name, value in _assignments(body):
        if not isinstance(value, cst.Call):
            continue
        if imports.meaning(value.func) == "staging_tf1.StagingArea":
            if (options := _area_options(value)) is not None:
                areas[name] = options
        elif isinstance(value.func, cst.Attribute) and value.func.attr.value == "put" and len(value.args) == 1:
            area = dotted(value.func.value) or ""
            if area in areas and isinstance(value.args[0].value, (cst.List, cst.Tuple)):
                stagings.append(Staging(area, name, code(value.args[0].value), areas[area]))
    return stagings


def _assignments(body: Sequence[cst.BaseStatement]) -> list[tuple[str, cst.BaseExpression]]:
    pairs = []
    for statement in body:
        if isinstance(statement, cst.SimpleStatementLine) and isinstance(statement.body[0], cst.Assign):
            assign = statement.body[0]
            if len(assign.targets) == 1 and isinstance(assign.targets[0].target, cst.Name):
                pairs.append((assign.targets[0].target.value, assign.value))
    return pairs


def _area_options(call: cst.Call) -> str | None:
    """Return capacity and memory limit as arguments of staged(); None if staged() cannot replace the area."""
    options = ""
    for position, arg in enumerate(call.args):
        name = arg.keyword.value if arg.keyword is not None else ("dtypes", "shapes", "")[min(position, 2)]
        if arg.star or name not in _PLAIN_AREA_ARGUMENTS:
            return None
        if name in ("capacity", "memory_limit"):
            options += f", {name}={code(arg.value)}"
    return options
