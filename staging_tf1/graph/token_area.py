"""`TokenArea`: a staging area between two small queues, which make it possible to close, cancel and time out.

`Stage` and `Unstage` hold a thread of the inter-op pool while they wait, and support neither an end of the data nor
cancellation (https://github.com/tensorflow/tensorflow/issues/12980, 39006). Queue ops support both. So only the queues
wait, never the area::

    put:  values computed -> slots.dequeue  -> Stage   -> tokens.enqueue_many
    get:  tokens.dequeue  -> Unstage -> slots.enqueue  -> the tensors

Only the tokens are ever closed. If the slots were closed, a get that already has its element would fail and lose the
batch. So a cancel gives a slot to each waiting put (`Sink.cancel`). A slot holds the number of tokens to enqueue: 1, or
0 from a cancel. Enqueuing nothing succeeds in a closed queue. TensorFlow would log a put that fails, as "Local
rendezvous is aborting".
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, ExitStack, nullcontext
from typing import Any

from staging_tf1._tf import tf
from staging_tf1.graph.areas import StagingArea
from staging_tf1.graph.dependencies import OUTPUT, copies_after
from staging_tf1.graph.get_stats import GetStats
from staging_tf1.graph.sink import BlockOps, GetOps, PutOps, RepairOps, Sink, Tensors


class TokenArea(Sink):
    """An area with a queue of `slots` and a queue of `tokens`, with an element each per free slot and per element.

    A token may hold the stamp of its element: how many batches of the source it stands for, namely itself and those
    skipped just before it, or for a `DynamicPosition` which batch it is. It may also hold a label, a string, because
    an area on a GPU cannot hold strings and the tokens are on the host.

    Args:
      name: the name of the sink.
      tensors: the batch to stage.
      capacity: the most elements that it holds.
      device: where they are; None is the current device scope.
      stamps: whether tokens hold stamps.
      releases: whether an element can be taken as soon as it is put.
      advance: makes the op that counts a consumed batch, from its stamp and label; None counts none.
      convert: makes what is staged out of what is fed; with it, one run can put several batches.
    """

    area: StagingArea
    slots: Any
    repair: RepairOps

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
        convert: Callable[[Sequence[Any]], list[Any]] | None = None,
    ) -> None:
        self.name, self.capacity, self._tensors = name, capacity, tensors
        dtypes, shapes = [value.dtype for value in tensors.flat], [value.shape for value in tensors.flat]
        # Of a token: the stamp and the label, if it holds them.
        self._stamp: Any | None = None
        self._labels = tensors.label is not None
        with tf.control_dependencies(None):
            with on(device):
                # Unbounded, because a Stage that waits would hold a thread of the pool.
                self.area = StagingArea(dtypes, shapes)
            self._make_queues(stamps, releases)
        self.put = self._put(releases, None if convert is None else self._put_block(convert))
        with on(device):
            self.get = self._get(advance)

    def _make_queues(self, stamps: bool, releases: bool) -> None:
        # If a token were dequeued on another device, the step could fail before the Unstage, and lose the token.
        with self._on_host():
            # Unbounded, so that only dequeues wait. A repair may give one slot back twice.
            self.slots = tf.FIFOQueue(-1, tf.int32, [[1]], name="slots")
            if stamps:
                self._stamp = tf.placeholder_with_default(tf.constant(1, tf.int64), [], name="count")
            held = [tf.int64] * stamps + [tf.string] * self._labels or [tf.int32]
            self.queue = tf.FIFOQueue(-1, held, [[]] * len(held), name="tokens")
            self.stats = GetStats("area")
            self.size = self.queue.size(name="size")
            # Shared by all enqueues, because each op makes the session start more slowly.
            self._zero, self._slot = tf.constant(0, name="zero"), tf.constant([1], name="slot")
            self.repair = self._repair()
            self.close = self.queue.close(name="close")
            cancelled = self.queue.close(cancel_pending_enqueues=True)
            slots, cleared = tf.ones([self.capacity, 1], tf.int32), self.area.clear()
            # Run before the first put of a session, and after `renew`.
            self.fill = self.slots.enqueue_many(slots, name="refill")
            # Opens and empties it, so that its input can be read again. Nothing may put or take meanwhile.
            self.renew = tf.group(discarded(self.queue), discarded(self.slots), cleared, name="renew")
            # After that, because a put that gets the slot earlier would succeed.
            with tf.control_dependencies([cancelled]):
                self.cancel = self.slots.enqueue(tf.constant([0]), name="cancel")
        # Cleared, because a server keeps areas between sessions.
        self.reset = tf.group(self.fill, cleared, self.stats.reset, name="reset")

    def _repair(self) -> RepairOps:
        release = self.queue.enqueue(self._token_with(b""), name="release")
        return RepairOps(
            free=self.slots.size(name="free"),
            held=self.area.size(),
            give_back=self.slots.enqueue(self._slot, name="give_back"),
            take_away=self.slots.dequeue(name="take_away").op,
            release=release,
        )

    def _put(self, releases: bool, block: BlockOps | None) -> PutOps:
        """Make the op that waits for a slot and stages the values. With `releases`, they can be taken at once."""
        # Copies, so that feeding the values cuts every edge to the ops that compute them: a feed does not cut control
        # edges.
        slot, put = self._staged(copies_after([], self._tensors.flat))
        if releases:
            with self._on_host():
                put = self._released(slot, put, self._tensors.label)
        release = None if releases else self.repair.release
        return PutOps(
            put, tuple(self._tensors.placeholders), self._tensors.flat, self._stamp, release, slot, block=block
        )

    def _put_block(self, convert: Callable[[Sequence[Any]], list[Any]]) -> BlockOps:
        """Make the loop that waits for a slot for each of several batches and puts it. A slot of 0 ends the loop."""

        def put_next(turn: Any, _: Any) -> tuple[Any, Any]:
            # Fewer ops than `part[turn]`. Without a copy, if a batch is a multiple of 64 bytes long.
            end = turn + one
            batch = [
                tf.raw_ops.StridedSlice(input=part, begin=turn, end=end, strides=one, shrink_axis_mask=1)
                for part in fed
            ]
            slot, staged = self._staged(convert(batch))
            with tf.control_dependencies([self._released(slot, staged, None)]):
                following = turn + slot
                return following, tf.squeeze((following < batches) & tf.cast(slot, tf.bool))

        with self._on_host(), tf.name_scope("block"):
            fed = [tf.placeholder(part.dtype, [None, *part.shape]) for part in self._tensors.placeholders]
            batches, one = tf.placeholder(tf.int32, [1]), tf.constant([1])
            added, _ = tf.while_loop(lambda turn, more: more, put_next, [tf.constant([0]), True], parallel_iterations=1)
        return BlockOps((*fed, batches), added)

    def _on_host(self) -> AbstractContextManager[Any]:
        scope = ExitStack()
        scope.enter_context(tf.device(None))
        scope.enter_context(tf.device(host_of(self.area.device)))
        return scope

    def _staged(self, values: Sequence[Any]) -> tuple[Any, Any]:
        """Return a slot, which is waited for, and the op that stages `values` after it."""
        # The values come before the slot, because a source that fails must not keep a slot.
        with tf.control_dependencies(values):
            slot = self.slots.dequeue()
        with tf.control_dependencies([slot]):
            return slot, self.area.put(values)

    def _released(self, slot: Any, staged: Any, label: Any) -> Any:
        """Return the op that lets an element be taken after `staged`; nothing for a slot of 0."""
        with tf.control_dependencies([staged]):
            tokens = [tf.fill(slot, component) for component in self._token_with(label)]
            return self.queue.enqueue_many(tokens, name="put")

    def _token_with(self, label: Any) -> list[Any]:
        stamp = [] if self._stamp is None else [self._stamp]
        return stamp + [label] * self._labels or [self._zero]

    def _get(self, advance: Callable[[Any, Any], Any] | None) -> GetOps:
        """Make the tensors of the next element, which wait for it."""
        # In the caller's device scope, as with `StagingArea.get`.
        taken, counted = self.stats.measured(self.queue.size, self.queue.dequeue)
        token = tf.nest.flatten(taken)
        with tf.control_dependencies([counted]):
            element = self.area.get()
            stamp, label = token[0] if self._stamp is not None else None, token[-1] if self._labels else None
            advanced = [advance(stamp, label)] if advance is not None else []
        with tf.control_dependencies(list(element)):
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
