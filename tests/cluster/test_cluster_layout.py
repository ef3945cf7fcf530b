"""How a cluster is described: TF_CONFIG, explicit jobs, resolvers; and what is refused, with which words."""

from __future__ import annotations

import json
import os
import socket
from contextlib import ExitStack
from typing import Any

import numpy as np
import pytest
import tensorflow.compat.v1 as tf

import staging_tf1 as staging
from staging_tf1.cluster.layout import Layout, Task
from staging_tf1.cluster.reach import cut_off, is_listening
from staging_tf1.errors import ClusterError

JOBS = {"ps": ["a:1"], "chief": ["b:1"], "worker": ["c:1", "d:1"]}


def config(jobs: Any = JOBS, **task: Any) -> str:
    return json.dumps({"cluster": jobs, "task": task})


@pytest.mark.parametrize("text", [None, "", "  ", "{}", '{"cluster": {}}', '{"cluster": {}, "task": {}}'])
def test_without_a_cluster_it_is_a_cluster_of_one(text: str | None) -> None:
    layout = Layout.from_tf_config(text)
    assert (layout.is_distributed, layout.is_chief, layout.num_workers, layout.worker_index) == (False, True, 1, 0)


WORKERS = {"ps": ["a:1"], "worker": ["b:1", "c:1"]}


@pytest.mark.parametrize(
    ("jobs", "task", "is_chief", "worker_index", "workers"),
    [
        (JOBS, ("chief", 0), True, 0, 3),
        (JOBS, ("worker", 0), False, 1, 3),
        (JOBS, ("worker", 1), False, 2, 3),
        (JOBS, ("ps", 0), False, None, 3),
        # Worker 0 is the chief if there is no other, and a master is one.
        (WORKERS, ("worker", 0), True, 0, 2),
        (WORKERS, ("worker", 1), False, 1, 2),
        ({"ps": ["a:1"], "master": ["b:1"]}, ("master", 0), True, 0, 1),
        # Without a parameter server, one worker is a cluster of one.
        ({"worker": ["a:1"]}, ("worker", 0), True, 0, 1),
    ],
)
def test_who_am_i(jobs: Any, task: tuple[str, int], is_chief: bool, worker_index: int | None, workers: int) -> None:
    layout = Layout.from_tf_config(config(jobs, type=task[0], index=task[1]))
    assert (layout.is_chief, layout.worker_index, layout.num_workers) == (is_chief, worker_index, workers)
    assert layout.is_distributed is ("ps" in jobs) and layout.task == (Task(*task) if "ps" in jobs else None)


def test_an_evaluator_is_no_part_of_the_cluster() -> None:
    cluster = staging.Cluster(JOBS, "evaluator", 0)
    assert (cluster.is_distributed, cluster.is_chief, cluster.num_workers, cluster.target) == (False, False, 1, "")


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("not json", "TF_CONFIG is not valid JSON"),
        ("[1]", "TF_CONFIG is [1], expected an object"),
        (json.dumps({"task": {"type": "worker", "index": 0}}), 'TF_CONFIG has no "cluster", only a task'),
        (json.dumps({"cluster": JOBS}), 'TF_CONFIG has no "task"'),
        (json.dumps({"cluster": JOBS, "task": 3}), 'TF_CONFIG["task"] is 3, expected an object'),
        (json.dumps({"cluster": JOBS, "task": {"index": 0}}), "expected an object with"),
        (
            config(type="worker", index=2),
            "task index 2 is out of range: job 'worker' has 2 task(s), 0 (c:1)",
        ),
        (config(type="worker", index=-1), "task index -1 is out of range"),
        (config(type="worker", index="x"), "got task index 'x', expected a whole number"),
        (config(type="worker", index=0.5), "got task index 0.5, expected a whole number"),
        (config(type="master", index=0), "this process is master 0, but the cluster has no job 'master'"),
        (
            config(type="trainer", index=0),
            "got task type 'trainer', expected one of chief, master, worker, ps",
        ),
        (config({"trainer": ["a:1"]}, type="worker", index=0), "unknown job 'trainer' in the cluster"),
        (config({"worker": "a:1"}, type="worker", index=0), "job 'worker' has 'a:1', expected a list of addresses"),
        (config({"worker": ["a"]}, type="worker", index=0), "worker 0 has address 'a', expected 'host:port'"),
        (config({"worker": ["a:99999"]}, type="worker", index=0), "worker 0 has address 'a:99999'"),
        (config({"worker": [7]}, type="worker", index=0), "worker 0 has address 7, expected 'host:port'"),
        (config({"ps": ["a:1"], "worker": ["a:1"]}, type="worker", index=0), "worker 0 and ps 0 have the same address"),
        (config({**JOBS, "master": ["x:1"]}, type="worker", index=0), "has 2 chiefs (chief 0, master 0), expected one"),
        (config({"ps": ["a:1"]}, type="ps", index=0), "no chief and no worker, so nothing would train"),
        (config({"worker": ["a:1", "b:1"]}, type="worker", index=0), "has 2 workers and no job 'ps'"),
        (config(3, type="worker", index=0), "got cluster 3, expected a dict"),
    ],
)
def test_what_is_refused(text: str, said: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TF_CONFIG", text)
    with pytest.raises(ClusterError) as caught:
        staging.Cluster.from_environment()
    assert said in str(caught.value)


def test_the_environment_and_a_resolver_say_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TF_CONFIG", config(type="worker", index=1))
    resolver = tf.distribute.cluster_resolver.TFConfigClusterResolver()
    found = [staging.Cluster.from_environment(), staging.Cluster.from_resolver(resolver)]
    found.append(staging.Cluster(tf.train.ClusterSpec(JOBS), "worker", 1))
    assert [(each.job, each.index, each.worker_index, each.layout.jobs) for each in found] == [
        ("worker", 1, 2, {job: dict(enumerate(addresses)) for job, addresses in JOBS.items()})
    ] * 3


def test_slurm_says_which_task_this_is(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in {
        "SLURM_PROCID": "2",
        "SLURM_STEP_NUM_TASKS": "3",
        "SLURM_STEP_NODELIST": "node[1-3]",
        "SLURM_STEP_TASKS_PER_NODE": "1(x3)",
    }.items():
        monkeypatch.setenv(name, value)
    resolver = tf.distribute.cluster_resolver.SlurmClusterResolver(
        jobs={"ps": 1, "worker": 2}, port_base=2222, gpus_per_node=1, gpus_per_task=1, auto_set_gpu=False
    )
    cluster = staging.Cluster.from_resolver(resolver)
    assert (cluster.job, cluster.index, cluster.is_chief) == ("worker", 1, False)
    assert cluster.layout.addresses() == {"ps": {0: "node1:2222"}, "worker": {0: "node2:2222", 1: "node3:2222"}}


def test_a_resolver_without_a_task_is_refused() -> None:
    resolver = tf.distribute.cluster_resolver.SimpleClusterResolver(tf.train.ClusterSpec(JOBS))
    with pytest.raises(ClusterError, match="got task type .*Set task_type and task_id of the resolver"):
        staging.Cluster.from_resolver(resolver)
    resolver.task_type, resolver.task_id = "worker", 1
    assert staging.Cluster.from_resolver(resolver).worker_index == 2


def test_other_wrong_arguments() -> None:
    with pytest.raises(ClusterError, match="got job_name='worker', but no jobs"):
        staging.Cluster(job_name="worker")
    with pytest.raises(TypeError, match="resolver=3, expected a tf.distribute.cluster_resolver"):
        staging.Cluster.from_resolver(3)
    with pytest.raises(ValueError, match="silence_secs=-1"):
        staging.Cluster(silence_secs=-1)


def test_sync_comes_from_the_launcher(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("TF_CONFIG", raising=False)
    assert not staging.Cluster.from_environment().sync
    monkeypatch.setenv("STAGING_TF1_SYNC", "1")
    assert staging.Cluster.from_environment().sync
    assert not staging.Cluster.from_environment(sync=False).sync
    monkeypatch.setenv("STAGING_TF1_SYNC", "false")
    assert staging.Cluster.from_environment(sync=True).sync
    with pytest.raises(ClusterError, match="^STAGING_TF1_SYNC is 'false', expected 1 for sync=True, or 0.$"):
        staging.Cluster.from_environment()


def test_a_cluster_of_one_changes_nothing() -> None:
    with tf.Graph().as_default(), staging.Cluster() as cluster:
        assert not cluster.serves() and cluster.target == ""
        with cluster.device_scope():
            x = staging.staged(staging.sources.ArraySource(np.arange(4), batch_size=2, epochs=1), cluster=cluster)
            variable = tf.get_variable("v", [])
        assert variable.device == ""
        assert [each.op.name for each in tf.global_variables()] == ["staged/position", "staged/fingerprint", "v"]
        assert cluster.session_config() == tf.ConfigProto()
        with staging.StagingSession(cluster=cluster) as sess:
            got = []
            while not sess.should_stop():
                got.append(sess.run(x).tolist())
        cluster.finish()
    assert got == [[0, 1], [2, 3]]


def test_what_cannot_be_shared_is_refused_with_a_cure() -> None:
    cluster = staging.Cluster(JOBS, "worker", 0)
    ps = staging.Cluster(JOBS, "ps", 0)
    source = staging.sources.ArraySource(np.arange(30), batch_size=2)
    with tf.Graph().as_default() as graph:
        dataset = tf.data.Dataset.range(3)
        before = graph.get_operations()
        with pytest.raises(ClusterError, match=r"staged\(\) got a GeneratorSource, which can only be read in order"):
            staging.staged(lambda: iter([np.arange(3)]), cluster=cluster)
        with pytest.raises(ClusterError, match=r"a tf.data.Dataset, which .* share='own'"):
            staging.staged(dataset, cluster=cluster)
        with pytest.raises(ClusterError, match="was called on ps 0, a parameter server"):
            staging.staged(source, cluster=ps)
        with pytest.raises(ClusterError, match="CustomRunner got a GeneratorSource"):
            staging.CustomRunner(lambda: iter([np.arange(3)]), cluster=cluster)
        with pytest.raises(ValueError, match="without a seed in a cluster: each worker, and each restart of one"):
            random = staging.sources.ArraySource(np.arange(30), batch_size=2, shuffle=True)
            staging.CustomRunner(random, queue="fifo", cluster=cluster)
        with pytest.raises(ValueError, match="expected a device of worker 0. Leave job and task out"):
            staging.staged(source, cluster=cluster, device="/job:worker/task:1/cpu:0")
        with pytest.raises(ValueError, match="share='all', expected"):
            staging.staged(source, cluster=cluster, share="all")
        with pytest.raises(TypeError, match="cluster=3, expected a staging.Cluster"):
            staging.staged(source, cluster=3)  # type: ignore[arg-type]
        with pytest.raises(ValueError, match="got 2 devices on 3 workers, but a source of only 5 record"):
            small = staging.sources.ArraySource(np.arange(5), batch_size=1)
            staging.staged(small, cluster=cluster, devices=["/cpu:0"] * 2)
        assert graph.get_operations() == before
    with pytest.raises(ClusterError, match="was created on ps 0, which does not train"):
        staging.StagingSession(cluster=ps)
    with pytest.raises(ValueError, match="got both cluster= and master='grpc"):
        staging.StagingSession(cluster=cluster, master="grpc://x:1")


def test_each_worker_builds_the_same_variables() -> None:
    names = []
    for job, index in (("chief", 0), ("worker", 0), ("worker", 1)):
        cluster = staging.Cluster(JOBS, job, index)
        with tf.Graph().as_default(), cluster.device_scope():
            staging.staged(
                staging.sources.ArraySource(np.arange(30), batch_size=2, seed=1, shuffle=True), cluster=cluster
            )
            names.append({each.op.name: (each.device, each.shape.as_list()) for each in tf.global_variables()})
    assert names[0] == names[1] == names[2]
    assert set(names[0]) == {"staged/position", "staged/fingerprint"}
    assert {device for device, _ in names[0].values()} == {"/job:ps/task:0/device:CPU:0"}


def test_only_the_connections_to_one_task_are_cut_off(monkeypatch: pytest.MonkeyPatch) -> None:
    with ExitStack() as stack:
        listening = [stack.enter_context(socket.create_server(("127.0.0.1", 0))) for _ in range(2)]
        first, second = (each.getsockname()[1] for each in listening)
        layout = Layout({"ps": {0: f"localhost:{first}", 1: "unknown.invalid:1"}, "worker": {0: "h:1"}}, None)

        def connected(family: int, *address: Any) -> socket.socket:
            made = stack.enter_context(socket.socket(family))
            made.settimeout(10)
            made.connect(address)
            return made

        cut = [connected(socket.AF_INET, "127.0.0.1", first), connected(socket.AF_INET6, "::ffff:127.0.0.1", first)]
        kept = connected(socket.AF_INET, "127.0.0.1", second)
        before = os.listdir("/proc/self/fd")
        cut_off(layout, Task("ps", 0))
        cut_off(layout, Task("ps", 1))
        assert len(os.listdir("/proc/self/fd")) == len(before)
        assert [each.recv(1) for each in cut] == [b"", b""]
        # Those to its old address, too: the name leads to another machine now.
        assert is_listening(layout, Task("ps", 0))
        old = connected(socket.AF_INET, "127.0.0.1", first)
        moved = [(socket.AF_INET, socket.SOCK_STREAM, 6, "", ("192.0.2.1", first))]
        monkeypatch.setattr(socket, "getaddrinfo", lambda *args, **kwargs: moved)
        cut_off(layout, Task("ps", 0))
        assert old.recv(1) == b""
        kept.sendall(b"x")
        assert stack.enter_context(listening[1].accept()[0]).recv(1) == b"x"
