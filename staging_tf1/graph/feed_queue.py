"""The queue of the classic recipe, a RandomShuffleQueue or FIFOQueue, and the placeholders that fill it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from staging_tf1._tf import tf
from staging_tf1.graph.dependencies import OUTPUT, copies_after
from staging_tf1.graph.get_stats import GetStats
from staging_tf1.graph.handshake import Handshake
from staging_tf1.graph.sink import Sink
from staging_tf1.graph.token_area import discarded, on


class FeedQueue:
    """A queue of records (`enqueue_many`) or of whole batches (`enqueue`), and the ops around it."""

    def __init__(
        self,
        scope: str,
        dtypes: Sequence[Any],
        shapes: Sequence[Any],
        *,
        shuffle: bool,
        whole_batches: bool,
        capacity: int,
        min_after_dequeue: int,
        seed: int | None,
        reproducible: bool,
        device: str | None,
    ) -> None:
        self.capacity, self.whole_batches = capacity, whole_batches
        shapes = [tf.TensorShape(shape) for shape in shapes]
        with tf.control_dependencies(None), tf.name_scope(scope), on(device):
            self.placeholders = tuple(
                tf.placeholder(dtype, shape, name=f"component_{i}")
                for i, (dtype, shape) in enumerate(zip(dtypes, shapes, strict=True))
            )
            # Whole batches may differ in length. The queue holds them only if it has no shapes.
            known = all(shape.is_fully_defined() for shape in shapes)
            element_shapes = (shapes if known else None) if whole_batches else [shape[1:] for shape in shapes]
            if shuffle:
                self.queue = tf.RandomShuffleQueue(
                    capacity, min_after_dequeue, dtypes, element_shapes, seed=seed, name="queue"
                )
            else:
                self.queue = tf.FIFOQueue(capacity, dtypes, element_shapes, name="queue")
            self.stats = GetStats("queue")
            self.size = self.queue.size(name="size")
            self.handshake = Handshake() if reproducible else None
            values = list(self.placeholders)
            self.put = self.queue.enqueue(values) if whole_batches else self.queue.enqueue_many(values)
            self.close = self.queue.close(name="close")
            cancels = [self.queue.close(cancel_pending_enqueues=True)]
            self.cancel = tf.group(*cancels, *(self.handshake.cancels if self.handshake else ()), name="cancel")
            inner = [] if self.handshake is None else self.handshake.queues
            self._renew = tf.group(*map(discarded, (self.queue, *inner)), name="renew")
            self._shapes = shapes

    def sink(self, name: str) -> Sink:
        """Return the queue as a `Sink`."""
        return Sink(
            name=name,
            placeholders=self.placeholders,
            put=self.put,
            close=self.close,
            cancel=self.cancel,
            reset=self.stats.reset,
            renew=self._renew,
            fill=(),
            size=self.size,
            capacity=self.capacity,
            queue=self.queue,
            stats=self.stats,
            handshake=self.handshake,
        )

    def get(self, batch_size: int | None, *, partial: bool) -> list[Any]:
        """Return the tensors of the next batch: `batch_size` records, or one whole batch if the queue holds batches.

        With `partial` the last batch of finite data may be smaller, so the first dimension is unknown.
        """

        def take() -> Any:
            if self.whole_batches:
                return self.queue.dequeue()
            if partial:
                return self.queue.dequeue_up_to(batch_size)
            return self.queue.dequeue_many(batch_size)

        def take_after_handshake() -> Any:
            return self.handshake.after_grant(take) if self.handshake else take()

        taken, counted = self.stats.measured(self.queue.size, take_after_handshake)
        tensors = list(taken) if isinstance(taken, (list, tuple)) else [taken]
        outputs = copies_after([counted], tensors, OUTPUT)
        for output, shape in zip(outputs, self._shapes, strict=True):
            output.set_shape(shape if self.whole_batches else [None if partial else batch_size, *shape[1:]])
        return outputs
