"""`FeedQueue`: a queue between feed threads and steps; `Handshake`, which makes its order reproducible."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from staging_tf1._tf import tf
from staging_tf1.graph.dependencies import OUTPUT, copies_after
from staging_tf1.graph.sink import GetStats, PutOps, Sink
from staging_tf1.graph.token_area import discarded


@dataclass(frozen=True)
class QueueOptions:
    """What a `FeedQueue` holds, and in which order it gives it back."""

    shuffle: bool
    # Whether an element is a batch; else it is a record.
    whole_batches: bool
    min_after_dequeue: int
    seed: int | None
    # Whether feeder and taker alternate, so that the order of a shuffle queue does not depend on timing.
    reproducible: bool


class FeedQueue(Sink):
    """A queue of records (`enqueue_many`) or of whole batches (`enqueue`), and the ops around it.

    Args:
      components: the specs of the tensors of a batch, flat.
      capacity: the most elements that it holds.
      options: what it holds.
    """

    def __init__(self, name: str, components: Sequence[Any], capacity: int, options: QueueOptions) -> None:
        self.name, self.capacity, self.options = name, capacity, options
        dtypes, self._shapes = [part.dtype for part in components], [tf.TensorShape(part.shape) for part in components]
        placeholders = tuple(
            tf.placeholder(dtype, shape, name=f"component_{i}")
            for i, (dtype, shape) in enumerate(zip(dtypes, self._shapes, strict=True))
        )
        # Whole batches may differ in length. The queue holds them only if it has no shapes.
        known = all(shape.is_fully_defined() for shape in self._shapes)
        whole_shapes = self._shapes if known else None
        shapes = whole_shapes if options.whole_batches else [shape[1:] for shape in self._shapes]
        if options.shuffle:
            self.queue = tf.RandomShuffleQueue(
                capacity, options.min_after_dequeue, dtypes, shapes, seed=options.seed, name="queue"
            )
        else:
            self.queue = tf.FIFOQueue(capacity, dtypes, shapes, name="queue")
        self.stats = GetStats("queue")
        self.reset = self.stats.reset
        self.size = self.queue.size(name="size")
        handshake = Handshake(self.queue.size) if options.reproducible else None
        enqueue = self.queue.enqueue if options.whole_batches else self.queue.enqueue_many
        self.put = PutOps(enqueue(list(placeholders)), placeholders, handshake=handshake)
        self.close = self.queue.close(name="close")
        cancels = [self.queue.close(cancel_pending_enqueues=True)]
        self.cancel = tf.group(*cancels, *(handshake.cancels if handshake else ()), name="cancel")
        self.renew = tf.group(*map(discarded, (self.queue, *self.inner_queues)), name="renew")

    def dequeue(self, batch_size: int | None, *, partial: bool) -> list[Any]:
        """Return the tensors of the next batch: `batch_size` records, or one whole batch if the queue holds batches.

        With `partial` the last batch of finite data may be smaller, so the first dimension is unknown.
        """

        def take() -> Any:
            if self.options.whole_batches:
                return self.queue.dequeue()
            if partial:
                return self.queue.dequeue_up_to(batch_size)
            return self.queue.dequeue_many(batch_size)

        handshake = self.put.handshake
        taken, counted = self.stats.measured(
            self.queue.size, take if handshake is None else lambda: handshake.after_grant(take)
        )
        tensors = list(taken) if isinstance(taken, (list, tuple)) else [taken]
        noted = [] if handshake is None else [handshake.note_taken(tensors)]
        outputs = copies_after([counted, *noted], tensors, OUTPUT)
        for output, shape in zip(outputs, self._shapes, strict=True):
            output.set_shape(shape if self.options.whole_batches else [None if partial else batch_size, *shape[1:]])
        return outputs


class Handshake:
    """The ops with which feeder and taker of a RandomShuffleQueue alternate.

    The queue picks among the elements that it holds at that moment. So without the hand-shake, the order depends on how
    the threads interleave, even with a seed. With it, the taker takes only from a queue that the feeder has filled.

    Args:
      size: makes an op that reads how many elements the queue holds.

    Attributes:
      queues: its two queues.
      needed: elements that the queue must hold for the largest dequeue; known once the takers are built.
      grant: the op that lets the taker take once.
      seen: waits until the taker has taken, or `wake` wakes the feeder; then how many elements the queue holds, and how
        many grants are unused (scalars, int32).
      wake, wakes: the op that wakes the feeder, and the number of unseen wake-ups (a scalar int32).
      end: ends the grants.
      cancels: the ops that wake both sides.
    """

    def __init__(self, size: Callable[[], Any]) -> None:
        self.needed = 0
        # Capacity 1: the feeder can grant again after a failed step without granting twice.
        self.grants = tf.FIFOQueue(1, tf.int32, [], name="grants")
        # Unbounded and never closed: a taker that has its elements must neither wait nor fail here.
        self.taken = tf.FIFOQueue(-1, tf.int32, [], name="taken")
        self.queues = [self.grants, self.taken]
        self.grant = self.grants.enqueue(0, name="grant")
        with tf.control_dependencies([self.taken.dequeue(name="wait_taken")]):
            # In the same run, because each run holds up the taker's next grant.
            self.seen = [size(), self.grants.size(name="pending")]
        # Wakes a feeder that must stop, or whose taker failed after its grant.
        self.wakes = self.taken.size(name="told")
        self.wake = self.taken.enqueue(0, name="tell")
        self.end = self.grants.close(name="end")
        self.cancels = [self.grants.close(cancel_pending_enqueues=True), self.wake]

    def after_grant(self, take: Callable[[], Any]) -> Any:
        """Return the tensors of `take()`, which waits for a grant of the feeder."""
        with tf.control_dependencies([self.grants.dequeue()]):
            return take()

    def note_taken(self, tensors: Sequence[Any]) -> Any:
        with tf.control_dependencies(tensors):
            return self.taken.enqueue(0)
