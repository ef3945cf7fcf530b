"""`GraphReader`: reads a graph into nodes, some of which will run ahead."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence
from typing import Any

from staging_tf1._tf import is_stateful, tf
from staging_tf1.auto import kinds
from staging_tf1.auto.costs import ROUNDS, Costs
from staging_tf1.auto.graph_index import GraphIndex
from staging_tf1.auto.pinned import Rules
from staging_tf1.auto.region import DisjointSets, Node, Value, closure

_SWITCHES = ("Switch", "RefSwitch")
_MERGES = ("Merge", "RefMerge")
_ENDS = ("Exit", "RefExit", *_MERGES)
_SHARED_STORES = ("TensorArrayV3", "StackV2")


class GraphReader:
    """The ops that a train op depends on, as nodes.

    Args:
      graph: the graph.
      train_ops: the ops or tensors that a training step fetches.

    Attributes:
      index: the ops of the graph, as numbers.
      needed: the ops that the train ops depend on, and those that must stay together with one of them.
      replicable: the ops that may run on both sides.
      sources: the ops that take batches.
      blocked: why a node belongs to the step, by its number.
      pinned: the blocked nodes, and those that follow one.
    """

    def __init__(self, graph: Any, train_ops: Sequence[Any]) -> None:
        self.index = index = GraphIndex(graph)
        nodes = _Nodes(index)
        self._roots, self._members = nodes.roots, nodes.members
        rules = Rules(index)
        self.replicable = rules.replicable({root for root, members in self._members.items() if len(members) == 1})
        self.needed = closure(index.numbers_of(train_ops), self._needed_with)
        self.sources = {number for number in self.needed if self._is_source(number)}
        self.blocked: dict[int, str] = {}
        for number in sorted(self.needed - self.replicable - self.sources):
            reason = rules.why(number)
            if reason:
                self.blocked.setdefault(self._roots[number], reason)
        self.pinned = closure(self.blocked, self._needed_users)

    def node_of(self, op: Any) -> int:
        """Return the number of the node of an op."""
        return self._roots[self.index.number_of[op.name]]

    def ops_of(self, nodes: Iterable[int]) -> list[Any]:
        """Return the ops of some nodes, in the order of the graph."""
        numbers = [number for node in nodes for number in self._members[node]]
        return [self.index.ops[number] for number in sorted(numbers)]

    def is_source(self, op: Any) -> bool:
        """Whether an op takes batches."""
        return self.index.number_of[op.name] in self.sources

    @property
    def source_nodes(self) -> set[int]:
        """The nodes of the sources."""
        return {self._roots[number] for number in self.sources}

    def handle_of(self, op: Any) -> Any:
        """Return what names the input that a source takes from: the op of its handle, or its own."""
        return op if op.type in kinds.PYTHON else op.inputs[0].op

    def _needed_with(self, number: int) -> Iterable[int]:
        """Return what an op of the step needs, what must stay with it, and the pure readers of its variants."""
        index, members = self.index, self._members[self._roots[number]]
        needed = index.before[number] + (members if len(members) > 1 else [])
        if any(output.dtype == tf.variant for output in index.ops[number].outputs):
            needed = needed + [user for user in index.after[number] if not is_stateful(index.kinds[user])]
        return needed

    def _needed_users(self, node: int) -> Iterable[int]:
        """Return the nodes that follow a node."""
        users = {user for number in self._members[node] for user in self.index.after[number]}
        return {self._roots[user] for user in users & self.needed}

    def _is_source(self, number: int) -> bool:
        kind = self.index.kinds[number]
        takes = kind in kinds.PYTHON or kinds.TAKING.match(kind)
        return bool(takes) and all(earlier in self.replicable for earlier in self.index.before[number])

    def free_ops(self) -> list[Any]:
        """Return the ops that follow no blocked one, in the order of the graph."""
        return [self.index.ops[number] for number in sorted(self._free())]

    def _free(self) -> set[int]:
        return {number for number in self.needed - self.replicable if self._roots[number] not in self.pinned}

    def free_nodes(self, costs: Costs) -> dict[int, Node]:
        """Return the nodes that can run ahead, by number, with their times: those that follow no blocked node."""
        return {root: self._node(root, costs) for root in sorted({self._roots[number] for number in self._free()})}

    def _node(self, root: int, costs: Costs) -> Node:
        index, node = self.index, Node()
        members = self._members[root]
        rounds = ROUNDS if any(index.kinds[number] == "Enter" for number in members) else 1
        for number in members:
            op, inside = index.ops[number], self._may_be_dead(number)
            node.is_source |= number in self.sources
            node.before |= {self._roots[earlier] for earlier in index.before[number] if earlier not in self.replicable}
            node.time += costs.time_of(op, rounds if inside else 1)
            node.values += [
                value for output in op.outputs if (value := self._value(output, root, costs, inside)) is not None
            ]
            if inside:
                later = {self._user(user) for user in index.after[number] if self._roots[user] != root}
                if later:
                    # By a control edge, whose op may be dead.
                    node.values.append(Value(None, later))
        node.before.discard(root)
        return node

    def _value(self, output: Any, root: int, costs: Costs, inside: bool) -> Value | None:
        """Return a tensor as the nodes outside of its own see it; None if none uses it."""
        users = {
            self._user(number)
            for user in output.consumers()
            if self._roots[number := self.index.number_of[user.name]] != root
        }
        if not users:
            return None
        return Value(costs.carrying_time(output) if kinds.can_be_carried(output) and not inside else None, users)

    def _may_be_dead(self, number: int) -> bool:
        """Whether an op is in a loop or cond, where it may run several times in a step, or never."""
        context, kind = self.index.contexts[number], self.index.kinds[number]
        if kind in ("Exit", "RefExit"):
            return context is not None and context.outer_context is not None
        return context is not None or kind in ("Switch", "RefSwitch")

    def _user(self, number: int) -> int | None:
        return self._roots[number] if number in self.needed else None


class _Nodes:
    """Divides the ops into nodes: a loop or cond with its ends, the users of one TensorArray, any other op alone.

    Attributes:
      roots: for each op the number of its node, which is that of one of the node's ops.
      members: the ops of each node, in order.
    """

    def __init__(self, index: GraphIndex) -> None:
        self._index = index
        sets = DisjointSets(range(len(index.ops)))
        self._join = sets.join
        self._join_contexts()
        self._join_ends()
        self.roots = [sets.root(number) for number in range(len(index.ops))]
        self.members: dict[int, list[int]] = defaultdict(list)
        for number, root in enumerate(self.roots):
            self.members[root].append(number)

    def _join_contexts(self) -> None:
        index = self._index
        first: dict[int, int] = {}
        for number, context in enumerate(index.contexts):
            kind = index.kinds[number]
            if context is not None:
                while context.outer_context is not None:
                    context = context.outer_context
                self._join(number, first.setdefault(id(context), number))
            elif kind in _SWITCHES:
                self._join_until_merge(number)
            if kind in _SHARED_STORES:
                for user in index.after[number]:
                    self._join(number, user)

    def _join_ends(self) -> None:
        index = self._index
        for number, kind in enumerate(index.kinds):
            if kind in _ENDS:
                for earlier in index.before[number]:
                    if index.contexts[earlier] is not None or index.kinds[earlier] in _SWITCHES:
                        self._join(number, earlier)

    def _join_until_merge(self, switch: int) -> None:
        """Join what may be dead because of a Switch that belongs to no cond."""
        index = self._index

        def users(number: int) -> list[int]:
            ends = index.kinds[number] in _MERGES or index.contexts[number] is not None
            return [] if ends else index.after[number]

        for number in closure([switch], users):
            self._join(number, switch)
