"""The queue of sync tokens with which `tf.train.SyncReplicasOptimizer` keeps the workers of a cluster in step.

A worker's step waits there until all gradients of the round have been applied. The queue is on a parameter server and
has a name that all workers share, so it outlives their sessions.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from staging_tf1._tf import tf
from staging_tf1.graph.state import state_of

# What collects the gradients of a round, with the op that counts them.
_COUNTS = {
    "ConditionalAccumulator": tf.raw_ops.AccumulatorNumAccumulated,
    "SparseConditionalAccumulator": tf.raw_ops.AccumulatorNumAccumulated,
    "ResourceConditionalAccumulator": tf.raw_ops.ResourceAccumulatorNumAccumulated,
}
_SHARED_NAME = b"sync_token_q"
_LOCAL_STEP = "sync_rep_local_step"
# What a step sends its gradients with.
_SENDS = frozenset({"AccumulatorApplyGradient", "SparseAccumulatorApplyGradient", "ResourceAccumulatorApplyGradient"})


@dataclass(frozen=True)
class SyncTokens:
    """Ops on the queue."""

    # The queue's name in the graph.
    name: str
    # Lets one waiting step return.
    wake: Any
    # Takes a token, if there is one.
    take: Any
    # How many there are.
    size: Any
    # How many gradients of a round that is not complete have been sent; None if no accumulator takes them.
    pending: Any
    # Removes the sync tokens that an earlier run has left.
    drain: Any
    # How many rounds have been applied: the global step. None if there is none.
    applied: Any
    # Sets this worker's local step to that, and returns it. A gradient with an older local step is dropped.
    begin: Any


def is_sync_token_queue(op: Any) -> bool:
    """Whether `op` is the handle of the sync tokens' queue."""
    return bool(op.type == "FIFOQueueV2" and op.get_attr("shared_name") == _SHARED_NAME)


def sends_gradients(ops: Iterable[Any]) -> bool:
    """Whether a run of `ops` adds to a round of `SyncReplicasOptimizer`."""
    return any(op.type in _SENDS for op in ops)


def sync_tokens_of(graph: Any) -> SyncTokens | None:
    """Return the ops on the queue of `graph`, made while the graph is open; None if no optimizer has made one."""
    ops = state_of(graph).ops
    if ops.sync_tokens is None and not graph.finalized:
        queue = next((op for op in graph.get_operations() if is_sync_token_queue(op)), None)
        ops.sync_tokens = None if queue is None else _make(graph, queue)
    return ops.sync_tokens


def _make(graph: Any, queue: Any) -> SyncTokens:
    step = tf.train.get_global_step(graph)
    handle, (dtype,) = queue.outputs[0], [tf.as_dtype(kind) for kind in queue.get_attr("component_types")]
    with graph.as_default(), tf.control_dependencies(None), tf.name_scope("staging_sync/"), tf.device(queue.device):
        # A sync token holds the global step. With 0, the gradient that follows is dropped as stale.
        token, size = tf.zeros([], dtype), tf.raw_ops.QueueSizeV2(handle=handle)
        return SyncTokens(
            name=queue.name,
            wake=tf.raw_ops.QueueEnqueueV2(handle=handle, components=[token]),
            take=tf.raw_ops.QueueDequeueManyV2(handle=handle, n=tf.minimum(size, 1), component_types=[dtype])[0].op,
            size=size,
            pending=_pending(graph),
            drain=tf.raw_ops.QueueDequeueManyV2(handle=handle, n=size, component_types=[dtype])[0].op,
            applied=None if step is None else graph.as_graph_element(step),
            begin=None if step is None else _begin(graph, step),
        )


def _begin(graph: Any, step: Any) -> Any:
    variables = graph.get_collection(tf.GraphKeys.LOCAL_VARIABLES)
    local = next(variable for variable in variables if variable.op.name.rpartition("/")[2].startswith(_LOCAL_STEP))
    with tf.device(None), graph.colocate_with(local.op, ignore_existing=True):
        return graph.as_graph_element(tf.assign(local, tf.cast(step, local.dtype.base_dtype)))


def _pending(graph: Any) -> Any:
    # A step sends a gradient to each of them.
    handle = next((op.outputs[0] for op in graph.get_operations() if op.type in _COUNTS), None)
    if handle is None:
        return None
    with tf.device(handle.device):
        return _COUNTS[handle.op.type](handle=handle)
