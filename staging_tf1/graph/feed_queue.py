"""The queue of the classic recipe, a RandomShuffleQueue or FIFOQueue, and the placeholders that fill it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from staging_tf1._tf import tf
from staging_tf1.graph.dependencies import OUTPUT, copies_after
from staging_tf1.graph.get_stats import GetStats
from staging_tf1.graph.handshake import Handshake
from staging_tf1.graph.sink import PutOps, Sink
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
      name: the name of the sink.
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
