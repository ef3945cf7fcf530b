"""`Sink`: one area or queue, with the ops that fill it, empty it and inspect it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, NamedTuple

from staging_tf1.graph.areas import StagingArea
from staging_tf1.graph.dependencies import cut_before
from staging_tf1.graph.get_stats import GetStats
from staging_tf1.graph.handshake import Handshake


class Tensors(NamedTuple):
    """The tensors of one tower's batch, before they are staged."""

    flat: list[Any]
    # The nest to pack the staged tensors into.
    structure: Any
    # What feed threads feed; empty if the graph computes the values.
    placeholders: list[Any]
    # The last placeholder, if it is for the state of the stream after the batch; else None.
    label: Any = None


class Block(NamedTuple):
    """How a sink makes its elements where one run adds several."""

    # Of what is fed for one element.
    specs: Sequence[Any]
    # Makes what is staged out of it.
    convert: Callable[[Sequence[Any]], list[Any]]
    # Whether ops of the program do so, which may fail.
    can_fail: bool


class BlockOps(NamedTuple):
    """What adds several batches in one run. It waits for room for each of them."""

    # Those of `Block.specs`, with one more dimension, the first: the number of the batch. The last one is for how many
    # batches there are (int32, [1]).
    placeholders: tuple[Any, ...]
    # How many it has added (int32, [1]): fewer than it was fed if a `wake` has ended it.
    added: Any
    # The same of the last run if it has failed; None if no run can.
    before_error: Any | None


@dataclass(frozen=True)
class PutOps:
    """What adds one batch."""

    # Waits for room, then adds the batch.
    op: Any
    # What to feed, in the order of the flattened batch; empty if the graph computes the values.
    placeholders: tuple[Any, ...] = ()
    # The tensors that are staged; empty for a queue, which gets what is fed.
    values: Sequence[Any] = ()
    # The placeholder for the stamp of an element (see `TokenArea`), fed to `release`, or to `op` without a `release`.
    # None if it is always 1.
    stamp: Any | None = None
    # With several towers `op` only stages, and this one lets one staged element be taken.
    release: Any | None = None
    # With the taker of a shuffle queue whose order is reproducible.
    handshake: Handshake | None = None
    # What adds several batches at once; None if that is not possible.
    block: BlockOps | None = None

    @cached_property
    def ends(self) -> tuple[Any, ...]:
        """The tensors that can raise OutOfRangeError. In lockstep they are computed first, and fed to the put."""
        return () if self.placeholders else tuple(cut_before(self.op, self.values))


@dataclass(frozen=True)
class GetOps:
    """What takes one batch out of an area."""

    # Takes the element in each run that depends on it.
    take: Any
    # The tensors that the model reads, flat and in the structure of a batch.
    outputs: Sequence[Any]
    batch: Any


@dataclass(frozen=True)
class RepairOps:
    """What restores the slots of a `TokenArea` after a step failed in the middle of a get."""

    # Free slots, and elements in the area (scalars).
    free: Any
    held: Any
    # Adds one slot; removes one.
    give_back: Any
    take_away: Any
    # Lets one more element be taken; None where every element that is put can be taken.
    release: Any | None


class Sink:
    """The ops and tensors of one area (`TokenArea`) or queue (`FeedQueue`). They belong to one graph."""

    # Unique in the graph: the pipeline's name; with several towers followed by "/0", "/1"...
    name: str
    # Elements that can be taken (a scalar int32), and the maximum.
    size: Any
    capacity: int
    # Closed at the end of the data. An exported graph names it in its QueueRunnerDef.
    queue: Any
    # None for a queue, and where a queue holds the elements of a `TokenArea`.
    area: StagingArea | None = None
    # The queue of the area's slots.
    slots: Any | None = None
    # What its gets sum up.
    stats: GetStats

    # A session: run once, before the first put.
    reset: Any
    # Run before every later start, one after the other: the first opens and empties it, the second makes room.
    renew: Any
    fill: Any = ()
    # Ends the data: takers drain what is left, then get OutOfRangeError.
    close: Any
    # Like `close`, but puts that wait or come later fail. May follow a `close`.
    cancel: Any
    # Lets one put that waits for a slot add its element, before a `cancel`. One too many is harmless. None for a
    # `FeedQueue`.
    wake: Any | None = None

    put: PutOps
    # None for a queue, whose gets are made later, and which loses nothing in a failed step.
    get: GetOps | None = None
    repair: RepairOps | None = None

    @property
    def inner_queues(self) -> list[Any]:
        """The queues that are invisible to the user."""
        pair = [] if self.put.handshake is None else self.put.handshake.queues
        return pair if self.slots is None else [self.slots, *pair]


def queue_key(queue: Any) -> str:
    """Return the name of a TensorFlow queue's op."""
    return str(queue.queue_ref.op.name)
