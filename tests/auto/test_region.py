"""The minimum cut of `auto_stage()`, against all cuts of small random graphs."""

from __future__ import annotations

import itertools
import random
import time

from hypothesis import given, settings
from hypothesis import strategies as st
from load import slowdown
from slow import examples

from staging_tf1.auto.region import Node, Value, groups_of, region_of


def random_nodes(seed: int) -> tuple[dict[int, Node], set[int]]:
    """A random graph of up to nine nodes, and which of them are blocked."""
    draw = random.Random(seed)
    nodes: dict[int, Node] = {}
    blocked = set()
    for number in range(draw.randint(2, 9)):
        before = {each for each in nodes if draw.random() < 0.35}
        nodes[number] = Node(time=draw.randint(0, 40), is_source=not before and draw.random() < 0.8, before=before)
        for each in before:
            if draw.random() < 0.8:  # else by a control edge alone
                nodes[each].values.append(Value(draw.choice([None, *range(1, 60)]), {number}))
        if not nodes[number].is_source and draw.random() < 0.2:
            blocked.add(number)
    for node in nodes.values():
        if draw.random() < 0.4:
            node.values.append(Value(draw.choice([None, *range(1, 60)]), {None}))
    return nodes, blocked


def cost_of(nodes: dict[int, Node], chosen: set[int], worth: set[int]) -> int | None:
    """The time of what stays and is worth moving, and of what is carried; None if that cannot be cut."""
    cost = sum(nodes[number].time for number in worth - chosen)
    for number in chosen:
        if nodes[number].before - chosen:
            return None
        for value in nodes[number].values:
            if value.users - chosen:
                if value.cost is None:
                    return None
                cost += value.cost
    return cost


def after(nodes: dict[int, Node], first: set[int]) -> set[int]:
    found = set(first)
    for number in sorted(nodes):
        if nodes[number].before & found:
            found.add(number)
    return found


@settings(max_examples=examples(400))
@given(st.integers(0, 2**32))
def test_no_other_cut_costs_less_and_no_equal_one_moves_more(seed: int) -> None:
    nodes, blocked = random_nodes(seed)
    step = after(nodes, blocked)
    nodes = {number: node for number, node in nodes.items() if number not in step}
    region, _ = region_of(nodes)
    sources = {number for number, node in nodes.items() if node.is_source}
    moving = sources & region
    worth = {number for number in after(nodes, moving) if not nodes[number].is_source}
    free = set(nodes) - sources
    costs = {}
    for size in range(len(free) + 1):
        for some in itertools.combinations(sorted(free), size):
            found = cost_of(nodes, moving | set(some), worth)
            if found is not None:
                costs[frozenset(moving | set(some))] = found
    assert costs, "the sources that move can be cut from the step"
    least = min(costs.values())
    assert cost_of(nodes, region, worth) == least
    largest = set().union(*(each for each, found in costs.items() if found == least))
    joined = set().union(*(group for group in groups_of(nodes, largest, {}) if group & sources), set())
    assert region == joined
    # A source that stays could not have moved, whatever else moves with it.
    for source in sources - moving:
        others = [number for number in nodes if number != source]
        assert all(
            cost_of(nodes, {source, *some}, set()) is None
            for size in range(len(others) + 1)
            for some in itertools.combinations(others, size)
        )


def test_a_large_graph_is_cut_in_time() -> None:
    """10,000 nodes in chains that meet, each worth moving or not."""
    draw = random.Random(1)
    nodes = {0: Node(is_source=True)}
    for number in range(1, 10_000):
        before = {draw.randint(max(0, number - 50), number - 1) for _ in range(2)}
        nodes[number] = Node(time=draw.randint(1, 5000), before=before)
        for each in before:
            nodes[each].values.append(Value(draw.randint(5000, 50_000), {number}))
    nodes[9_999].values.append(Value(5000, {None}))
    step = after(nodes, {9_000})
    nodes = {number: node for number, node in nodes.items() if number not in step}
    began = time.process_time()
    region, _ = region_of(nodes)
    assert len(region) > 1_000
    assert time.process_time() - began < 5 * slowdown()
