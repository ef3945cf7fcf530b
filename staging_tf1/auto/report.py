"""`AutoStageReport`: what `auto_stage()` has moved, and why the boundary is where it is."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

from staging_tf1 import display
from staging_tf1.auto import kinds
from staging_tf1.auto.plan import StagingPlan
from staging_tf1.auto.refusals import why_stuck


class BoundaryTensor(NamedTuple):
    """A tensor that is carried from what runs ahead to the step."""

    name: str
    dtype: str
    shape: str
    # Estimated; an unknown dimension counts as 32, a string as 64 bytes.
    bytes: int
    # Why it is carried: "the step uses it", "it can be fetched", or "keep=".
    reason: str


@dataclass(frozen=True)
class AutoStageReport:
    """What `auto_stage()` has moved, or would move.

    Attributes:
      moved: the names of the ops that run ahead, in the order of the graph.
      kinds: their types, in the same order.
      sources: the names of the ops that take the batches.
      boundary: the tensors that are carried to the step.
      stayed: why an op that could have run ahead does not, for each.
      python: the names of the moved ops that call Python functions.
      pipelines: the names of the staged pipelines; empty after a dry run.
      blocked: why ops of the step cannot run ahead; each reason with its number of ops.
      edges: the edges of the cut: an op that runs ahead, the tensor, and an op of the step that uses it.
    """

    moved: tuple[str, ...]
    kinds: tuple[str, ...]
    sources: tuple[str, ...]
    boundary: tuple[BoundaryTensor, ...]
    stayed: tuple[tuple[str, str], ...]
    python: tuple[str, ...]
    pipelines: tuple[str, ...]
    blocked: tuple[tuple[str, int], ...]
    edges: tuple[tuple[str, str, str], ...]

    def __str__(self) -> str:
        common = ", ".join(f"{count} {kind}" for kind, count in Counter(self.kinds).most_common(8))
        lines = [f"auto_stage: {len(self.moved)} ops {'run' if self.pipelines else 'would run'} ahead of the step"]
        lines += [f"  from: {', '.join(self.sources)}", f"  they are: {common}", "  carried to the step:"]
        lines += [
            f"    {tensor.name} {tensor.dtype} {tensor.shape}, about {tensor.bytes} bytes: {tensor.reason}"
            for tensor in self.boundary
        ]
        if self.python:
            lines.append(f"  Python functions that run ahead: {', '.join(self.python)}")
        if self.blocked:
            lines.append("  the step keeps what follows:")
            lines += [
                f"    {reason}" + (f" (and {more - 1} like it)" if more > 1 else "") for reason, more in self.blocked
            ]
        if self.stayed:
            lines.append("  could have run ahead:")
            lines += [f"    {name}: {why}" for name, why in self.stayed[:10]]
            lines += [f"    and {len(self.stayed) - 10} more"] if len(self.stayed) > 10 else []
        return "\n".join(lines)

    def to_dot(self) -> str:
        """Return the cut as a graph in the language of Graphviz: sources, carried tensors and who uses them."""
        lines = ["digraph auto_stage {", "  rankdir=LR;", "  subgraph cluster_ahead {", '    label="runs ahead";']
        ahead = dict.fromkeys([*self.sources, *(edge[0] for edge in self.edges)])
        lines += [f'    "{name}";' for name in ahead]
        lines += ["  }", "  subgraph cluster_step {", '    label="the step";']
        lines += [f'    "{name}";' for name in dict.fromkeys(edge[2] for edge in self.edges)]
        lines += ["  }"]
        lines += [f'  "{tail}" -> "{head}" [label="{tensor}"];' for tail, tensor, head in self.edges]
        return "\n".join([*lines, "}"])

    def to_svg(self, title: str = "Where auto_stage() cuts the graph", shown: Sequence[str] = ()) -> str:
        """Return the cut as an SVG picture: what runs ahead, what is carried, and what the step keeps.

        Args:
          title: for readers who do not see the picture.
          shown: lines about the ops that run ahead; without any, the most frequent kinds.
        """
        lines = list(shown) or [f"{count} x {kind}" for kind, count in Counter(self.kinds).most_common(8)]
        used = [tensor for tensor in self.boundary if tensor.reason == "the step uses it"]
        picture = display.Picture(920, 150 + 34 * max(len(lines) + 1, 2 * len(used) + 1), title)
        _draw_ahead(picture, len(self.moved), lines)
        _draw_carried(picture, used)
        _draw_kept(picture, [reason for reason, _ in self.blocked])
        picture.arrow("M 300 120 H 340", "ours")
        picture.arrow("M 620 120 H 660", "ours")
        return picture.svg()

    def _repr_html_(self) -> str:
        heads = ["carried to the step", "dtype", "shape", "bytes, about", "why"]
        carried = display.table(str(self).partition("\n")[0], heads, self.boundary)
        stayed = display.table("could have run ahead", ["op", "why not"], self.stayed[:10]) if self.stayed else ""
        return display.picture(self.to_svg(), "Where auto_stage() cuts the graph") + carried + stayed


def _draw_ahead(picture: display.Picture, ops: int, lines: list[str]) -> None:
    picture.box(20, 50, 280, 40 + 34 * (len(lines) + 1), style="group")
    picture.text(35, 38, f"runs ahead, in a feed thread: {ops} ops", "head")
    for number, line in enumerate([*lines, "..."]):
        picture.box(40, 65 + 34 * number, 240, 28, line, "ours")


def _draw_carried(picture: display.Picture, tensors: list[BoundaryTensor]) -> None:
    picture.text(345, 38, "carried to the step, in a staging area", "head")
    for number, tensor in enumerate(tensors):
        words = f"{tensor.name}\n{tensor.dtype} {tensor.shape}, {tensor.bytes:,} bytes"
        picture.box(340, 90 + 60 * number, 280, 52, words, "good")


def _draw_kept(picture: display.Picture, reasons: list[str]) -> None:
    picture.text(665, 38, "the step keeps what follows", "head")
    for number, reason in enumerate(reasons[:3]):
        name, _, why = reason.removeprefix("'").partition("' ")
        picture.box(660, 90 + 60 * number, 240, 52, f"{name.split('/')[-1]}\n{why}" if why else name, "")


def report_of(plan: StagingPlan) -> AutoStageReport:
    """Describe a plan. Its pipelines are made later."""
    moved = [op for ops in plan.groups for op in ops]
    reasons = Counter(map(_without_name, plan.reader.blocked.values()))
    examples = {_without_name(reason): reason for reason in reversed(plan.reader.blocked.values())}
    return AutoStageReport(
        moved=tuple(op.name for op in moved),
        kinds=tuple(op.type for op in moved),
        sources=tuple(op.name for op in plan.sources),
        boundary=_boundary(plan),
        stayed=_stayed(plan),
        python=tuple(op.name for op in moved if op.type in kinds.PYTHON),
        pipelines=(),
        blocked=tuple((examples[reason], count) for reason, count in reasons.most_common(6)),
        edges=tuple(
            (boundary.tensors[tensor].op.name, tensor, user.name)
            for boundary in plan.boundaries
            for user, _, tensor in boundary.uses
        ),
    )


def _boundary(plan: StagingPlan) -> tuple[BoundaryTensor, ...]:
    used = {tensor for boundary in plan.boundaries for _, _, tensor in boundary.uses}
    kept = {tensor.name for tensor in plan.keep}
    return tuple(
        BoundaryTensor(
            name,
            tensor.dtype.name,
            str(tensor.shape),
            plan.costs.size_of(tensor),
            "the step uses it" if name in used else "keep=" if name in kept else "it can be fetched",
        )
        for boundary in plan.boundaries
        for name, tensor in boundary.tensors.items()
    )


def _stayed(plan: StagingPlan) -> tuple[tuple[str, str], ...]:
    reader = plan.reader
    left = reader.source_nodes - {reader.node_of(op) for op in plan.sources}
    reason = "it runs after the boundary, and carrying its result costs more than it saves"
    stayed = [(op.name, reason) for op in reader.ops_of(plan.free.keys() - left) if op.name not in plan.region]
    return (*stayed, *((reader.ops_of([node])[0].name, why_stuck(reader, node)) for node in sorted(left)))


def _without_name(reason: str) -> str:
    return reason.split("'")[-1].strip() or reason
