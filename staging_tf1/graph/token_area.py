"""`TokenArea`: what steps take the batches of `staged()` from, with two small queues, of slots and of tokens.

`Stage` and `Unstage` hold a thread of the inter-op pool while they wait, and support neither an end of the data nor
cancellation (https://github.com/tensorflow/tensorflow/issues/12980, 39006). Queue ops support both. So only the queues
wait, never an area. On a CPU there is none: a token is the element itself, and is taken at once or not at all::

    put:  values computed -> slots.dequeue  [-> Stage]   -> tokens.enqueue
    get:  tokens.dequeue  [-> Unstage] -> slots.enqueue  -> the tensors

Only the tokens are ever closed. If the slots were closed, a get that already has its element would fail and lose the
batch. A stop first gives a slot to each put that waits (`Sink.wake`), which then adds its element. TensorFlow would log
a put that fails, as "Local rendezvous is aborting". A slot holds 1. From a stop it holds more, and ends a loop of puts.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, ExitStack, nullcontext
from typing import Any

import numpy as np

from staging_tf1._tf import own_variable, scope_device, tf
from staging_tf1.graph.areas import StagingArea
from staging_tf1.graph.callsite import call_site
from staging_tf1.graph.dependencies import OUTPUT, copies_after
from staging_tf1.graph.placement import is_on_cpu
from staging_tf1.graph.sink import Block, BlockOps, GetOps, GetStats, PutOps, RepairOps, Sink, Tensors

# What a slot from a stop adds to the number of the next batch of a block: more than a block has.
_STOP = 2**30


class TokenArea(Sink):
    """A queue of `slots`, one for each free place, and a queue of `tokens`, one for each element that may be taken.

    On a CPU a token holds its element. On other devices, and with several towers, an area does. A token may hold the
    stamp of its element: how many batches of the source it stands for, namely itself and those skipped just before it,
    or for a `DynamicPosition` which batch it is. It may also hold a label, a string, because an area on a GPU cannot
    hold strings and the tokens are on the host.

    Args:
      tensors: the batch to stage.
      capacity: the most elements that it holds.
      device: where they are; None is the current device scope.
      stamps: whether tokens hold stamps.
      releases: whether an element can be taken as soon as it is put.
      advance: makes the op that counts a consumed batch, from its stamp and label; None counts none.
      block: how one run puts several batches; None if none does.
    """

    slots: Any
    repair: RepairOps
    get: GetOps

    def __init__(
        self,
        name: str,
        tensors: Tensors,
        *,
        capacity: int,
        device: str | None,
        stamps: bool,
        releases: bool,
        advance: Callable[[Any, Any], Any] | None,
        block: Block | None = None,
    ) -> None:
        self.name, self.capacity, self._tensors = name, capacity, tensors
        dtypes, shapes = [value.dtype for value in tensors.flat], [value.shape for value in tensors.flat]
        # Of a token: the stamp and the label, if it holds them.
        self._stamp: Any | None = None
        self._labels = tensors.label is not None
        with tf.control_dependencies(None):
            with on(device):
                self.device = scope_device()
                # On another device than the token, the Unstage might not run in a step that fails.
                self._host = host_of(self.device)
                if not (releases and is_on_cpu(self.device)):
                    # Unbounded, because a Stage that waits would hold a thread of the pool.
                    self.area = StagingArea(dtypes, shapes)
            self._make_queues(stamps, [] if self.area is not None else [dtype.base_dtype for dtype in dtypes])
        self.put = self._put(releases, None if block is None else self._put_block(block))
        with on(device):
            self.get = self._get(advance)
        # As an area has them, for `warn_misplaced`.
        self.made_at, self.outputs, self.placement_warned = call_site(), self.get.outputs, False

    def __str__(self) -> str:
        return f"area '{self.name}' (made at {self.made_at})"

    def _make_queues(self, stamps: bool, components: list[Any]) -> None:
        with self._on_host():
            # Unbounded, so that only dequeues wait. A repair may give one slot back twice.
            self.slots = tf.FIFOQueue(-1, tf.int32, [[1]], name="slots")
            if stamps:
                self._stamp = tf.placeholder_with_default(tf.constant(1, tf.int64), [], name="count")
            held = [tf.int64] * stamps + [tf.string] * self._labels + components or [tf.int32]
            self.queue = tf.FIFOQueue(-1, held, None if components else [[]] * len(held), name="tokens")
            self.stats = GetStats("area")
            self.size = self.queue.size(name="size")
            # Shared by all enqueues, because each op makes the session start more slowly.
            self._zero, self._slot = tf.constant(0, name="zero"), tf.constant([1], name="slot")
            self.repair = self._repair()
            self.close = self.queue.close(name="close")
            self.cancel = self.queue.close(cancel_pending_enqueues=True, name="cancel")
            self.wake = self.slots.enqueue(tf.constant([_STOP + 1]), name="wake")
            # Run before the first put of a session, and after `renew`.
            self.fill = self.slots.enqueue_many(tf.ones([self.capacity, 1], tf.int32), name="refill")
            # A server keeps areas between sessions.
            cleared = [] if self.area is None else [self.area.clear()]
            # Opens and empties it, so that its input can be read again. Nothing may put or take meanwhile.
            self.renew = tf.group(discarded(self.queue), discarded(self.slots), *cleared, name="renew")
        self.reset = tf.group(self.fill, *cleared, self.stats.reset, name="reset")

    def _repair(self) -> RepairOps:
        return RepairOps(
            free=self.slots.size(name="free"),
            held=self.size if self.area is None else self.area.size(),
            give_back=self.slots.enqueue(self._slot, name="give_back"),
            take_away=self.slots.dequeue(name="take_away").op,
            release=None if self.area is None else self.queue.enqueue(self._token(b""), name="release"),
        )

    def _put(self, releases: bool, block: BlockOps | None) -> PutOps:
        """Make the op that waits for a slot and stages the values. With `releases`, they can be taken at once."""
        # Copies, so that feeding the values cuts every edge to the ops that compute them: a feed does not cut control
        # edges.
        _, put = self._added(copies_after([], self._tensors.flat), self._tensors.label, releases)
        release = None if releases else self.repair.release
        return PutOps(put, tuple(self._tensors.placeholders), self._tensors.flat, self._stamp, release, block=block)

    def _put_block(self, block: Block) -> BlockOps:
        """Make the loop that waits for a slot for each of several batches and puts it."""

        def put_next(turn: Any) -> Any:
            with tf.control_dependencies([] if noted is None else [noted.assign(turn, read_value=False)]):
                # Fewer ops than `part[turn]`. Without a copy, if a batch is a multiple of 64 bytes long.
                end = turn + one
                batch = [
                    tf.raw_ops.StridedSlice(input=part, begin=turn, end=end, strides=one, shrink_axis_mask=1)
                    for part in fed
                ]
            slot, added = self._added(block.convert(batch), None, True)
            with tf.control_dependencies([added]):
                # After the last batch, if the slot is from a stop. A second loop variable would cost more.
                return turn + slot

        with self._on_host(), tf.name_scope("block"):
            fed = [tf.placeholder(spec.dtype, [None, *spec.shape]) for spec in block.specs]
            batches, one = tf.placeholder(tf.int32, [1]), tf.constant([1])
            noted = None
            if block.can_fail:
                noted = own_variable(np.zeros(1, np.int32), trainable=False, collections=[], name="turn")
            turn = tf.while_loop(
                lambda turn: tf.squeeze(turn < batches), put_next, [tf.constant([0])], parallel_iterations=1
            )
            failed = None if noted is None else tf.get_default_graph().as_graph_element(noted)
            return BlockOps((*fed, batches), turn % _STOP, failed)

    def _on_host(self) -> AbstractContextManager[Any]:
        scope = ExitStack()
        scope.enter_context(tf.device(None))
        scope.enter_context(tf.device(self._host))
        return scope

    def _added(self, values: Sequence[Any], label: Any, releases: bool) -> tuple[Any, Any]:
        """Return a slot, which is waited for, and the op that adds an element after it."""
        # The values come before the slot, because a source that fails must not keep a slot.
        with tf.control_dependencies(values), self._on_host():
            slot = self.slots.dequeue()
        with tf.control_dependencies([slot]):
            if self.area is None:
                with self._on_host():
                    return slot, self.queue.enqueue([*self._token(label), *values], name="put")
            staged = self.area.put(values)
        if not releases:
            return slot, staged
        with tf.control_dependencies([staged]), self._on_host():
            return slot, self.queue.enqueue(self._token(label), name="put")

    def _token(self, label: Any) -> list[Any]:
        """Return what a token holds beside the element."""
        token = [] if self._stamp is None else [self._stamp]
        token += [label] * self._labels
        return token or [self._zero] * (self.area is not None)

    def _get(self, advance: Callable[[Any, Any], Any] | None) -> GetOps:
        """Make the tensors of the next element, which wait for it."""
        # In the caller's device scope, as with `StagingArea.get`.
        taken, counted = self.stats.measured(self.queue.size, self.queue.dequeue)
        token = tf.nest.flatten(taken)
        marks = (self._stamp is not None) + self._labels
        with tf.control_dependencies([counted]):
            element = token[marks:] if self.area is None else self.area.get()
            for mark in token[:marks]:
                mark.set_shape([])
            stamp, label = token[0] if self._stamp is not None else None, token[marks - 1] if self._labels else None
            advanced = [advance(stamp, label)] if advance is not None else []
        # After it is counted: while all slots are free, no get is under way that has an element (`feed/gated.py`).
        with tf.control_dependencies([*element, counted]):
            given_back = self.slots.enqueue(self._slot)
        # The user's ops start after the slot is given back, so that a failing op cannot keep it.
        outputs = copies_after([given_back, *advanced], element, OUTPUT)
        for output, value in zip(outputs, self._tensors.flat, strict=True):
            output.set_shape(value.shape)
        batch = tf.nest.pack_sequence_as(self._tensors.structure, outputs, expand_composites=True)
        return GetOps(token[0].op, outputs, batch)


def discarded(queue: Any) -> Any:
    """Return the op that deletes a queue. The next run that uses it makes it anew: a closed queue cannot be opened."""
    return tf.raw_ops.DestroyResourceOp(resource=queue.queue_ref)


def on(device: str | None) -> AbstractContextManager[Any]:
    """Return the scope of `device`. None keeps the current scope, which `tf.device(None)` would leave."""
    return nullcontext() if device is None else tf.device(device)


def host_of(device: str) -> str:
    """Return the host CPU of `device`: the device itself if it is a CPU, else the first CPU of its task."""
    spec = tf.DeviceSpec.from_string(device or "")
    if spec.device_type == "CPU":
        return device
    job = "" if spec.job is None else f"/job:{spec.job}"
    replica = "" if spec.replica is None else f"/replica:{spec.replica}"
    task = "" if spec.task is None else f"/task:{spec.task}"
    return f"{job}{replica}{task}/device:CPU:0"
