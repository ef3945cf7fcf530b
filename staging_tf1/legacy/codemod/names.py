"""Resolves dotted expressions in a source file to full names, using the file's imports."""

from __future__ import annotations

from typing import Any

import libcst as cst

from staging_tf1.legacy.moved_names import plain


class Imports:
    """The names that the import statements of a file bind, at any level."""

    def __init__(self) -> None:
        self._bound: dict[str, str] = {}

    def add(self, node: cst.Import | cst.ImportFrom) -> None:
        """Add the names of one import statement."""
        if isinstance(node, cst.Import):
            for alias in node.names:
                full = dotted(alias.name) or ""
                if alias.asname is not None:
                    self._bound[_text(alias.asname.name)] = full
                else:
                    root = full.partition(".")[0]
                    self._bound[root] = root
        elif not isinstance(node.names, cst.ImportStar) and node.module is not None and not node.relative:
            module = dotted(node.module) or ""
            for alias in node.names:
                local = alias.asname.name if alias.asname is not None else alias.name
                self._bound[_text(local)] = f"{module}.{_text(alias.name)}"

    def meaning(self, node: cst.CSTNode) -> str:
        """Return the full name of an expression such as ``tf.train.Saver``; empty if it is not a dotted name.

        A name that no import binds is returned unchanged.
        """
        text = dotted(node)
        if text is None:
            return ""
        root, _, rest = text.partition(".")
        full = self._bound.get(root, root)
        return plain(f"{full}.{rest}" if rest else full)

    def names(self) -> set[str]:
        """Return the names that the imports bind."""
        return set(self._bound)

    def uses(self, package: str) -> bool:
        """Whether `package` or something in it is imported."""
        return any(full == package or full.startswith(package + ".") for full in self._bound.values())


def imports_of(module: cst.Module) -> Imports:
    """Return the imports of a parsed file."""
    imports = Imports()

    class Reader(cst.CSTVisitor):
        def visit_Import(self, node: cst.Import) -> None:
            imports.add(node)

        def visit_ImportFrom(self, node: cst.ImportFrom) -> None:
            imports.add(node)

    module.visit(Reader())
    return imports


def dotted(node: Any) -> str | None:
    """Return a dotted name such as ``a.b.c`` as text; None for any other expression."""
    if isinstance(node, cst.Name):
        return node.value
    if isinstance(node, cst.Attribute):
        head = dotted(node.value)
        return None if head is None else f"{head}.{node.attr.value}"
    return None


def _text(node: Any) -> str:
    return dotted(node) or ""
