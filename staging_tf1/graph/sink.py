"""`Sink`: one area or queue, with the ops that fill it, empty it and inspect it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from staging_tf1.graph.areas import StagingArea
from staging_tf1.graph.dependencies import cut_before
from staging_tf1.graph.get_stats import GetStats
from staging_tf1.graph.handshake import Handshake
from staging_tf1.graph.token_area import Repair, TokenArea, on


# By identity: the fields are tensors.
@dataclass(frozen=True, eq=False)
class Sink:
    """The ops and tensors of one area or queue. They belong to one graph."""

    # Unique in the graph: the pipeline's name; with several towers followed by "/0", "/1"...
    name: str
    # What to feed, in the order of the flattened batch; empty if the graph computes the values.
    placeholders: tuple[Any, ...]
    # Waits for room, then adds one batch.
    put: Any
    # Ends the data: takers drain what is left, then get OutOfRangeError.
    close: Any
    # Like `close`, but puts add nothing from then on; puts into a queue fail. May follow a `close`. Each run wakes one
    # put that waits for a slot; one slot too many in a cancelled area is harmless.
    cancel: Any
    # Run once in every session, before the first put.
    reset: Any
    # Run before every later start in a session, one after the other: the first opens and empties it, the second makes
    # room.
    renew: Any
    fill: Any
    # Elements that can be taken (a scalar int32), and the maximum.
    size: Any
    capacity: int
    # Closed at the end of the data. An exported graph names it in its QueueRunnerDef.
    queue: Any
    stats: GetStats
    # With several towers `put` only stages, and this op lets one staged element be taken.
    release: Any | None = None
    # None for a queue, which loses nothing in a failed step.
    repair: Repair | None = None
    # The placeholder for the stamp of an element (see `TokenArea`), fed to `release`, or to `put` without a `release`.
    # None if it is always 1.
    stamp: Any | None = None
    # None for a queue, which has no `outputs` and `take` either: its gets are made later.
    area: StagingArea | None = None
    # The tensors that the model reads, flat.
    outputs: tuple[Any, ...] = ()
    # A run that depends on this op takes an element.
    take: Any | None = None
    # In lockstep: the tensors that can raise OutOfRangeError. They are computed first and fed to the put.
    ends: tuple[Any, ...] = ()
    # The queue of an area's slots. What a run of `put` has taken from it: [0] if a `cancel` has woken it.
    slots: Any | None = None
    slot: Any | None = None
    # Of a shuffle queue with a reproducible order.
    handshake: Handshake | None = None

    @property
    def inner_queues(self) -> list[Any]:
        """The queues that are invisible to the user."""
        pair = [] if self.handshake is None else self.handshake.queues
        return pair if self.slots is None else [self.slots, *pair]


@dataclass(frozen=True)
class Staging:
    """How to stage the values of one tower."""

    capacity: int
    # None is the current device scope.
    device: str | None
    lockstep: bool
    # Whether an element can be taken as soon as it is put.
    release: bool
    # Makes the op that counts a consumed batch, from its stamp and label; None counts none.
    advance: Callable[[Any, Any], Any] | None
    # Whether tokens hold stamps.
    stamps: bool


def staged_sink(name: str, values: Sequence[Any], placeholders: Sequence[Any], how: Staging, label: Any = None) -> Sink:
    """Make the ops that stage `values` and take them.

    Args:
      name: the name of the sink.
      values: the tensors of one batch.
      placeholders: what a thread must feed to compute them.
      how: how to stage them.
      label: a string tensor that is fed with each batch and kept in its token; None for none.
    """
    area = TokenArea(
        [value.dtype for value in values],
        [value.shape for value in values],
        capacity=how.capacity,
        device=how.device,
        stamps=how.stamps,
        labels=label is not None,
    )
    put = area.put(values, release=how.release, label=label)
    with on(how.device):
        outputs = area.get(how.advance)
    for output, value in zip(outputs, values, strict=True):
        output.set_shape(value.shape)
    return Sink(
        name=name,
        placeholders=tuple(placeholders),
        put=put,
        close=area.close,
        cancel=area.cancel,
        reset=area.reset,
        renew=area.renew,
        fill=area.fill,
        size=area.size,
        capacity=how.capacity,
        queue=area.tokens,
        stats=area.stats,
        release=None if how.release else area.release,
        repair=area.repair,
        stamp=area.stamp,
        area=area.area,
        outputs=tuple(outputs),
        take=area.take,
        ends=tuple(cut_before(put, values)) if how.lockstep and not placeholders else (),
        slots=area.slots,
        slot=area.slot,
    )


def queue_key(queue: Any) -> str:
    """Return the name of a TensorFlow queue's op."""
    return str(queue.queue_ref.op.name)
