"""`Sink`: one area or queue, with the ops that fill it, empty it and inspect it; `GetStats`, which counts its gets."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from staging_tf1._tf import deterministic_ops, own_variable, tf
from staging_tf1.graph.areas import StagingArea
from staging_tf1.graph.callsite import call_site
from staging_tf1.graph.dependencies import cut_before

if TYPE_CHECKING:
    from staging_tf1.graph.feed_queue import Handshake


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

    # Run once per session, before the first put.
    reset: Any
    # For a later start, run `renew`, which opens and empties it, and then `fill`, which puts the free slots back.
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
        pair = [] if self.put.handshake is None else self.put.handshake.queues
        return pair if self.slots is None else [self.slots, *pair]


def queue_key(queue: Any) -> str:
    return str(queue.queue_ref.op.name)


@dataclass(frozen=True)
class GetFigures:
    """The figures of one area or queue at one moment."""

    batches: int
    # Summed over the steps, from the start of a step until its batch arrived; None with deterministic ops.
    wait_secs: float | None
    occupancy: float  # mean number of elements that a get found

    def waited_share(self, before: GetFigures, secs: float) -> float:
        """Return the share of the `secs` since `before` that steps waited, from 0 to 1; 0 with deterministic ops."""
        return min(1.0, max(0.0, (self.wait_secs or 0.0) - (before.wait_secs or 0.0)) / secs)


class GetStats:
    """Sums [batches, seconds waited, elements found] over all gets. A get costs a few microseconds more.

    The graph reads the clock, because to Python a step that waits for input looks like a slow step. With deterministic
    ops TensorFlow refuses to read it, and the waiting time is not known.

    Attributes:
      reads_clock: whether the graph reads the clock.
    """

    def __init__(self, name: str) -> None:
        # Chosen when the op is made. A step could choose with tf.cond, but TensorFlow's executor is slower for graphs
        # with tf.cond.
        self.reads_clock = not deterministic_ops()
        with tf.control_dependencies(None):
            self._sums = own_variable(np.zeros(3), trainable=False, collections=[], name=f"{name}_meter")
            # Every start of the feed threads runs the reset. Without a start a get would wait forever.
            scope = self._sums.op.name.rpartition("/")[0]
            unstarted = (
                f"{scope} (made at {call_site()}) is not started in this session, so nothing feeds it. Use "
                f"StagingSession or StagingHook, or call staging.start(sess, coord) before the first step."
            )
            with tf.get_default_graph().colocate_with(self._sums.op):
                self._started = tf.raw_ops.Assert(
                    condition=self._sums.is_initialized(), data=[tf.constant(unstarted)], name="is_started"
                )
        self.reset = self._sums.initializer
        # The variable's own read op.
        self.value = tf.get_default_graph().as_graph_element(self._sums)

    def measured(self, size: Callable[[], Any], take: Callable[[], Any]) -> tuple[Any, Any]:
        """Return the tensors of `take()`, and an op that counts it. `size` and `take` are functions that make ops."""
        with tf.control_dependencies(None), tf.control_dependencies([self._started]):
            before = self._clock()
            waiting = size()
        with tf.control_dependencies([before, waiting]):
            taken = take()
        with tf.control_dependencies(tf.nest.flatten(taken)):
            waited = self._clock() - before
        waiting = tf.cast(waiting, tf.float64)
        batch = tf.constant(1.0, tf.float64)
        return taken, self._sums.assign_add(tf.stack([batch, waited, waiting]), read_value=False)

    def _clock(self) -> Any:
        return tf.timestamp() if self.reads_clock else tf.constant(0.0, tf.float64)

    def figures(self, sums: Any) -> GetFigures:
        batches, wait_secs, waiting = (float(x) for x in sums)
        return GetFigures(int(batches), wait_secs if self.reads_clock else None, waiting / batches if batches else 0.0)
