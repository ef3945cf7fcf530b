"""How a pipeline is fed, and how much memory it holds when it is full."""

from __future__ import annotations

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
    """Bytes in a full area or queue: by what was delivered, else by the static shapes; 0 if neither tells."""
    holds_batches = feed.pipeline is not None or sink.put.type == "QueueEnqueueV2"
    elements = sum(state.batches if holds_batches else state.records for state in states)
    delivered = sum(state.bytes for state in states)
    if delivered and elements:
        return round(sink.capacity * delivered / elements)
    outputs = feed.pipeline.towers[tower].outputs if feed.pipeline is not None else ()
    sizes = [_bytes_of(tensor) for tensor in outputs]
    return 0 if None in sizes else sink.capacity * sum(size for size in sizes if size is not None)


def _bytes_of(tensor: Any) -> int | None:
    if not tensor.shape.is_fully_defined() or not tensor.dtype.base_dtype.is_numpy_compatible:
        return None
    return int(tensor.shape.num_elements()) * int(tensor.dtype.size)
