"""`region_of`: which nodes of a graph run ahead, at the least cost of what then crosses the boundary: a minimum cut.

Knows nothing of TensorFlow.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Hashable, Iterable, Mapping
from dataclasses import dataclass, field

# More than any sum of finite capacities of a graph, which are nanoseconds.
_INFINITE = 1 << 62


@dataclass
class Value:
    """One or several tensors that a node computes and other nodes use."""

    # Nanoseconds that it costs to carry it across the boundary; None if it cannot be carried.
    cost: int | None
    # The nodes that use it, other than its own. None is a user that always belongs to the step.
    users: set[int | None] = field(default_factory=set)


@dataclass
class Node:
    """An op, or several that must stay together."""

    # Nanoseconds that the step saves if it runs ahead.
    time: int = 0
    # Whether it takes a batch from the input.
    is_source: bool = False
    # Nodes that run before it: those whose values it uses, and those of its control edges.
    before: set[int] = field(default_factory=set)
    # What other nodes use. A cut of a control edge alone costs nothing.
    values: list[Value] = field(default_factory=list)


def region_of(nodes: Mapping[int, Node]) -> tuple[set[int], int]:
    """Choose the nodes that run ahead.

    Args:
      nodes: the nodes that may run ahead, by number. A user that is not among them belongs to the step.

    Returns:
      The nodes that run ahead, and the cost of the cut in nanoseconds. A source is not among them if its results cannot
      be carried.
    """
    users = _users(nodes)
    step = _pinned(nodes, users)
    moving = {number for number, node in nodes.items() if node.is_source} - step
    after = closure(moving, users.__getitem__)
    network = _Network()
    for number, node in nodes.items():
        if number in step:
            continue
        own = network.number(number)
        if number in moving:
            network.add(0, own, _INFINITE)
        elif number in after and node.time:
            network.add(0, own, node.time)
        for earlier in node.before:
            if earlier in nodes:
                network.add(own, network.number(earlier), _INFINITE)
        for index, value in enumerate(node.values):
            carried = network.number((number, index))
            network.add(own, carried, _INFINITE if value.cost is None else value.cost)
            for user in value.users:
                outside = user is None or user in step or user not in nodes
                network.add(carried, 1 if outside else network.number(user), _INFINITE)
    cost, ahead = network.cut()
    chosen = {number for number in nodes if number not in step and network.number(number) in ahead}
    # Only those that are connected to a source: nothing would ever run the others.
    return {number for group in groups_of(nodes, chosen, {}) if group & moving for number in group}, cost


def groups_of(nodes: Mapping[int, Node], region: set[int], together: Mapping[int, object]) -> list[set[int]]:
    """Divide the region into the sets that share a source or a node. `together` names what sources share."""
    sets = DisjointSets(region)
    first: dict[object, int] = {}
    for number in region:
        for earlier in nodes[number].before & region:
            sets.join(earlier, number)
        if number in together:
            sets.join(first.setdefault(together[number], number), number)
    groups: dict[int, set[int]] = {}
    for number in sorted(region):
        groups.setdefault(sets.root(number), set()).add(number)
    return list(groups.values())


def _users(nodes: Mapping[int, Node]) -> dict[int, set[int]]:
    """Return for each node those that run after it."""
    users: dict[int, set[int]] = {number: set() for number in nodes}
    for number, node in nodes.items():
        for earlier in node.before & nodes.keys():
            users[earlier].add(number)
    return users


def _pinned(nodes: Mapping[int, Node], users: Mapping[int, set[int]]) -> set[int]:
    """Return the nodes that cannot run ahead: their results cannot be carried, or they follow such a node."""
    pinned: set[int] = set()
    kept_with: dict[int, set[int]] = {number: set() for number in nodes}
    for number, node in nodes.items():
        for value in node.values:
            if value.cost is not None:
                continue
            for user in value.users:
                if user is None or user not in nodes:
                    pinned.add(number)
                else:
                    kept_with[user].add(number)
    return closure(pinned, lambda number: users[number] | kept_with[number])


def closure(first: Iterable[int], more: Callable[[int], Iterable[int]]) -> set[int]:
    """Return `first`, what `more` returns for each of them, and so on."""
    reached = set(first)
    pending = list(reached)
    while pending:
        for number in more(pending.pop()):
            if number not in reached:
                reached.add(number)
                pending.append(number)
    return reached


class DisjointSets:
    """Numbers, each of them a set at first. Sets can be joined."""

    def __init__(self, numbers: Iterable[int]) -> None:
        self._parent = {number: number for number in numbers}

    def root(self, number: int) -> int:
        """Return the number that stands for the set of `number`."""
        parent = self._parent
        while parent[number] != number:
            parent[number] = parent[parent[number]]
            number = parent[number]
        return number

    def join(self, one: int, other: int) -> None:
        """Make one set of two."""
        self._parent[self.root(one)] = self.root(other)


class _Network:
    """A flow network with integer capacities. Nodes are numbers; 0 is where the flow begins, 1 is where it ends.

    The maximum flow is found with Dinic's algorithm. networkx takes four times as long for 10,000 ops, and scipy, which
    takes half as long, has capacities of 32 bits and would be a dependency for this alone.
    """

    def __init__(self) -> None:
        self._numbers: dict[Hashable, int] = {"source": 0, "sink": 1}
        # Edge 2n and its reverse 2n + 1: where each leads, and how much more it can carry.
        self._to: list[int] = []
        self._room: list[int] = []
        self._edges: list[list[int]] = [[], []]

    def number(self, node: Hashable) -> int:
        """Return the number of `node`, a new one the first time."""
        number = self._numbers.setdefault(node, len(self._edges))
        if number == len(self._edges):
            self._edges.append([])
        return number

    def add(self, tail: int, head: int, capacity: int) -> None:
        """Add an edge."""
        self._edges[tail].append(len(self._to))
        self._edges[head].append(len(self._to) + 1)
        self._to += (head, tail)
        self._room += (capacity, 0)

    def cut(self) -> tuple[int, set[int]]:
        """Return the cost of a minimum cut, and the largest set of nodes that is on the source's side of one."""
        flow = 0
        while (levels := self._levels())[1] >= 0:
            flow += self._blocking_flow(levels)
        return flow, set(range(len(self._edges))) - self._reaching_sink()

    def _levels(self) -> list[int]:
        levels = [-1] * len(self._edges)
        levels[0] = 0
        pending = deque([0])
        while pending:
            node = pending.popleft()
            for edge in self._edges[node]:
                head = self._to[edge]
                if levels[head] < 0 and self._room[edge]:
                    levels[head] = levels[node] + 1
                    pending.append(head)
        return levels

    def _blocking_flow(self, levels: list[int]) -> int:
        """Fill paths along the levels until there is none left."""
        to, room, edges = self._to, self._room, self._edges
        tried = [0] * len(edges)
        flow, node = 0, 0
        path: list[int] = []
        while True:
            if node == 1:
                least = min(room[edge] for edge in path)
                flow += least
                for edge in path:
                    room[edge] -= least
                    room[edge ^ 1] += least
                # Back to the tail of the first edge that is full.
                full = next(index for index, edge in enumerate(path) if not room[edge])
                node = to[path[full] ^ 1]
                del path[full:]
                continue
            of_node = edges[node]
            while tried[node] < len(of_node):
                edge = of_node[tried[node]]
                if room[edge] and levels[to[edge]] == levels[node] + 1:
                    path.append(edge)
                    node = to[edge]
                    break
                tried[node] += 1
            else:
                if not path:
                    return flow
                node = to[path.pop() ^ 1]
                tried[node] += 1

    def _reaching_sink(self) -> set[int]:
        reaching, pending = {1}, [1]
        while pending:
            for edge in self._edges[pending.pop()]:
                tail = self._to[edge]
                if tail not in reaching and self._room[edge ^ 1]:
                    reaching.add(tail)
                    pending.append(tail)
        return reaching
