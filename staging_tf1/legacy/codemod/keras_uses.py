"""Finds names of TensorFlow that need Keras 2."""

from __future__ import annotations

import libcst as cst

from staging_tf1.legacy.codemod.names import Imports, dotted, imports_of

_KERAS_TWO = (
    "tensorflow.keras.",
    "tensorflow.layers.",
    "tensorflow.nn.rnn_cell.",
    "tensorflow.python.layers.",
    "staging_tf1.contrib.",
)


def uses_keras_two(module: cst.Module) -> bool:
    """Return whether the module imports or uses a name that needs Keras 2."""
    uses = _Uses(imports_of(module))
    module.visit(uses)
    return uses.found


class _Uses(cst.CSTVisitor):
    def __init__(self, imports: Imports) -> None:
        self._imports = imports
        self.found = False

    def visit_Attribute(self, node: cst.Attribute) -> None:
        self._note(self._imports.meaning(node))

    def visit_ImportFrom(self, node: cst.ImportFrom) -> bool:
        if node.module is not None and not node.relative and not isinstance(node.names, cst.ImportStar):
            for alias in node.names:
                self._note(f"{dotted(node.module)}.{alias.evaluated_name}")
        return False

    def visit_Import(self, node: cst.Import) -> bool:
        for alias in node.names:
            self._note(dotted(alias.name) or "")
        return False

    def _note(self, full: str) -> None:
        full = full.replace("tensorflow.compat.v1", "tensorflow", 1) + "."
        self.found = self.found or full.startswith(_KERAS_TWO)
