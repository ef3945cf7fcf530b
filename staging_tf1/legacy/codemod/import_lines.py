"""Rewrites import statements."""

from __future__ import annotations

import ast
from dataclasses import dataclass, field

from staging_tf1.legacy import moved_names

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


def rewritten_import(node: ast.Import | ast.ImportFrom, *, keep_tensorflow: bool) -> NewImport:
    """Return the lines that replace an import statement.

    `keep_tensorflow` keeps ``import tensorflow as tf``, because the file spells out tf.compat.v1.
    """
    module = node.module or "" if isinstance(node, ast.ImportFrom) else ""
    if isinstance(node, ast.ImportFrom) and node.level:
        return NewImport(None)
    if node.names[0].name == "*":
        return _star(module, keep_tensorflow)
    lines: list[str] = []
    left: list[tuple[str, str]] = []
    stays: list[str] = []
    changed = False
    for alias in node.names:
        full = f"{module}.{alias.name}" if module else alias.name
        new = _new_line(full, alias.asname, bool(module), keep_tensorflow)
        changed = changed or new is not None
        if new is None and (how := moved_names.advice(full)) is not None:
            left.append((moved_names.short(full), how))
        if new is not None or not module:
            lines.append(new or f"import {ast.unparse(alias)}")
        else:
            stays.append(ast.unparse(alias))
    if stays:
        lines.insert(0, f"from {module} import {', '.join(stays)}")
    return NewImport(_joined(lines) if changed else None, left)


def _new_line(full: str, local: str | None, is_from: bool, keep_tensorflow: bool) -> str | None:
    """Return the import of one name from its new home, None if it stays."""
    if full == "tensorflow":
        return None if keep_tensorflow else f"import {_V1} as {local or full}"
    new = moved_names.moved(full)
    if new is None:
        if not full.startswith("tensorflow.") or full.startswith(_STAYS) or moved_names.advice(full) is not None:
            return None
        new = f"{_V1}{full.removeprefix('tensorflow')}"
        if not is_from:
            return f"import {new} as {local}" if local else None
        if keep_tensorflow:
            return None
    elif new.startswith("tensorflow."):
        new = f"{_V1}{new.removeprefix('tensorflow')}"
    if not is_from and local is None:
        return f"import {new}"
    module, _, name = new.rpartition(".")
    if is_from and not module and name != "staging_tf1":
        return None  # a builtin replaces it, and the uses are rewritten
    local = local or full.rpartition(".")[2]
    text = f"from {module} import {name}" if module else f"import {name}"
    return text if local == name else f"{text} as {local}"


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
        if names not in joined.setdefault(head if names else line, []):
            joined[head if names else line].append(names)
    return [f"{head} import {', '.join(names)}" if names != [""] else head for head, names in joined.items()]
