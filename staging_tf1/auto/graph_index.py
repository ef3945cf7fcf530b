"""`GraphIndex`: the ops of a graph as numbers, so that a large graph is walked quickly."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from staging_tf1._tf import context_of, tf


class GraphIndex:
    """The ops of a graph, numbered in the order of their creation, and the edges between them.

    Each property of an op is read once: TensorFlow takes about a microsecond for it, and a graph may have 100,000 ops.

    Attributes:
      ops: the ops.
      number_of: the number of an op, by its name.
      kinds: the type of each op.
      inputs: the tensors that each op reads.
      before: for each op, the ops that it depends on, by data and by control edges.
      after: for each op, the ops that depend on it.
      contexts: the v1 loop or cond that each op belongs to; None outside.
    """

    def __init__(self, graph: Any) -> None:
        self.graph = graph
        self.ops: list[Any] = graph.get_operations()
        self.number_of: dict[str, int] = {op.name: number for number, op in enumerate(self.ops)}
        self.kinds: list[str] = [op.type for op in self.ops]
        self.inputs: list[list[Any]] = [list(op.inputs) for op in self.ops]
        self.contexts: list[Any] = [context_of(op) for op in self.ops]
        self.after: list[list[int]] = [[] for _ in self.ops]
        self.before: list[list[int]] = []
        number_of = self.number_of
        for number, op in enumerate(self.ops):
            before = [number_of[tensor.op.name] for tensor in self.inputs[number]]
            before += [number_of[control_input.name] for control_input in op.control_inputs]
            self.before.append(before)
            for earlier in before:
                self.after[earlier].append(number)

    def numbers_of(self, elements: Iterable[Any]) -> list[int]:
        """Return the numbers of the ops of some ops and tensors."""
        ops = [element if isinstance(element, tf.Operation) else element.op for element in elements]
        return [self.number_of[op.name] for op in ops]

    def has_resource(self, number: int) -> bool:
        """Whether an op reads a resource."""
        return any(tensor.dtype == tf.resource for tensor in self.inputs[number])
