"""How a pipeline is fed, and how much memory it holds when it is full."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from staging_tf1.feed.feed import Feed
from staging_tf1.feed.thread_state import ThreadState
from staging_tf1.graph.sink import Sink
from staging_tf1.sources import Source


def kind_of(feed: Feed) -> str:
    """How `feed` gets its batches: "source", "stream" (one thread at a time reads it), "graph", or "lockstep"."""
    if feed.pipeline is not None and feed.pipeline.lockstep:
        return "lockstep"
    sources = [lane.source for lane in feed.lanes]
    if any(source is None for source in sources):
        return "graph"
    return "source" if all(isinstance(source, Source) for source in sources) else "stream"


def full_bytes(feed: Feed, tower: int, sink: Sink, states: Sequence[ThreadState]) -> int:
    """Bytes in a full area or queue: by the static shapes, else by what was delivered; 0 if neither tells."""
    held = feed.pipeline.towers[tower].outputs if feed.pipeline is not None else sink.placeholders
    holds_batches = feed.pipeline is not None or sink.put.type == "QueueEnqueueV2"
    if holds_batches and held and all(_is_known(tensor) for tensor in held):
        return sink.capacity * _bytes_of(held)
    elements = sum(state.batches if holds_batches else state.records for state in states)
    delivered = sum(state.bytes for state in states)
    if not delivered or not elements:
        return 0
    # What cast= makes of it; open dimensions are the same before and after.
    fed = _bytes_of(sink.placeholders)
    growth = _bytes_of(held) / fed if fed else 1
    return round(sink.capacity * delivered / elements * growth)


def _is_known(tensor: Any) -> bool:
    return tensor.shape.is_fully_defined() and bool(tensor.dtype.base_dtype.is_numpy_compatible)


def _bytes_of(tensors: Sequence[Any]) -> int:
    """Bytes of all tensors, with 1 for an open dimension."""
    return sum(int(tensor.dtype.size) * math.prod(dim or 1 for dim in _dims(tensor)) for tensor in tensors)


def _dims(tensor: Any) -> list[int | None]:
    return [] if tensor.shape.rank is None else list(tensor.shape.as_list())
