"""`Contraction`: which ops must stay together, and count as one node."""

from __future__ import annotations

from collections import defaultdict

from staging_tf1.auto.graph_index import GraphIndex
from staging_tf1.auto.region import closure

_SWITCHES = ("Switch", "RefSwitch")
_MERGES = ("Merge", "RefMerge")
_ENDS = ("Exit", "RefExit", *_MERGES)
_SHARED_STORES = ("TensorArrayV3", "StackV2")


class Contraction:
    """Divides the ops into nodes: a loop or cond with its ends, the users of one TensorArray, any other op alone.

    Attributes:
      roots: for each op the number of its node, which is that of one of the node's ops.
      members: the ops of each node, in order.
    """

    def __init__(self, index: GraphIndex) -> None:
        self._index = index
        self._parent = list(range(len(index.ops)))
        self._join_contexts()
        self._join_ends()
        self.roots = [self._root(number) for number in range(len(index.ops))]
        self.members: dict[int, list[int]] = defaultdict(list)
        for number, root in enumerate(self.roots):
            self.members[root].append(number)

    def _root(self, number: int) -> int:
        parent = self._parent
        while parent[number] != number:
            parent[number] = parent[parent[number]]
            number = parent[number]
        return number

    def _join(self, one: int, other: int) -> None:
        self._parent[self._root(one)] = self._root(other)

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
