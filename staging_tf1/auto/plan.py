"""`StagingPlan`: what will run ahead and what leaves it, found before anything is changed."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from staging_tf1.auto import kinds
from staging_tf1.auto.costs import Costs
from staging_tf1.auto.reading import GraphReader
from staging_tf1.auto.refusals import (
    WHAT,
    check_graph,
    check_input,
    check_others,
    gives_what_is_ready,
    kept_tensors,
    nothing_moves,
)
from staging_tf1.auto.region import Node, groups_of, region_of
from staging_tf1.auto.rewire import Boundary, boundary_of
from staging_tf1.errors import AutoStageError, NothingToStageError
from staging_tf1.garbage import without_collections

Measure = Callable[[GraphReader, Sequence[Any]], Costs]


@dataclass(frozen=True)
class StagingPlan:
    """What will run ahead."""

    reader: GraphReader
    costs: Costs
    # The ops that run ahead, in groups that share an input; and what leaves each group.
    groups: list[list[Any]]
    boundaries: list[Boundary]
    # The names of all these ops.
    region: set[str]
    # The ops that take batches.
    sources: list[Any]
    # The tensors of `keep=` that run ahead.
    keep: list[Any]
    # The nodes that could run ahead.
    free: dict[int, Node]


def plan_of(graph: Any, train_ops: Sequence[Any], keep: Sequence[Any], measure: Measure | None) -> StagingPlan:
    """Choose what runs ahead of a step.

    Args:
      graph: the graph.
      train_ops: what a training step fetches.
      keep: tensors, or names of some, that must be carried to the step.
      measure: returns how long ops take that could run ahead; None estimates that.

    Raises:
      AutoStageError: nothing can run ahead, or it would gain nothing.
    """
    check_graph(graph)
    # With a graph of 100,000 ops, searches for garbage would be half of the analysis.
    with without_collections():
        reader = GraphReader(graph, train_ops)
        check_input(reader)
        costs = Costs() if measure is None else measure(reader, reader.free_ops())
        free = reader.free_nodes(costs)
        region, _ = region_of(free)
        if not region:
            raise nothing_moves(reader)
        together = {
            reader.node_of(op): reader.handle_of(op).name
            for number in reader.sources
            if reader.node_of(op := reader.index.ops[number]) in region
        }
        groups = [reader.ops_of(group) for group in groups_of(free, region, together)]
        names = {op.name for ops in groups for op in ops}
        sources = [op for ops in groups for op in ops if reader.is_source(op)]
        check_others(reader, sources, names)
        kept = kept_tensors(graph, keep, names)
        boundaries = [_boundary(reader, ops, names, sources, kept) for ops in groups]
        plan = StagingPlan(reader, costs, groups, boundaries, names, sources, kept, free)
    _check_worth(plan)
    return plan


def _boundary(
    reader: GraphReader, ops: Sequence[Any], region: set[str], sources: Sequence[Any], keep: Sequence[Any]
) -> Boundary:
    own, graph = {op.name for op in ops}, reader.index.graph
    fetched = [*(op for op in sources if op.name in own), *(op for op in ops if kinds.PARSING.match(op.type))]
    extra = [output for op in fetched if graph.is_fetchable(op) for output in op.outputs]
    extra = [output for output in extra if kinds.can_be_carried(output)]
    extra += [tensor for tensor in keep if tensor.op.name in own]
    boundary = boundary_of(reader.index, ops, region, extra)
    wrong = [tensor for tensor in boundary.tensors.values() if not kinds.can_be_carried(tensor)]
    if wrong:
        raise AutoStageError(f"{WHAT}: '{wrong[0].name}' is a {wrong[0].dtype.name}, which an area cannot hold.")
    if not boundary.tensors:
        raise AutoStageError(f"{WHAT}: the step uses nothing of '{ops[0].name}'.")
    return boundary


def _check_worth(plan: StagingPlan) -> None:
    """Raise NothingToStageError if the input is ready before the step, and little is computed from it."""
    if not all(gives_what_is_ready(plan.reader, op) for op in plan.sources):
        return
    saved = sum(plan.free[node].time for node in {plan.reader.node_of(op) for ops in plan.groups for op in ops})
    carried = {name: tensor for boundary in plan.boundaries for name, tensor in boundary.tensors.items()}
    used = {name for boundary in plan.boundaries for _, _, name in boundary.uses}
    cost = sum(plan.costs.carrying_time(carried[name]) for name in used)
    if saved <= cost:
        raise NothingToStageError(
            f"{WHAT}: nothing is worth moving: '{plan.sources[0].name}' gives what another thread has prepared, and "
            f"what the step computes from it alone takes about {saved / 1000:.0f} us, while carrying it takes "
            f"{cost / 1000:.0f} us. Leave the graph as it is."
        )
