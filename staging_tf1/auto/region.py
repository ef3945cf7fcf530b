"""`region_of`: which nodes of a graph run ahead. Knows nothing of TensorFlow."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field

from staging_tf1.auto.cut import INFINITE, Network


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
    network = Network()
    for number, node in nodes.items():
        if number in step:
            continue
        own = network.number(number)
        if number in moving:
            network.add(0, own, INFINITE)
        elif number in after and node.time:
            network.add(0, own, node.time)
        for earlier in node.before:
            if earlier in nodes:
                network.add(own, network.number(earlier), INFINITE)
        for index, value in enumerate(node.values):
            carried = network.number((number, index))
            network.add(own, carried, INFINITE if value.cost is None else value.cost)
            for user in value.users:
                outside = user is None or user in step or user not in nodes
                network.add(carried, 1 if outside else network.number(user), INFINITE)
    cost, ahead = network.cut()
    chosen = {number for number in nodes if number not in step and network.number(number) in ahead}
    # Only those that are connected to a source: nothing would ever run the others.
    return {number for group in groups_of(nodes, chosen, {}) if group & moving for number in group}, cost


def groups_of(nodes: Mapping[int, Node], region: set[int], together: Mapping[int, object]) -> list[set[int]]:
    """Divide the region into the sets that share a source or a node. `together` names what sources share."""
    parent = {number: number for number in region}

    def root(number: int) -> int:
        while parent[number] != number:
            parent[number] = parent[parent[number]]
            number = parent[number]
        return number

    first: dict[object, int] = {}
    for number in region:
        for earlier in nodes[number].before & region:
            parent[root(earlier)] = root(number)
        if number in together:
            parent[root(first.setdefault(together[number], number))] = root(number)
    groups: dict[int, set[int]] = {}
    for number in sorted(region):
        groups.setdefault(root(number), set()).add(number)
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
