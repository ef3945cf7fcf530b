"""What a `StagingSession` gives to MonitoredTrainingSession: its arguments, checked, and a scaffold.

TensorFlow checks some of them only after it has added summaries and finalized the graph, or not at all.
"""

from __future__ import annotations

import inspect
import os
from collections.abc import Iterable, Mapping
from typing import Any

from staging_tf1._tf import tf
from staging_tf1.arguments import INT64_MAX, close_to, flag, folder, instance, listed, refuse, seconds, shown, whole
from staging_tf1.cluster.cluster import Cluster
from staging_tf1.errors import ClusterError
from staging_tf1.feed.checkpoint import check_state_file
from staging_tf1.graph.uninitialized import report_uninitialized

_CALLER = "StagingSession"
_HOOK_METHODS = ("begin", "after_create_session", "before_run", "after_run", "end")
# StagingSession has its own versions of these.
_OWN = ("checkpoint_dir", "hooks", "config", "stop_grace_period_secs")


def checked_hooks(argument: str, hooks: Any) -> list[Any]:
    """Return a list of hooks; an empty one for None.

    Raises:
      TypeError: `hooks` is not an iterable of hooks.
    """
    if hooks is None:
        return []
    wanted = "a list of tf.train.SessionRunHooks"
    checked = listed(_CALLER, argument, hooks, wanted)
    for hook in checked:
        if isinstance(hook, type) or not all(hasattr(hook, method) for method in _HOOK_METHODS):
            raise TypeError(f"{_CALLER} got {shown(hook)} in {argument}, expected {wanted}.")
    return checked


def check_run(feed_dict: Any, options: Any, run_metadata: Any) -> None:
    """Check the other arguments of `run`. TensorFlow treats 0 as None, and fails unclearly for other values.

    Raises:
      TypeError: an argument has the wrong type.
    """
    caller = f"{_CALLER}.run()"
    if feed_dict is not None and not isinstance(feed_dict, Mapping):
        refuse(caller, "feed_dict", feed_dict, "a dict from tensors to their values")
    if options is not None and not isinstance(options, tf.RunOptions):
        refuse(caller, "options", options, "a tf.RunOptions")
    if run_metadata is not None and not isinstance(run_metadata, tf.RunMetadata):
        refuse(caller, "run_metadata", run_metadata, "a tf.RunMetadata")


def checked_feeds(feed_list: Any) -> list[Any]:
    """Return the tensors to feed to a callable, or their names. TensorFlow checks them only when it is called.

    Raises:
      TypeError: `feed_list` is not an iterable of tensors or names.
    """
    caller, wanted = f"{_CALLER}.make_callable()", "a list of tensors"
    checked = listed(caller, "feed_list", feed_list, wanted)
    if not all(isinstance(element, str) or tf.is_tensor(element) for element in checked):
        refuse(caller, "feed_list", feed_list, wanted)
    return checked


def check_monitored(given: Mapping[str, Any], own: Iterable[str] = ()) -> None:
    """Check the other arguments of `tf.train.MonitoredTrainingSession`. `own` are those that may have been meant.

    Raises:
      TypeError, ValueError: the name of an argument is unknown, or its value is invalid.
    """
    parameters = inspect.signature(tf.train.MonitoredTrainingSession).parameters
    known = [name for name in parameters if name not in _OWN]
    for name, value in given.items():
        if name not in known:
            raise TypeError(
                f"{_CALLER} got unknown argument {name!r}.{close_to(name, [*own, *known])} It passes these to "
                f"tf.train.MonitoredTrainingSession: {', '.join(known)}."
            )
        # Some defaults are sentinel objects.
        if value is not parameters[name].default:
            _check(name, value)


def check_training_cluster(caller: str, cluster: Any, given: Mapping[str, Any]) -> Cluster | None:
    """Return the cluster to train in; None for none, and for a cluster of one.

    Raises:
      TypeError: it is no `Cluster`.
      ClusterError: this task does not train.
      ValueError: an argument says otherwise than the cluster.
    """
    if cluster is None:
        return None
    own: Cluster = instance(caller, "cluster", cluster, Cluster, "a staging.Cluster")
    if own.job in ("ps", "evaluator"):
        raise ClusterError(
            f"{caller} was created on {own.member_task}, which does not train. A parameter server calls "
            f"cluster.serves(); an evaluator uses a session without cluster=."
        )
    for name in ("master", "is_chief"):
        if name in given:
            raise ValueError(f"{caller} got both cluster= and {name}={shown(given[name])}. Drop {name}.")
    return own if own.is_distributed else None


def _check(name: str, value: Any) -> None:
    if name == "master":
        instance(_CALLER, name, value, str, "the address of a server, as a string")
    elif name in ("is_chief", "save_graph_def"):
        flag(_CALLER, name, value)
    elif name == "chief_only_hooks":
        checked_hooks(name, value)
    elif name == "scaffold":
        instance(_CALLER, name, value, tf.train.Scaffold | None, "a tf.train.Scaffold")
    elif name == "summary_dir":
        if value is not None:
            folder(_CALLER, name, value, tf.io.gfile.get_registered_schemes())
    elif name == "max_wait_secs" or (value is not None and name.endswith("_secs")):
        seconds(_CALLER, name, value)
    elif value is not None and name.endswith("_steps"):
        # For TensorFlow, 0 and less mean "never".
        whole(_CALLER, name, value, -INT64_MAX - 1, INT64_MAX, "steps")


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
