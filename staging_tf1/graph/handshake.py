"""`Handshake`: makes feeder and taker of a shuffle queue alternate, so that its order is reproducible."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from staging_tf1._tf import tf


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
        """Return the op that tells the feeder that `tensors` have been taken."""
        with tf.control_dependencies(tensors):
            return self.taken.enqueue(0)
