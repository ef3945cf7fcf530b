"""`Sink`: one area or queue as its feeder, its takers and the stall report see it."""

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
    """What fills one area or queue, and what a step takes from it. The fields are ops or tensors of one graph."""

    # Unique in the graph: the pipeline's, followed by "/0", "/1" where there are several towers.
    name: str
    # What to feed, in the order of the flattened batch; empty where the put computes its values itself.
    placeholders: tuple[Any, ...]
    # Waits for room, then takes in one batch. Never loses a batch that it could not take.
    put: Any
    # No more will come: takers drain what is left, then get OutOfRangeError.
    close: Any
    # No more can come, and takers drain what is left, as after `close`, which may have run before. A put that waits for
    # a slot of an area must be given one, to wake and fail.
    cancel: Any
    # Run once in every session, before the first put.
    reset: Any
    # Elements ready to be taken (a scalar int32), and the most there can be.
    size: Any
    capacity: int
    # Closed at the end of the data; TensorFlow's QueueRunnerDef names it when the graph is exported.
    queue: Any
    stats: GetStats
    # With several towers `put` only stages; this lets one staged element be taken.
    release: Any | None = None
    # None for a queue, which a failed step does not harm.
    repair: Repair | None = None
    # How many batches of the source an element stands for, fed to what lets it be taken: the release if there is one,
    # else the put. 1 if nothing is fed; None where it is always 1.
    count: Any | None = None
    # The rest is None or empty for a queue, whose takers are made later.
    area: StagingArea | None = None
    # What the model reads, flat.
    outputs: tuple[Any, ...] = ()
    # A run that depends on this op takes an element.
    take: Any | None = None
    # In lockstep: the tensors that can raise OutOfRangeError. They are computed first and fed to the put.
    ends: tuple[Any, ...] = ()
    # The slots beside the area.
    slots: Any | None = None
    # Of a shuffle queue whose order can be repeated.
    handshake: Handshake | None = None

    @property
    def inner_queues(self) -> list[Any]:
        """Queues that the user knows nothing of."""
        pair = [] if self.handshake is None else [self.handshake.grants, self.handshake.taken]
        return pair if self.slots is None else [self.slots, *pair]


@dataclass(frozen=True)
class Staging:
    """How to stage the values of one tower."""

    capacity: int
    # None keeps the device scope around.
    device: str | None
    lockstep: bool
    # Whether an element may be taken as soon as it is put.
    release: bool
    # Makes the op that counts a batch that was taken, from its token's count and label; None counts none.
    advance: Callable[[Any, Any], Any] | None
    # Whether an element's token says how many batches it stands for.
    counts: bool


def staged_sink(name: str, values: Sequence[Any], placeholders: Sequence[Any], how: Staging, label: Any = None) -> Sink:
    """Makes the ops that stage `values` and take them out again.

    Args:
      name: the sink's.
      values: the tensors of one batch.
      placeholders: what a thread must feed to compute them.
      how: where to, and with what around it.
      label: a string tensor that is fed with each batch and kept in its token; None for none.
    """
    area = TokenArea(
        [value.dtype for value in values],
        [value.shape for value in values],
        capacity=how.capacity,
        device=how.device,
        counts=how.counts,
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
        size=area.size,
        capacity=how.capacity,
        queue=area.tokens,
        stats=area.stats,
        release=None if how.release else area.release,
        repair=area.repair,
        count=area.count,
        area=area.area,
        outputs=tuple(outputs),
        take=area.take,
        ends=tuple(cut_before(put, values)) if how.lockstep and not placeholders else (),
        slots=area.slots,
    )


def queue_key(queue: Any) -> str:
    """The name of a TensorFlow queue's op."""
    return str(queue.queue_ref.op.name)
