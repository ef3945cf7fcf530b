"""Where a feed thread delivers: the record that `graph` hands to `feed` and `lifecycle`."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from staging_tf1.graph.meter import Meter


@dataclass(frozen=True)
class Repair:
    """The ops that put an area's two queues right after a step has failed in the middle of a get."""

    # Free places, and elements in the store (scalars).
    free: Any
    held: Any
    # Gives one place back, takes one away.
    give_back: Any
    take_away: Any
    # Lets one more element be taken.
    release: Any


@dataclass(frozen=True)
class Sink:
    """One area or queue, seen from the thread that fills it. All fields are ops or tensors of one graph."""

    name: str
    # What to feed, in the order of the flattened batch; empty where the put computes its values itself.
    placeholders: tuple[Any, ...]
    # Waits for room, then takes one batch in. Never loses a batch that it could not take.
    put: Any
    # No more will come: whoever takes drains what is left, then gets OutOfRangeError.
    close: Any
    # No more can come, and whoever takes drains what is left, as after `close`, which may have been run before. A put
    # that waits for a place in an area has to be given one to wake and fail.
    cancel: Any
    # Run once in every session, before the first put.
    reset: Any
    # Elements ready to be taken (a scalar int32), and how many there may be.
    size: Any
    capacity: int
    # The queue that TensorFlow's QueueRunnerDef names when the graph is exported.
    queue: Any
    meter: Meter
    # With several towers `put` only stages; this lets one staged element be taken.
    release: Any | None = None
    # None for a queue, which takes no harm.
    repair: Repair | None = None
    # For how many batches of the source an element stands, fed to what lets it be taken: the release if there is one,
    # else the put. 1 if nothing is fed; None where it is always 1.
    count: Any | None = None
