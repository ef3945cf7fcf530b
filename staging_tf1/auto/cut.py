"""The minimum cut: which ops to move, at the least cost of what then crosses the boundary."""

from __future__ import annotations

from collections import deque
from collections.abc import Hashable

# More than any sum of finite capacities of a graph, which are nanoseconds.
INFINITE = 1 << 62


class Network:
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
