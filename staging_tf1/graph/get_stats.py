"""Counts gets in the graph: how many there were, how long they waited, how full the area or queue was."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from staging_tf1._tf import deterministic_ops, own_variable, tf
from staging_tf1.graph.callsite import call_site


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
        """Convert a value of `self.value` to figures."""
        batches, wait_secs, waiting = (float(x) for x in sums)
        return GetFigures(int(batches), wait_secs if self.reads_clock else None, waiting / batches if batches else 0.0)
