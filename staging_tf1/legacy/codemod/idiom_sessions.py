"""The session's part of a program: puts it into a `with` statement, and finds what would build ops in it."""

from __future__ import annotations

from collections.abc import Sequence

import libcst as cst

from staging_tf1.legacy.codemod.idiom_class import UnknownShapeError, calls_in
from staging_tf1.legacy.codemod.import_lines import code
from staging_tf1.legacy.codemod.names import Imports, dotted

SESSIONS = ("tensorflow.Session", "tensorflow.train.MonitoredTrainingSession")
# Calls that a program may make between steps, because they add no op.
_BUILDS_NOTHING = tuple(
    f"tensorflow.{name}"
    for name in ("errors.", "logging.", "gfile.", "io.gfile.", "Summary", "RunOptions", "RunMetadata")
)


def in_with_statements(module: cst.Module, imports: Imports) -> cst.Module:
    """Return the module with each ``sess = tf.Session()`` and the statements after it as a `with` statement."""
    return module.visit(_IntoWith(imports))


class _IntoWith(cst.CSTTransformer):
    def __init__(self, imports: Imports) -> None:
        super().__init__()
        self._imports = imports

    def leave_Module(self, original_node: cst.Module, updated_node: cst.Module) -> cst.Module:
        return updated_node.with_changes(body=self._rewritten(updated_node.body))

    def leave_IndentedBlock(
        self, original_node: cst.IndentedBlock, updated_node: cst.IndentedBlock
    ) -> cst.IndentedBlock:
        return updated_node.with_changes(body=self._rewritten(updated_node.body))

    def _rewritten(self, body: Sequence[cst.BaseStatement]) -> list[cst.BaseStatement]:
        for place, line in enumerate(body):
            if not isinstance(line, cst.SimpleStatementLine):
                continue
            one = line.body[0]
            if isinstance(one, cst.Assign) and self._makes_session(one) and isinstance(one.targets[0].target, cst.Name):
                name = one.targets[0].target.value
                rest = [later for later in body[place + 1 :] if code(later).strip() != f"{name}.close()"]
                if not rest or any(isinstance(later, (cst.FunctionDef, cst.ClassDef)) for later in rest):
                    return list(body)
                item = cst.WithItem(one.value, cst.AsName(cst.Name(name)))
                block = cst.With([item], cst.IndentedBlock(rest), leading_lines=line.leading_lines)
                return [*body[:place], block]
        return list(body)

    def _makes_session(self, one: cst.Assign) -> bool:
        return isinstance(one.value, cst.Call) and self._imports.meaning(one.value.func) in SESSIONS


class WithoutEmptyParts(cst.CSTTransformer):
    """Removes what the session does itself leaves behind: an empty handler, and a `try` without any."""

    def leave_For(self, original_node: cst.For, updated_node: cst.For) -> cst.BaseStatement | cst.RemovalSentinel:
        # A loop of warm-up puts is empty once they are removed.
        return updated_node if updated_node.body.body else cst.RemoveFromParent()

    def leave_ExceptHandler(
        self, original_node: cst.ExceptHandler, updated_node: cst.ExceptHandler
    ) -> cst.ExceptHandler | cst.RemovalSentinel:
        return updated_node if updated_node.body.body else cst.RemoveFromParent()

    def leave_Try(
        self, original_node: cst.Try, updated_node: cst.Try
    ) -> cst.BaseStatement | cst.FlattenSentinel[cst.BaseStatement] | cst.RemovalSentinel:
        final = updated_node.finalbody
        if final is not None and not final.body.body:
            updated_node = updated_node.with_changes(finalbody=None)
        if updated_node.handlers or updated_node.finalbody is not None:
            return updated_node
        if updated_node.orelse is not None or not isinstance(updated_node.body, cst.IndentedBlock):
            raise UnknownShapeError("a try statement has nothing left to handle")
        return cst.FlattenSentinel(list(updated_node.body.body))


class WithoutThreading(cst.CSTTransformer):
    """Removes ``import threading``, which only the feed threads needed."""

    def leave_SimpleStatementLine(
        self, original_node: cst.SimpleStatementLine, updated_node: cst.SimpleStatementLine
    ) -> cst.BaseStatement | cst.RemovalSentinel:
        return cst.RemoveFromParent() if code(updated_node).strip() == "import threading" else updated_node


def op_built_in(body: cst.CSTNode, imports: Imports) -> str | None:
    """Return the first call that would add ops to the finalized graph of a StagingSession."""
    for call in calls_in(body):
        full = imports.meaning(call.func)
        if full.startswith("tensorflow.") and not full.startswith(_BUILDS_NOTHING):
            return code(call.func)
    return None


def check_only_names(fetches: cst.BaseExpression) -> None:
    """Reject fetches such as ``2 * x`` and ``x[0]``, which add an op when they are evaluated."""
    listed = [fetches]
    if isinstance(fetches, (cst.List, cst.Tuple, cst.Dict)):
        listed = [one.value for one in fetches.elements]
    for one in listed:
        if isinstance(one, (cst.List, cst.Tuple, cst.Dict)):
            check_only_names(one)
        elif dotted(one) is None and not isinstance(one, (cst.SimpleString, cst.Call)):
            raise UnknownShapeError(f"{code(one)} may build an op inside the session, whose graph is finalized")
