"""What a dotted expression in a source file means, by the file's imports."""

from __future__ import annotations

from typing import Any

import libcst as cst

# The same names by another way: code that was migrated already is checked like code that was not.
_SAME = (("tensorflow.compat.v1", "tensorflow"), ("tensorflow_core", "tensorflow"))


class Imports:
    """The names that a file's import statements bind, wherever they stand."""

    def __init__(self) -> None:
        self._bound: dict[str, str] = {}

    def add(self, node: cst.Import | cst.ImportFrom) -> None:
        """Learns one import statement."""
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
        """The full name of an expression such as ``tf.train.Saver``; empty where it is no dotted name.

        A name that no import binds stands for itself.
        """
        text = dotted(node)
        if text is None:
            return ""
        root, _, rest = text.partition(".")
        full = self._bound.get(root, root)
        if rest:
            full = f"{full}.{rest}"
        for other, plain in _SAME:
            if full == other or full.startswith(other + "."):
                full = plain + full[len(other) :]
        return full

    def is_bound(self, name: str) -> bool:
        """Whether an import binds `name`."""
        return name in self._bound

    def uses(self, package: str) -> bool:
        """Whether anything of `package` is imported."""
        return any(full == package or full.startswith(package + ".") for full in self._bound.values())


def dotted(node: Any) -> str | None:
    """``a.b.c`` as text; None for anything else."""
    if isinstance(node, cst.Name):
        return node.value
    if isinstance(node, cst.Attribute):
        head = dotted(node.value)
        return None if head is None else f"{head}.{node.attr.value}"
    return None


def _text(node: Any) -> str:
    return dotted(node) or ""
