"""Stands in for `tensorflow.python.distribute.estimator_training`, which left TensorFlow with release 2.16.

The package asks it how a `RunConfig` distributes the training. It provides distribution over the devices of this
process (`train_distribute=tf.distribute.MirroredStrategy()`), and over a cluster with parameter servers (TF_CONFIG
without a strategy). The coordinator for a strategy across a cluster is removed.
"""

from __future__ import annotations

import os
from typing import Any

from staging_tf1.errors import RemovedNameError


def init_run_config(config: Any, tf_config: dict[str, Any]) -> None:
    """Complete a new `RunConfig` from the contents of TF_CONFIG.

    Raises RemovedNameError for a strategy across a cluster.
    """
    asked = config._experimental_distribute
    if asked is not None:
        for name in ("train_distribute", "eval_distribute"):
            _take_over(config, asked, name)
        if asked.remote_cluster:
            _refuse("experimental_distribute.remote_cluster")
    jobs = tf_config.get("cluster", {})
    if config._train_distribute and jobs and "master" not in jobs:
        _refuse(f"train_distribute={type(config._train_distribute).__name__} in the cluster of TF_CONFIG")
    config._distribute_coordinator_mode = None
    config._init_distributed_setting_from_environment_var(tf_config)
    config._maybe_overwrite_session_config_for_distributed_training()


def should_run_distribute_coordinator(config: Any) -> bool:
    """Whether the coordinator runs the training; never."""
    return False


def _take_over(config: Any, asked: Any, name: str) -> None:
    """Set a strategy of the `RunConfig` to that of `experimental_distribute`, if there is one."""
    strategy = getattr(asked, name)
    if not strategy:
        return
    if getattr(config, f"_{name}"):
        raise ValueError(f"RunConfig got {name} twice: by itself and in experimental_distribute. Drop one of them.")
    setattr(config, f"_{name}", strategy)


def _refuse(what: str) -> None:
    cure = " without TF_CONFIG" if os.environ.get("TF_CONFIG") else ""
    raise RemovedNameError(
        f"tf.estimator.RunConfig got {what}. The coordinator for strategies across a cluster was removed in TensorFlow "
        f"2.16. Drop the strategy, so that TF_CONFIG describes parameter servers and workers, or train on one machine"
        f"{cure}."
    )
