"""Feeder and taker of a RandomShuffleQueue in turn, which makes its order reproducible.

The queue picks among the elements that it holds at that moment, so the same seed gives another order whenever the
threads interleave differently. With turns, the taker takes only from a queue that the feeder has filled.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from staging_tf1._tf import tf


class Turns:
    """Two one-place queues: `grants` lets the taker take once, `taken` tells the feeder that it did."""

    def __init__(self) -> None:
        # Elements that the queue must hold for the greediest taker; known once the takers are built.
        self.needed = 0
        # One place: the feeder may ask again after a failed step without granting twice.
        self.grants = tf.FIFOQueue(1, tf.int32, [], name="grants")
        # Never closed, and without a bound: a taker that has its elements must neither fail here nor wait.
        self.taken = tf.FIFOQueue(-1, tf.int32, [], name="taken")
        self.grant = self.grants.enqueue(0, name="grant")
        self.pending = self.grants.size(name="pending")
        self.wait_taken = self.taken.dequeue(name="wait_taken")
        # Wakes a feeder whose taker failed after it was granted its turn, or that has to stop.
        self.told = self.taken.size(name="told")
        self.tell = self.taken.enqueue(0, name="tell")
        self.end = self.grants.close(name="end")
        self.cancels = [self.grants.close(cancel_pending_enqueues=True), self.tell]

    def around(self, take: Callable[[], Any]) -> Any:
        """The tensors of `take()`, taken in turn."""
        granted = self.grants.dequeue()
        with tf.control_dependencies([granted]):
            taken = tf.nest.flatten(take())
        with tf.control_dependencies(taken):
            told = self.taken.enqueue(0)
        with tf.control_dependencies([told]):
            return [tf.identity(tensor) for tensor in taken]
