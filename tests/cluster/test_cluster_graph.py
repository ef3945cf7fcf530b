"""A graph that does not suit its cluster is refused by name, instead of a worker that waits in vain."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import nullcontext
from typing import Any

import numpy as np
import pytest
import tensorflow.compat.v1 as tf
from clusters import free_addresses

import staging_tf1 as staging
from staging_tf1.errors import ClusterError, StagingWarning
from staging_tf1.lifecycle.cluster_session import check_model

# What these tests refuse is refused before a connection is made, and nobody answers.
SOON = 0.1


def source() -> Any:
    return staging.sources.ArraySource(np.arange(20), batch_size=5)


@pytest.fixture(params=[0, 1], ids=["the chief", "a worker"])
def cluster(request: pytest.FixtureRequest) -> Iterator[staging.Cluster]:
    server, *workers = free_addresses(3)
    with tf.Graph().as_default():
        yield staging.Cluster({"ps": [server], "worker": workers}, "worker", request.param, start_timeout_secs=SOON)


def test_a_pipeline_without_the_cluster(cluster: staging.Cluster) -> None:
    with cluster.device_scope():
        staging.staged(source(), name="train")
    with pytest.raises(ClusterError, match="'train' .* without cluster=, so each worker would read all .*share='own'"):
        staging.StagingSession(cluster=cluster)


def test_a_runner_without_the_cluster(cluster: staging.Cluster) -> None:
    with cluster.device_scope():
        staging.CustomRunner(source(), capacity=4)
    with pytest.raises(ClusterError, match="without cluster=, so each worker would read all of its input"):
        staging.StagingSession(cluster=cluster)


def test_a_pipeline_of_another_cluster_object(cluster: staging.Cluster) -> None:
    with cluster.device_scope():
        staging.staged(
            source(), name="train", cluster=staging.Cluster(cluster.layout.addresses(), "worker", cluster.index)
        )
    with pytest.raises(ClusterError, match="'train' .* belongs to another Cluster object than the session"):
        staging.StagingSession(cluster=cluster)


def test_gradients_in_step_without_workers_in_step(cluster: staging.Cluster) -> None:
    with cluster.device_scope():
        x = tf.cast(staging.staged(source(), cluster=cluster), tf.float32)
        loss = tf.reduce_mean(tf.get_variable("w", []) * x)
        optimizer = tf.train.SyncReplicasOptimizer(tf.train.GradientDescentOptimizer(0.1), 2)
        optimizer.minimize(loss, tf.train.get_or_create_global_step())
    with pytest.warns(StagingWarning, match=r"SyncReplicasOptimizer .* not in step: .* Cluster\(sync=True\), or start"):
        with pytest.raises(ClusterError):  # nobody answers
            staging.StagingSession(cluster=cluster, hooks=[optimizer.make_session_run_hook(cluster.is_chief)])


@pytest.mark.parametrize("number", [1, 7])
def test_variables_outside_the_device_scope(cluster: staging.Cluster, number: int) -> None:
    for index in range(number):
        tf.get_variable(f"weight_{index}", [])
    with pytest.raises(ClusterError, match="its own variables 'weight_0'.*cluster.device_scope") as raised:
        staging.StagingSession(cluster=cluster)
    assert ("and 2 more" in str(raised.value)) == (number == 7)


def test_a_session_without_the_cluster(cluster: staging.Cluster) -> None:
    with cluster.device_scope():
        staging.staged(source(), name="train", cluster=cluster)
    with pytest.raises(ClusterError, match=r"'train' .* but the session got no cluster=. Pass StagingSession\(cluster"):
        staging.StagingSession()


@pytest.mark.parametrize("scope", ["cluster", "none"])
def test_what_is_the_workers_own(cluster: staging.Cluster, scope: str) -> None:
    with cluster.device_scope() if scope == "cluster" else nullcontext():
        staging.staged(tf.constant([1, 2]), name="tensors")
        tf.get_variable("seen", [], collections=[tf.GraphKeys.LOCAL_VARIABLES])
    # The graph is right, so the next thing that fails is the connection.
    with pytest.raises(ClusterError, match="ps 0 at .* does not answer"):
        staging.StagingSession(cluster=cluster)


def test_a_model_that_a_parameter_server_has_lost(cluster: staging.Cluster) -> None:
    tf.get_variable("weight", [])
    scaffold = tf.train.Scaffold().finalize()
    lost = "waits for the other workers, but a parameter server has restarted and lost the model. Start worker 0 again"
    with tf.Session() as session:
        with pytest.raises(ClusterError, match=lost):
            check_model(cluster, session, scaffold)
        session.run(scaffold.init_op)
        check_model(cluster, session, scaffold)


def test_a_model_on_a_parameter_server_that_does_not_answer(cluster: staging.Cluster) -> None:
    scaffold = tf.train.Scaffold(ready_op=tf.strings.to_number("no answer"))
    with tf.Session() as session, pytest.raises(ClusterError, match="has restarted and lost the model") as raised:
        check_model(cluster, session, scaffold)
    assert isinstance(raised.value.__cause__, tf.errors.OpError)
