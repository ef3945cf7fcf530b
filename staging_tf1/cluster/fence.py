"""`Fence`: lets the steps of a worker count only while the worker is part of the run.

The chief removes a worker's fence key when it initializes or restores the model. A step that began before then would
count batches that the restored model has never seen.
"""

from __future__ import annotations

from typing import Any

from staging_tf1._tf import own_variable, run_unwrapped, tf
from staging_tf1.cluster.cluster import Cluster
from staging_tf1.cluster.ledger import find_op, text_of
from staging_tf1.errors import ClusterError
from staging_tf1.graph.dependencies import copies_after
from staging_tf1.graph.state import state_of

_REFUSED = "is no longer part of this run"


class Fence:
    """Compares this worker's fence key with that in the ledger, on the server that holds the ledger."""

    def __init__(self, cluster: Cluster) -> None:
        self.cluster = cluster
        self._entry = f"fence/{cluster.member_task}"
        with tf.control_dependencies(None), tf.device(None), tf.device(f"{cluster.own_device}/device:CPU:0"):
            self._fence_key = own_variable("", trainable=False, collections=[], name="staging_fence")

    def check(self) -> Any:
        """Return an op that fails unless the fence key is the present one."""
        # Only the key crosses the network. Its arrival also says that what it waits for has happened: each further
        # tensor or control edge would cost the server as much again.
        fence_key = self._fence_key.read_value()
        with tf.control_dependencies(None), tf.device(None), tf.device(self.cluster.shared_device):
            fence_key = copies_after([], [fence_key])[0]
            with tf.control_dependencies([fence_key]):
                present = find_op(self._entry)
            return tf.raw_ops.Assert(
                condition=tf.equal(present, fence_key),
                data=[tf.constant(f"{self.cluster.member_task} {_REFUSED}")],
                name="fence",
            )

    def take(self, session: Any) -> None:
        """Let steps of `session` count, and those of no other process for this task."""
        fence_key = text_of(self._entry, self.cluster.member.take_fence())
        assign = self._fence_key.initializer
        # The second input of an assignment is its value.
        run_unwrapped(session, assign, {assign.inputs[1]: fence_key})


def fence_of(cluster: Cluster, graph: Any) -> Fence:
    """Return the fence of `graph`, which must be open for the first call."""
    ops = state_of(graph).ops
    if ops.fence is None:
        ops.fence = Fence(cluster)
    return ops.fence


def refused(error: BaseException) -> bool:
    """Whether a step failed at the fence."""
    return isinstance(error, tf.errors.InvalidArgumentError) and _REFUSED in str(error)


def after_refusal(cluster: Cluster) -> Exception:
    """Return what a step that failed at the fence raises.

    A MonitoredSession recovers from an AbortedError: it waits for the chief, and begins again at the new position.
    """
    try:
        rival = cluster.member.rival()
    except tf.errors.OpError:
        # The server has restarted, and the chief will restore the model.
        rival = None
    if rival is not None:
        return ClusterError(
            f"Another process runs {cluster.member_task}: {rival}. Each task is one process; this one stops."
        )
    message = (
        f"{cluster.member_task} {_REFUSED}: the chief has initialized or restored the model again, or this worker was "
        f"silent for too long, and the others have been given its batches."
    )
    aborted: Exception = tf.errors.AbortedError(None, None, message)
    return aborted
