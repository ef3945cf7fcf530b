"""The MonitoredSession of a worker in a cluster, and what its graph must be like.

`tf.train.MonitoredTrainingSession` would do, but for two things. A worker looks only every 30 seconds whether the chief
has initialized the variables, and a chief that restarts takes the others' model back to the last checkpoint. Without
the checks of the graph, a worker would wait until a time limit of TensorFlow's that says nothing of the cause.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from typing import Any

from absl import logging

from staging_tf1._tf import run_unwrapped, tf
from staging_tf1.cluster.cluster import Cluster
from staging_tf1.cluster.member import model_lost
from staging_tf1.cluster.snapshot import copy_before_saving
from staging_tf1.errors import ClusterError, StagingWarning, warn
from staging_tf1.feed.feeding import feeding_of
from staging_tf1.feed.in_cluster import gate_runs
from staging_tf1.feed.pipeline import pipelines_of
from staging_tf1.graph.sync_tokens import is_sync_token_queue

# How often TensorFlow looks whether the variables are initialized.
_POLL_SECS = 0.2
# How long a parameter server that has restarted may be without variables before a worker blames its own graph.
_GRAPH_SECS = 20.0
# How many variables a message names.
_MOST_NAMES = 5
_BOUNDED = tf.RunOptions(timeout_in_ms=5000)


def cluster_session(
    cluster: Cluster,
    *,
    checkpoint_dir: str | None,
    hooks: Sequence[Any],
    config: Any,
    scaffold: Any,
    stop_grace_period_secs: float,
    monitored: Mapping[str, Any],
) -> Any:
    """Return a `tf.train.MonitoredSession` for this task. The chief gets the hooks of a MonitoredTrainingSession.

    Args:
      monitored: the other arguments of `tf.train.MonitoredTrainingSession`.

    Raises:
      ClusterError: the graph is not what a cluster needs.
    """
    check_graph(cluster, tf.get_default_graph())
    copy_before_saving(cluster, tf.get_default_graph())
    creator = ClusterSessionCreator(cluster, scaffold, cluster.session_config(config), checkpoint_dir)
    if cluster.is_chief:
        own = _chief_hooks(checkpoint_dir, scaffold, monitored)
        if own and tf.train.get_global_step() is None:
            with cluster.member.telling_failures():
                raise ClusterError(
                    f"{cluster.member_task} saves checkpoints and summaries by the global step, and the graph has "
                    f"none. Call tf.train.get_or_create_global_step() in `with cluster.device_scope():`, and pass it "
                    f"to minimize(loss, global_step=...)."
                )
        hooks = [*(monitored.get("chief_only_hooks") or ()), *own, *hooks]
    return tf.train.MonitoredSession(creator, hooks=hooks, stop_grace_period_secs=stop_grace_period_secs)


class ClusterSessionCreator(tf.train.SessionCreator):  # type: ignore[misc]
    """Creates the session of one task, at the start and after each failure of a parameter server."""

    def __init__(self, cluster: Cluster, scaffold: Any, config: Any, checkpoint_dir: str | None) -> None:
        self._cluster, self._scaffold = cluster, scaffold
        self._config, self._checkpoint_dir = config, checkpoint_dir

    def create_session(self) -> Any:
        cluster, scaffold = self._cluster, self._scaffold
        scaffold.finalize()
        target = cluster.target
        cluster.member.await_servers()
        manager = tf.train.SessionManager(
            local_init_op=scaffold.local_init_op,
            ready_op=scaffold.ready_op,
            ready_for_local_init_op=scaffold.ready_for_local_init_op,
            graph=tf.get_default_graph(),
            recovery_wait_secs=_POLL_SECS,
        )
        session = (self._create_for_chief if cluster.is_chief else self._create_for_worker)(manager, target)
        gate_runs(feeding_of(session), cluster)
        return session

    def _create_for_worker(self, manager: Any, target: str) -> Any:
        cluster, digest = self._cluster, digest_of_variables(tf.get_default_graph())
        cluster.member.await_run({}, cluster.start_timeout_secs)
        secs = cluster.start_timeout_secs
        if cluster.member.variables not in (None, digest):
            # The chief may have more variables than the others; fewer would make them wait in vain.
            secs = min(secs, _GRAPH_SECS)
        try:
            return manager.wait_for_session(target, config=self._config, max_wait_secs=secs)
        except tf.errors.DeadlineExceededError:
            with tf.Session(target, config=self._config) as session:
                check_has_values(cluster, session, self._scaffold.ready_op)
            raise

    def _create_for_chief(self, manager: Any, target: str) -> Any:
        member, scaffold = self._cluster.member, self._scaffold
        if member.continues_run():
            try:
                session = manager.wait_for_session(target, config=self._config, max_wait_secs=_POLL_SECS)
            except tf.errors.DeadlineExceededError:
                # A parameter server has lost its variables.
                pass
            else:
                logging.info("%s continues the run that is under way.", self._cluster.member_task)
                feeding_of(session).continues_run = True
                return session
        member.begin_run(digest_of_variables(tf.get_default_graph()))
        with member.telling_failures():
            session = manager.prepare_session(
                target,
                saver=scaffold.saver,
                checkpoint_dir=self._checkpoint_dir,
                config=self._config,
                init_op=scaffold.init_op,
                init_feed_dict=scaffold.init_feed_dict,
                init_fn=scaffold.init_fn,
            )
        member.mark_initialized()
        feeding_of(session).continues_run = False
        return session


def check_model(cluster: Cluster, session: Any, scaffold: Any) -> None:
    """Check that every parameter server still has its variables.

    Raises:
      ClusterError: one has lost them.
    """
    error = None
    try:
        if not len(run_unwrapped(session, scaffold.ready_op, options=_BOUNDED)):
            return
    except tf.errors.DeadlineExceededError:
        # A parameter server stands still. If it goes on, it has its variables.
        return
    except tf.errors.OpError as raised:
        error = raised
    raise ClusterError(model_lost(cluster.layout.chief, "a parameter server has restarted")) from error


def _chief_hooks(checkpoint_dir: str | None, scaffold: Any, monitored: Mapping[str, Any]) -> list[Any]:
    """Return the hooks that `tf.train.MonitoredTrainingSession` adds on the chief, with its defaults."""
    given = _given(monitored)
    summary_dir = given.get("summary_dir") or checkpoint_dir
    hooks: list[Any] = []
    steps, secs = _steps_or_secs(given, "save_summaries", steps=100, secs=None)
    if summary_dir:
        every = given.get("log_step_count_steps", 100)
        if every and every > 0:
            hooks.append(tf.train.StepCounterHook(output_dir=summary_dir, every_n_steps=every))
        if steps or secs:
            hooks.append(
                tf.train.SummarySaverHook(scaffold=scaffold, save_steps=steps, save_secs=secs, output_dir=summary_dir)
            )
    steps, secs = checkpoint_interval(monitored)
    if checkpoint_dir and (steps or secs):
        hooks.append(tf.train.CheckpointSaverHook(checkpoint_dir, save_steps=steps, save_secs=secs, scaffold=scaffold))
    return hooks


def checkpoint_interval(monitored: Mapping[str, Any]) -> tuple[int | None, float | None]:
    """Return how often a session with these arguments saves, in steps and in seconds; None for both is never."""
    return _steps_or_secs(_given(monitored), "save_checkpoint", steps=None, secs=600)


def _given(monitored: Mapping[str, Any]) -> dict[str, Any]:
    # The defaults of some arguments are sentinel objects.
    return {name: value for name, value in monitored.items() if name in _CHIEF_ARGUMENTS and type(value) is not object}


_CHIEF_ARGUMENTS = frozenset(
    """save_checkpoint_secs save_checkpoint_steps save_summaries_steps save_summaries_secs log_step_count_steps
    summary_dir""".split()
)


def _steps_or_secs(
    given: Mapping[str, Any], name: str, *, steps: int | None, secs: int | None
) -> tuple[int | None, float | None]:
    """Return how often to save. An interval of 0 and less is none."""
    if f"{name}_steps" not in given and f"{name}_secs" not in given:
        return steps, secs
    steps, secs = given.get(f"{name}_steps"), given.get(f"{name}_secs")
    return (steps if steps and steps > 0 else None), (secs if secs and secs > 0 else None)


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
