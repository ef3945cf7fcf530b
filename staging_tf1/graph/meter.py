"""Counts, inside the step, what a get costs: how long it waited and how full the pipeline was."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from staging_tf1._tf import tf
from staging_tf1.graph.callsite import call_site


@dataclass(frozen=True)
class Reading:
    """What a meter showed when it was read."""

    batches: int
    wait_secs: float  # summed over the steps, from the start of the step until the batch was there
    occupancy: float  # mean number of elements that a get found


class Meter:
    """Sums [batches, seconds waited, elements found] over all gets, at a cost of a few microseconds each.

    The clock is read in the graph, because from Python a step that waits for input looks like a slow step.
    """

    def __init__(self, name: str) -> None:
        with tf.control_dependencies(None):
            self._sums = tf.Variable(
                np.zeros(3), trainable=False, collections=[], use_resource=True, name=f"{name}_meter"
            )
            # The reset is what every start of the threads begins with; without one, a get would wait for ever.
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
        # The read that the variable has anyway.
        self.value = tf.get_default_graph().as_graph_element(self._sums)

    def around(self, size: Callable[[], Any], take: Callable[[], Any]) -> tuple[Any, Any]:
        """Returns what `take()` made, and an op that has counted it; both makers are called to make ops."""
        with tf.control_dependencies(None), tf.control_dependencies([self._started]):
            before = tf.timestamp()
            found = size()
        with tf.control_dependencies([before, found]):
            taken = take()
        with tf.control_dependencies(tf.nest.flatten(taken)):
            waited = tf.timestamp() - before
        found = tf.cast(found, tf.float64)
        one = tf.constant(1.0, tf.float64)
        return taken, self._sums.assign_add(tf.stack([one, waited, found]), read_value=False)

    @staticmethod
    def reading(sums: Any) -> Reading:
        """Makes a `Reading` of the value that `self.value` had."""
        batches, wait_secs, found = (float(x) for x in sums)
        return Reading(int(batches), wait_secs, found / batches if batches else 0.0)
