"""Ops that name the uninitialized variables of a graph, as few as possible.

`tf.report_uninitialized_variables` makes 30 ops, and a MonitoredSession calls it twice. With a third call of our own,
its ops were half of the graph of a small program, and took a third of its time.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from staging_tf1._tf import tf
from staging_tf1.graph.state import state_of


def uninitialized_names(graph: Any) -> Any | None:
    """Return a string tensor with the names of the uninitialized variables; None without such an op.

    In a finalized graph this is the op that a MonitoredSession runs, if any.
    """
    with graph.as_default():
        variables = tf.global_variables() + tf.local_variables()
    if not variables:
        return None
    if graph.finalized and _key(variables) not in state_of(graph).ops.uninitialized:
        ready = graph.get_collection(tf.GraphKeys.READY_OP)
        return ready[0] if ready else None
    return report_uninitialized(graph, variables)


def report_uninitialized(graph: Any, variables: Sequence[Any]) -> Any:
    """Return a string tensor with the names of those of `variables` that are uninitialized. It is made only once."""
    reports, key = state_of(graph).ops.uninitialized, _key(variables)
    if key not in reports:
        with graph.as_default(), tf.control_dependencies(None), tf.device(None), tf.name_scope("staging_uninitialized"):
            initialized = [tf.is_variable_initialized(variable) for variable in variables]
            with tf.device("/cpu:0"):
                names = tf.constant([variable.op.name for variable in variables])
                reports[key], _ = tf.dynamic_partition(names, tf.cast(tf.stack(initialized), tf.int32), 2)
    return reports[key]


def _key(variables: Sequence[Any]) -> tuple[str, ...]:
    return tuple(variable.op.name for variable in variables)
