"""The op that names variables without a value."""

from __future__ import annotations

from typing import Any

from staging_tf1._tf import tf

_CACHE = "_staging_tf1_uninitialized"


def uninitialized_names(graph: Any) -> Any | None:
    """A string tensor with the names of the variables that have no value; None if nothing can tell.

    A finalized graph takes no new op; a MonitoredSession has left one of its own there.
    """
    with graph.as_default():
        variables = tf.global_variables() + tf.local_variables()
        if not variables:
            return None
        cached: tuple[int, Any] | None = getattr(graph, _CACHE, None)
        if cached is not None and cached[0] == len(variables):
            return cached[1]
        if graph.finalized:
            ready = graph.get_collection(tf.GraphKeys.READY_OP)
            return ready[0] if ready else None
        with tf.control_dependencies(None), tf.device(None):
            names = tf.report_uninitialized_variables(variables, name="staging_uninitialized")
        # TensorFlow logs an error for an answer that nobody has asked for by the end.
        tf.convert_to_tensor(names)
        setattr(graph, _CACHE, (len(variables), names))
        return names
