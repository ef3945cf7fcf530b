"""`stage_graph`: moves the input of a graph ahead of its step."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

from staging_tf1._tf import tf
from staging_tf1.auto import kinds
from staging_tf1.auto.meaning import Group, Meaning, set_meaning
from staging_tf1.auto.plan import Measure, StagingPlan, plan_of
from staging_tf1.auto.report import AutoStageReport, report_of
from staging_tf1.auto.rewire import Boundary, check_disjoint, connect
from staging_tf1.feed.pipeline import Pipeline, Producer
from staging_tf1.feed.queue_runner import register
from staging_tf1.graph.callsite import CallSite
from staging_tf1.graph.sink import Sink


@dataclass(frozen=True)
class AutoOptions:
    """The arguments of `auto_stage()`, checked."""

    keep: tuple[Any, ...] = ()
    capacity: int = 2
    device: str | None = None
    num_threads: int = 1
    measure: Measure | None = None
    dry_run: bool = False
    name: str | None = None


def stage_graph(graph: Any, train_ops: Sequence[Any], options: AutoOptions, site: CallSite) -> AutoStageReport:
    """Stage the input of `train_ops`; see `staging_tf1.auto_stage`. Change nothing if it raises AutoStageError."""
    plan = plan_of(graph, train_ops, options.keep, options.measure)
    report = report_of(plan)
    if options.dry_run:
        return report
    with tf.control_dependencies(None), tf.device(None):
        groups = [
            _staged(plan, ops, boundary, options, site)
            for ops, boundary in zip(plan.groups, plan.boundaries, strict=True)
        ]
    check_disjoint(train_ops, plan.region)
    set_meaning(graph, Meaning(graph, groups))
    return replace(report, pipelines=tuple(group.sink.name for group in groups))


def _staged(plan: StagingPlan, ops: Sequence[Any], boundary: Boundary, options: AutoOptions, site: CallSite) -> Group:
    own = {op.name for op in ops}
    sources = [op for op in plan.sources if op.name in own]
    depends = _sources_of(ops, {op.name for op in sources})
    after = {user.name: frozenset().union(*(depends[op.name] for op in before)) for user, before in boundary.controls}
    with tf.name_scope(options.name or "auto_stage") as scope:
        link = connect(boundary, scope.rstrip("/"), plan.region, options.capacity, options.device)
    _register(plan, sources, link.sink, options, site)
    carried = {name: (link.output(name), depends[tensor.op.name]) for name, tensor in boundary.tensors.items()}
    return Group(link.sink, frozenset(own), frozenset(op.name for op in sources), carried, after, link.meter)


def _register(plan: StagingPlan, sources: Sequence[Any], sink: Sink, options: AutoOptions, site: CallSite) -> None:
    index = plan.reader.index
    handles = [plan.reader.handle_of(op).name for op in sources]
    renewed = frozenset(
        index.ops[user].name
        for handle in handles
        for user in index.after[index.number_of[handle]]
        if index.kinds[user] in kinds.INITIALIZERS
    )
    producer = Producer(sink.name, None, None, options.num_threads)
    register(
        Pipeline(sink.name, site, (sink,), (producer,), resume="restart", on_demand=True, renewed_by=renewed),
    )


def _sources_of(ops: Sequence[Any], sources: set[str]) -> dict[str, frozenset[str]]:
    """Return for each of `ops` the sources that it depends on."""
    own = {op.name for op in ops}
    sources_of: dict[str, frozenset[str]] = {op.name: frozenset({op.name} & sources) for op in ops}
    changed = True
    # Repeated for a loop, whose ops depend on each other.
    while changed:
        changed = False
        for op in ops:
            before = {tensor.op.name for tensor in op.inputs} | {control.name for control in op.control_inputs}
            union = sources_of[op.name].union(*(sources_of[name] for name in before & own))
            if union != sources_of[op.name]:
                sources_of[op.name], changed = union, True
    return sources_of
