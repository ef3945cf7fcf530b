"""`Rules`: why an op belongs to the step."""

from __future__ import annotations

from collections.abc import Collection
from typing import Any

from staging_tf1._tf import function_def, is_stateful, makes_refs, tf
from staging_tf1.auto import kinds
from staging_tf1.auto.graph_index import GraphIndex
from staging_tf1.graph.dependencies import ancestors, functions_of

_CONTROL_FLOW = frozenset(
    {"NoOp", "Enter", "Exit", "Switch", "Merge", "NextIteration", "LoopCond", "ControlTrigger", "Const"}
)


class Rules:
    """Says for each op whether it computes the same ahead of the step as in it."""

    def __init__(self, index: GraphIndex) -> None:
        self._index = index
        self._written = _written_tables(index)

    def why(self, number: int) -> str:
        """Return why an op, neither a source nor replicable, belongs to the step; empty if it does not."""
        index = self._index
        op, kind = index.ops[number], index.kinds[number]
        if kind in kinds.PLACEHOLDERS:
            return f"placeholder '{op.name}' is fed"
        if "Variable" in kind or kind in ("VarHandleOp", "ReadVariableOp") or makes_refs(kind):
            return f"'{op.name}' is, reads or writes a variable"
        if kind in _CONTROL_FLOW:
            return ""
        if kinds.TABLE_READERS.match(kind):
            handle = index.inputs[number][0].op
            if not kinds.HANDLES.match(handle.type) or handle.name in self._written:
                return f"'{op.name}' reads table '{handle.name}', which the program writes"
        if kind in kinds.CALLING:
            return self._why_call(number)
        if not kinds.may_move(kind, stateful=is_stateful(kind), has_resource=index.has_resource(number)):
            return f"'{op.name}' is a stateful {kind}"
        return ""

    def _why_call(self, number: int) -> str:
        op, kind = self._index.ops[number], self._index.kinds[number]
        inside = self._stateful_inside(op.node_def, set()) if is_stateful(kind) else ""
        if inside:
            return f"'{op.name}' calls a function with the stateful op {inside}"
        return f"'{op.name}' calls a function with a resource" if self._index.has_resource(number) else ""

    def _stateful_inside(self, node: Any, seen: set[str]) -> str:
        """Return the type of an op in the functions of a NodeDef that cannot move; empty if there is none."""
        for name in functions_of(node):
            if name in seen:
                continue
            seen.add(name)
            function = function_def(self._index.graph, name)
            if function is None:
                return f"of the unknown function {name}"
            for inner in function.node_def:
                if inner.op in kinds.CALLING:
                    kind = self._stateful_inside(inner, seen)
                    if kind:
                        return kind
                elif is_stateful(inner.op) and not kinds.may_move(inner.op, stateful=True, has_resource=False):
                    return str(inner.op)
        return ""

    def replicable(self, alone: Collection[int]) -> set[int]:
        """Return the constants, the handles, and what is computed from these alone: they may run on both sides.

        Args:
          alone: the ops that are a node by themselves.
        """
        index = self._index
        replicable: set[int] = set()
        # The graph lists inputs first.
        for number, kind in enumerate(index.kinds):
            if number not in alone or index.contexts[number] is not None or not _is_pure(index, number, kind):
                continue
            if all(earlier in replicable for earlier in index.before[number]):
                replicable.add(number)
        return replicable


def _is_pure(index: GraphIndex, number: int, kind: str) -> bool:
    if kinds.HANDLES.match(kind):
        return True
    if kind in kinds.PLACEHOLDERS or kind in kinds.PYTHON or kinds.TAKING.match(kind) or makes_refs(kind):
        return False
    return not is_stateful(kind) and not index.has_resource(number)


def _written_tables(index: GraphIndex) -> set[str]:
    """Return the names of tables that are written by something else than their initializers."""
    writers = [
        number
        for number, kind in enumerate(index.kinds)
        if (kinds.TABLE_WRITERS.match(kind) or kind in kinds.CALLING) and not kind.startswith("InitializeTable")
    ]
    if not writers:
        return set()
    initializers = {op.name for op in ancestors(index.graph.get_collection(tf.GraphKeys.TABLE_INITIALIZERS))}
    return {
        tensor.op.name
        for number in writers
        if index.ops[number].name not in initializers
        for tensor in index.inputs[number]
        if tensor.dtype == tf.resource
    }
