"""Rewrites import statements, and finds the place for new ones."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass, field

import libcst as cst

from staging_tf1.legacy import moved_names
from staging_tf1.legacy.codemod.names import dotted

_V1 = "tensorflow.compat.v1"
# Names below the public API, which do not move, and names that are already migrated.
_STAYS = (
    "tensorflow.python",
    "tensorflow.core",
    "tensorflow.compat",
    "tensorflow.keras",
    "tensorflow.compiler",
    "tensorflow.lite",
    "tensorflow.tools",
)


@dataclass
class NewImport:
    """The replacement of one import statement."""

    lines: list[str] | None  # None: the statement stays
    left: list[tuple[str, str]] = field(default_factory=list)  # names that cannot be moved, with the advice


def rewritten_import(node: cst.Import | cst.ImportFrom, *, keep_tensorflow: bool) -> NewImport:
    """Return the lines that replace an import statement.

    `keep_tensorflow` keeps ``import tensorflow as tf``, because the file spells out tf.compat.v1.
    """
    if isinstance(node, cst.Import):
        return _plain(node, keep_tensorflow)
    return _from(node, keep_tensorflow)


def import_line(text: str) -> cst.SimpleStatementLine:
    """Parse one line."""
    parsed = cst.parse_statement(text)
    if not isinstance(parsed, cst.SimpleStatementLine):
        raise TypeError(f"{text!r} is not a simple statement")
    return parsed


def expression(text: str) -> cst.BaseExpression:
    """Parse one expression."""
    return cst.parse_expression(text)


def code(node: cst.CSTNode) -> str:
    """Return the source of a node."""
    return cst.Module([]).code_for_node(node)


def add_after_imports(module: cst.Module, lines: Sequence[str]) -> cst.Module:
    """Return the module with `lines` after its first block of imports that includes TensorFlow or this package."""
    if not lines:
        return module
    body = list(module.body)
    place = _end_of_import_block(body)
    new: list[cst.BaseStatement] = [import_line(text) for text in lines]
    if not lines[-1].startswith("import ") and len(body) > place:
        new[-1] = import_line(lines[-1]).with_changes(leading_lines=[cst.EmptyLine(indent=False)])
    if place == 0 and body:  # without imports at the top level, the lines go below the docstring
        place = 1 if module.get_docstring() is not None else 0
    return module.with_changes(body=[*body[:place], *new, *body[place:]])


def add_before_imports(module: cst.Module, line: str) -> cst.Module:
    """Return the module with `line` before its first import that is not of ``__future__``."""
    body = list(module.body)
    for place, statement in enumerate(body):
        if _is_import(statement) and "__future__" not in code(statement):
            # Comments and blank lines above the import stay above the new one.
            new = import_line(line).with_changes(leading_lines=statement.leading_lines)
            body[place] = statement.with_changes(leading_lines=[])
            return module.with_changes(body=[*body[:place], new, *body[place:]])
    return module


def names_in(node: cst.CSTNode) -> set[str]:
    """Return the names that a module or an expression uses outside import statements."""
    names: set[str] = set()

    class Names(cst.CSTVisitor):
        def visit_Import(self, node: cst.Import) -> bool:
            return False

        def visit_ImportFrom(self, node: cst.ImportFrom) -> bool:
            return False

        def visit_Attribute(self, node: cst.Attribute) -> bool:
            node.value.visit(self)
            return False

        def visit_Name(self, node: cst.Name) -> None:
            names.add(node.value)

    node.visit(Names())
    return names


def without_unused_imports(module: cst.Module, modules: Collection[str]) -> tuple[cst.Module, set[str]]:
    """Return the module without the unused ``from ... import`` names of `modules`, and the full names removed."""
    used = names_in(module)
    removed: set[str] = set()

    class Remover(cst.CSTTransformer):
        def leave_SimpleStatementLine(
            self, original_node: cst.SimpleStatementLine, updated_node: cst.SimpleStatementLine
        ) -> cst.BaseStatement | cst.RemovalSentinel:
            imported = updated_node.body[0]
            if (
                not isinstance(imported, cst.ImportFrom)
                or imported.module is None
                or isinstance(imported.names, cst.ImportStar)
            ):
                return updated_node
            kept = []
            for alias in imported.names:
                full = f"{dotted(imported.module)}.{alias.evaluated_name}"
                if full in modules and (alias.evaluated_alias or alias.evaluated_name) not in used:
                    removed.add(full)
                else:
                    kept.append(alias)
            if len(kept) == len(imported.names):
                return updated_node
            if not kept:
                return cst.RemoveFromParent()
            kept[-1] = kept[-1].with_changes(comma=cst.MaybeSentinel.DEFAULT)
            return updated_node.with_changes(body=[imported.with_changes(names=kept), *updated_node.body[1:]])

    return module.visit(Remover()), removed


def _end_of_import_block(body: Sequence[cst.BaseStatement]) -> int:
    """Return the index after the first import of TensorFlow and the imports that directly follow it."""
    for index, statement in enumerate(body):
        if _imports_tensorflow(statement):
            while index < len(body) and _is_import(body[index]):
                index += 1
            return index
    return 0


def _is_import(statement: cst.CSTNode) -> bool:
    return isinstance(statement, cst.SimpleStatementLine) and isinstance(
        statement.body[0], (cst.Import, cst.ImportFrom)
    )


def _imports_tensorflow(statement: cst.CSTNode) -> bool:
    if not isinstance(statement, cst.SimpleStatementLine):
        return False
    imported = statement.body[0]
    if isinstance(imported, cst.Import):
        names = [dotted(alias.name) or "" for alias in imported.names]
    elif isinstance(imported, cst.ImportFrom) and imported.module is not None and not imported.relative:
        names = [dotted(imported.module) or ""]
    else:
        return False
    return any(name.partition(".")[0] in ("tensorflow", "staging_tf1") for name in names)


def _plain(node: cst.Import, keep_tensorflow: bool) -> NewImport:
    lines: list[str] = []
    left: list[tuple[str, str]] = []
    changed = False
    for alias in node.names:
        name, local = dotted(alias.name) or "", alias.evaluated_alias
        new = _plain_line(name, local, keep_tensorflow)
        changed = changed or new is not None
        lines.append(new or f"import {name}" + (f" as {local}" if local else ""))
        if new is None and (how := moved_names.advice(name)) is not None:
            left.append((moved_names.short(name), how))
    return NewImport(lines if changed else None, left)


def _plain_line(name: str, local: str | None, keep_tensorflow: bool) -> str | None:
    if name == "tensorflow":
        return None if keep_tensorflow else f"import {_V1} as {local or 'tensorflow'}"
    new = moved_names.moved(name)
    if new is not None:
        if new.startswith("tensorflow."):
            new = f"{_V1}{new.removeprefix('tensorflow')}"
        if local:
            return f"import {new} as {local}" if new == "staging_tf1" else _from_line(new, local)
        return f"import {new}"
    if name.startswith("tensorflow.") and not name.startswith(_STAYS) and moved_names.advice(name) is None and local:
        return f"import {_V1}{name.removeprefix('tensorflow')} as {local}"
    return None


def _from(node: cst.ImportFrom, keep_tensorflow: bool) -> NewImport:
    if node.module is None or node.relative:
        return NewImport(None)
    module = dotted(node.module) or ""
    if isinstance(node.names, cst.ImportStar):
        return _star(module, keep_tensorflow)
    lines: list[str] = []
    left: list[tuple[str, str]] = []
    stays: list[str] = []
    for alias in node.names:
        name, local = alias.evaluated_name, alias.evaluated_alias
        new = _from_name(f"{module}.{name}", local or name, keep_tensorflow)
        if new is None:
            stays.append(name + (f" as {local}" if local else ""))
            if (how := moved_names.advice(f"{module}.{name}")) is not None:
                left.append((moved_names.short(f"{module}.{name}"), how))
        elif new not in lines:
            lines.append(new)
    if not lines:
        return NewImport(None, left)
    if stays:
        lines.insert(0, f"from {module} import {', '.join(stays)}")
    return NewImport(_joined(lines), left)


def _from_name(full: str, local: str, keep_tensorflow: bool) -> str | None:
    new = moved_names.moved(full)
    if new is not None:
        if "." not in new and new != "staging_tf1":
            return None  # a builtin replaces it, and the uses are rewritten
        if new.startswith("tensorflow."):
            new = f"{_V1}{new.removeprefix('tensorflow')}"
        return _from_line(new, local)
    if not full.startswith("tensorflow.") or full.startswith(_STAYS) or moved_names.advice(full) is not None:
        return None
    return None if keep_tensorflow else _from_line(f"{_V1}{full.removeprefix('tensorflow')}", local)


def _from_line(full: str, local: str) -> str:
    module, _, name = full.rpartition(".")
    if not module:
        return f"import {name}" if local == name else f"import {name} as {local}"
    return f"from {module} import {name}" if local == name else f"from {module} import {name} as {local}"


def _star(module: str, keep_tensorflow: bool) -> NewImport:
    if module == f"{moved_names.CONTRIB}.staging":
        return NewImport(["from staging_tf1 import MapStagingArea, StagingArea"])
    if module == "tensorflow" and not keep_tensorflow:
        return NewImport([f"from {_V1} import *"])
    how = moved_names.advice(module)
    return NewImport(None, [(moved_names.short(module), how)] if how else [])


def _joined(lines: list[str]) -> list[str]:
    """Merge the lines that import from the same module."""
    joined: dict[str, list[str]] = {}
    for line in lines:
        head, _, names = line.partition(" import ")
        joined.setdefault(head if names else line, []).append(names)
    return [f"{head} import {', '.join(names)}" if names != [""] else head for head, names in joined.items()]
