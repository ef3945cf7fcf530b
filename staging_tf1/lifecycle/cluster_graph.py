"""What the graph of a worker must be like, so that the workers of a cluster train one model on one input.

Without these checks such a worker would wait, until a time limit of TensorFlow's that says nothing of the cause.
"""

from __future__ import annotations

import hashlib
from typing import Any

from staging_tf1._tf import run_unwrapped, tf
from staging_tf1.cluster.cluster import Cluster
from staging_tf1.errors import ClusterError, StagingWarning, warn
from staging_tf1.feed.pipeline import pipelines_of
from staging_tf1.graph.sync_tokens import is_sync_token_queue

_MOST_NAMES = 5


def check_graph(cluster: Cluster, graph: Any) -> None:
    """Check that the pipelines of `graph` belong to `cluster`, and that its variables are those of all workers.

    Warns if the optimizer needs workers in step, and they are not.

    Raises:
      ClusterError: not so.
    """
    for pipeline in pipelines_of(graph):
        if pipeline.cluster is not None and pipeline.cluster is not cluster:
            raise ClusterError(
                f"{pipeline} belongs to another Cluster object than the session. Make one Cluster, and pass it to both."
            )
        # The graph computes tensors in each worker, which nobody can divide.
        reads = pipeline.position is not None or any(producer.source is not None for producer in pipeline.producers)
        if pipeline.cluster is None and reads:
            raise ClusterError(
                f"{pipeline} was made without cluster=, so each worker would read all of its input. Pass "
                f"cluster=cluster. If the input is this worker's own, also pass share='own'."
            )
    if not cluster.sync and any(map(is_sync_token_queue, graph.get_operations())):
        warn(
            "tf.train.SyncReplicasOptimizer is used in a cluster that is not in step: one worker can send two "
            "gradients of a round, and then the last step of another waits for ever. Make it Cluster(sync=True), or "
            "start it with `staging-tf1 launch --sync`.",
            StagingWarning,
        )
    variables = graph.get_collection(tf.GraphKeys.GLOBAL_VARIABLES)
    own = [variable.op.name for variable in variables if not _is_shared(cluster, variable)]
    if own:
        raise ClusterError(
            f"Each worker would have its own {_listed(own)}, which only the chief initializes. Build the model in "
            f"`with cluster.device_scope():`, or make them local variables."
        )


def _is_shared(cluster: Cluster, variable: Any) -> bool:
    spec = tf.DeviceSpec.from_string(variable.device or "")
    if spec.job is None:
        return False
    # The chief's own variables are the same ones for all, if a worker's device filters let it reach them.
    return cluster.is_chief or (spec.job, spec.task) != (cluster.job, cluster.index)


def check_without_cluster(graph: Any) -> None:
    """Check that no pipeline of `graph` belongs to a cluster.

    Raises:
      ClusterError: one does.
    """
    for pipeline in pipelines_of(graph):
        if pipeline.cluster is not None:
            raise ClusterError(
                f"{pipeline} belongs to a cluster, but the session got no cluster=. Pass "
                f"StagingSession(cluster=cluster)."
            )


def digest_of_variables(graph: Any) -> str:
    """Return a short text that is equal in two processes if their graphs have the same global variables."""
    names = sorted(variable.op.name for variable in graph.get_collection(tf.GraphKeys.GLOBAL_VARIABLES))
    return hashlib.blake2b("\n".join(names).encode(), digest_size=8).hexdigest()


def check_has_values(cluster: Cluster, session: Any, ready_op: Any) -> None:
    """Check that the chief has initialized all variables of this worker's graph.

    Raises:
      ClusterError: it lacks some of them.
    """
    missing = [name.decode() for name in run_unwrapped(session, ready_op).tolist()]
    if missing:
        raise ClusterError(
            f"{cluster.member_task} has {_listed(missing)}, and the graph of the chief has not. Build the same model "
            f"and the same pipelines in all workers."
        )


def _listed(names: list[str]) -> str:
    more = f", and {len(names) - _MOST_NAMES} more" if len(names) > _MOST_NAMES else ""
    return f"variables {', '.join(map(repr, names[:_MOST_NAMES]))}{more}"
