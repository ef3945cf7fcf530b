"""The scaffold of a `StagingSession`: restores with clear errors, and checks the variables with few ops."""

from __future__ import annotations

import os
from typing import Any

from staging_tf1._tf import tf
from staging_tf1.feed.checkpoint import check_state_file
from staging_tf1.graph.uninitialized import report_uninitialized


def prepared_scaffold(scaffold: Any | None, checkpoint_dir: str | None) -> Any:
    """Return the scaffold, or a new one, that checks the folder and has our ready ops.

    The folder is checked whenever the scaffold is finalized: before the session is created, and again after a failure.

    Args:
      scaffold: a `tf.train.Scaffold`, or None.
      checkpoint_dir: the folder to restore from; None restores nothing.
    """
    scaffold = scaffold if scaffold is not None else tf.train.Scaffold()

    def finalize() -> Any:
        if checkpoint_dir:
            check_state_file(os.fspath(checkpoint_dir))
        # A subclass may make more variables here.
        if type(scaffold).finalize is tf.train.Scaffold.finalize:
            _add_ready_ops(scaffold, tf.get_default_graph())
        return type(scaffold).finalize(scaffold)

    scaffold.finalize = finalize
    return scaffold


def _add_ready_ops(scaffold: Any, graph: Any) -> None:
    """Put the ops that tell whether the variables have values where the scaffold looks before it makes its own."""
    keys = tf.GraphKeys
    if graph.finalized or graph.get_collection(keys.RESOURCES) or graph.get_collection(keys.LOCAL_RESOURCES):
        # The scaffold's own ops tell about resources, too.
        return
    global_variables = tf.global_variables()
    for given, key, variables in (
        (scaffold.ready_for_local_init_op, keys.READY_FOR_LOCAL_INIT_OP, global_variables),
        (scaffold.ready_op, keys.READY_OP, global_variables + tf.local_variables()),
    ):
        if given is None and variables and not graph.get_collection(key):
            graph.add_to_collection(key, report_uninitialized(graph, variables))
