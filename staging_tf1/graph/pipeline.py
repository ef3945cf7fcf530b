"""`Pipeline`: what one `staged()` call built, from build time to run time."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from staging_tf1.graph.callsite import CallSite
from staging_tf1.graph.position import Position
from staging_tf1.graph.sink import Sink
from staging_tf1.graph.source_ops import cut_before
from staging_tf1.graph.token_area import TokenArea, on


@dataclass(frozen=True)
class Tower:
    """One device's part of a pipeline: an area of its own, filled through its own sink."""

    gate: TokenArea
    sink: Sink
    # What the model reads, flat.
    outputs: tuple[Any, ...]
    # In lockstep: the tensors that can raise OutOfRangeError; they are run first and fed to the put.
    ends: tuple[Any, ...]


@dataclass(frozen=True)
class Pipeline:
    """One staged stream of batches: towers, and what the feed threads need to know."""

    name: str
    made_at: CallSite
    towers: tuple[Tower, ...]
    lockstep: bool
    # Runs once in every session, before the areas are reset (a dataset's iterator); None for most.
    init: Any | None
    # "exact", "ignore" or "restart": what to do with a checkpoint that was saved with another source.
    resume: str
    # What checkpoints hold; None where the input cannot go on at a number.
    position: Position | None
    # What computes one batch, to be run and dropped for each one that earlier runs have consumed; empty where the
    # input itself begins behind them.
    drops: tuple[Any, ...] = ()

    @property
    def outputs(self) -> list[Any]:
        """All tensors that take from the pipeline."""
        return [tensor for tower in self.towers for tensor in tower.outputs]


def build_tower(
    name: str,
    values: Sequence[Any],
    placeholders: Sequence[Any],
    *,
    capacity: int,
    device: str | None,
    release: bool,
    lockstep: bool,
    advance: Callable[[Any, Any], Any] | None,
    counts: bool = False,
    label: Any = None,
) -> Tower:
    """Makes the ops of one tower: `values` are staged by its put, `placeholders` are what a thread must feed.

    `advance` makes the op that counts a batch that was taken, from its token. With `counts` that holds for how many
    batches it stands, and `label` if there is one, a string tensor which is fed with the batch.
    """
    gate = TokenArea(
        [value.dtype for value in values],
        [value.shape for value in values],
        capacity=capacity,
        device=device,
        counts=counts,
        labels=label is not None,
    )
    put = gate.put(values, release=release, label=label)
    with on(device):
        outputs = gate.get(advance)
    for output, value in zip(outputs, values, strict=True):
        output.set_shape(value.shape)
    sink = Sink(
        name=name,
        placeholders=tuple(placeholders),
        put=put,
        close=gate.close,
        cancel=gate.cancel,
        reset=gate.reset,
        size=gate.size,
        capacity=capacity,
        queue=gate.tokens,
        meter=gate.meter,
        release=None if release else gate.release,
        repair=gate.repair,
        count=gate.count,
    )
    ends = cut_before(put, values) if lockstep and not placeholders else []
    return Tower(gate, sink, tuple(outputs), tuple(ends))
