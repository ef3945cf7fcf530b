"""Programs that the processes of a test cluster run."""

from __future__ import annotations

import contextlib
import ctypes
import faulthandler
import json
import os
import pickle
import runpy
import signal
import sys
import threading
import time
import traceback
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import tensorflow.compat.v1 as tf
from absl import logging
from cluster_models import count_in_step, counting_model, ids_source, ids_stream, slowed

import staging_tf1 as staging
from staging_tf1._tf import run_unwrapped
from staging_tf1.cluster import cluster as cluster_module
from staging_tf1.feed.pipeline import pipelines_of
from staging_tf1.graph.sync_tokens import sync_tokens_of
from staging_tf1.lifecycle import cluster_session, in_step


class Notes:
    """What one task reports to the test: a line of JSON each, in a file."""

    def __init__(self, folder: str, task: str) -> None:
        self._file = (Path(folder) / f"{task}.jsonl").open("a", encoding="utf-8")

    def add(self, kind: str, value: Any = None) -> None:
        """Append one line at once, so that a kill loses nothing."""
        self._file.write(json.dumps([kind, value]) + "\n")
        self._file.flush()


def main(program: str, folder: str, task: str, arguments: tuple[Any, ...], options: dict[str, Any]) -> None:
    """Run `program` in this process; the exit code is 1 after an exception."""
    # If the tests are killed, nothing is left running: the fork server ends with them, and this process with that.
    ctypes.CDLL(None).prctl(1, int(signal.SIGKILL), 0, 0, 0)
    # For a test that waits in vain.
    faulthandler.register(signal.SIGUSR1)
    logging.use_absl_handler()
    logging.set_verbosity(logging.INFO)
    notes = Notes(folder, task)
    try:
        globals()[program](notes, *arguments, **options)
    except SystemExit:
        raise
    except BaseException as error:
        traceback.print_exc()
        notes.add("raised", f"{type(error).__name__}: {error}")
        sys.stderr.flush()
        os._exit(1)
    sys.stderr.flush()


def run_program(notes: Notes, environment: dict[str, str], words: list[str], *, legacy: bool = False) -> None:
    """Run `words`, a script or -m and a module, with arguments, as Python does; with `legacy`, on TensorFlow 1."""
    os.environ.update(environment)
    if legacy:
        staging.legacy.install(old_names=True)
    is_module = words[0] == "-m"
    sys.argv = words[is_module:]
    try:
        if is_module:
            runpy.run_module(words[1], run_name="__main__", alter_sys=True)
        else:
            runpy.run_path(words[0], run_name="__main__")
    finally:
        sys.stdout.flush()


def serve(notes: Notes, jobs: dict[str, list[str]], index: int, **options: Any) -> None:
    """A parameter server."""
    cluster = staging.Cluster(jobs, "ps", index, **options)
    notes.add("serving")
    assert cluster.serves()
    notes.add("left")


def model(ids: Any, num_records: int) -> Any:
    """Return a training op that notes in the model itself which records it has seen."""
    # First, so that with two parameter servers the model is not on that of the positions.
    step = tf.train.get_or_create_global_step()
    seen = tf.get_variable("seen", [num_records], tf.int64, tf.zeros_initializer(), use_resource=True)
    with tf.control_dependencies([seen.scatter_add(tf.IndexedSlices(tf.ones_like(ids), ids))]):
        return tf.assign_add(step, 1)


def train(
    notes: Notes,
    jobs: dict[str, list[str]],
    job: str,
    index: int,
    go: Any = None,
    *,
    num_records: int = 120,
    batch_size: int = 3,
    epochs: int = 1,
    seed: int | None = None,
    checkpoint_dir: str | None = None,
    save_steps: int = 1000,
    devices: int = 1,
    stop_after: int | None = None,
    by_hand: bool = False,
    fails_at_start: bool = False,
    transform: Any = None,
    rotated_by: int = 0,
    options: dict[str, Any] | None = None,
    staged_options: dict[str, Any] | None = None,
) -> None:
    """A worker. Each step waits for `go`, if there is one. With `fails_at_start`, its session is created twice."""
    cluster = staging.Cluster(jobs, job, index, **(options or {}))
    source = ids_source(num_records, batch_size, epochs, seed, transform, rotated_by)
    with tf.Graph().as_default():
        with cluster.device_scope():
            towers = staging.staged(
                source, cluster=cluster, devices=["/device:CPU:0"] * devices, name="train", **(staged_options or {})
            )
            ids = tf.concat(towers, axis=0)
            train_op = model(ids, num_records)
        hooks = [BeganHook(notes, cluster), *([FailsAtStart()] if fails_at_start else [])]
        with session(cluster, checkpoint_dir, save_steps, hooks, by_hand=by_hand) as sess:
            notes.add("session", time.time())
            while not sess.should_stop() and stop_after != 0:
                if go is not None:
                    go.acquire()
                got, _ = sess.run([ids, train_op])
                notes.add("got", got.tolist())
                stop_after = None if stop_after is None else stop_after - 1
        if not by_hand:
            notes.add("stats", [list(each.positions) for each in sess.stats()])
    notes.add("ended")


def count(
    notes: Notes,
    jobs: dict[str, list[str]],
    index: int,
    go: Any = None,
    *,
    num_records: int,
    batch_size: int = 3,
    checkpoint_dir: str,
    save_steps: int,
    share: str = "static",
    use_resource: bool = False,
    megabytes: int = 0,
    sharded: bool = False,
    by_hand: bool = False,
    keep: int | None = None,
    sync: bool = False,
    step_secs: float = 0.0,
    streams: tuple[int, ...] = (),
    options: dict[str, Any] | None = None,
) -> None:
    """A worker whose model counts what it has seen, and keeps the last `keep` checkpoints; None is all.

    Each step takes at least `step_secs`, between its batch and its gradients. With `streams`, each worker has a stream
    of so many batches.
    """
    cluster = staging.Cluster(jobs, "worker", index, sync=sync, **(options or {}))
    hooks = []
    source: Any = ids_stream(streams, index, batch_size) if streams else ids_source(num_records, batch_size)
    with tf.Graph().as_default():
        with cluster.device_scope():
            ids = staging.staged(source, cluster=cluster, name="train", share=share, capacity=4)
            if step_secs:
                ids = slowed(ids, step_secs)
            if sync:
                train_op, optimizer = count_in_step(ids, num_records, megabytes, cluster.num_workers)
                hooks.append(optimizer.make_session_run_hook(cluster.is_chief))
            else:
                train_op = counting_model(ids, num_records, megabytes, use_resource=use_resource)
        scaffold = tf.train.Scaffold(saver=tf.train.Saver(max_to_keep=keep, sharded=sharded))
        with session(cluster, checkpoint_dir, save_steps, hooks, by_hand=by_hand, scaffold=scaffold) as sess:
            while not sess.should_stop():
                if go is not None:
                    go.acquire()
                sess.run(train_op)
                notes.add("stepped", 1)
    notes.add("ended")


def train_without_step(notes: Notes, jobs: dict[str, list[str]], index: int, checkpoint_dir: str) -> None:
    """A worker whose graph has no global step."""
    cluster = staging.Cluster(jobs, "worker", index)
    with tf.Graph().as_default():
        with cluster.device_scope():
            ids = staging.staged(ids_source(120, 3), cluster=cluster, name="train")
        with staging.StagingSession(cluster=cluster, checkpoint_dir=checkpoint_dir) as sess:
            sess.run(ids)


def serve_forever(notes: Notes, jobs: dict[str, list[str]], index: int) -> None:
    """A parameter server as TensorFlow 1 programs start it."""
    server = tf.train.Server(jobs, job_name="ps", task_index=index)
    notes.add("serving")
    server.join()


def claim_elsewhere(notes: Notes, jobs: dict[str, list[str]], job: str, index: int) -> None:
    """A process on another machine that was given a task that runs already: its own port is free there."""
    cluster = staging.Cluster(jobs, job, index)
    elsewhere = {**jobs, job: [*jobs[job][:index], "127.0.0.1:0", *jobs[job][index + 1 :]]}
    cluster_module.start_server = lambda layout: tf.train.Server(elsewhere, job_name=job, task_index=index)
    notes.add("target", cluster.target)


def show_places(notes: Notes, jobs: dict[str, list[str]], index: int) -> None:
    """Note on which device each op of a step ran, and the bytes of each tensor that came from another task."""
    cluster = staging.Cluster(jobs, "worker", index)
    with tf.Graph().as_default():
        with cluster.device_scope():
            x = staging.staged(
                staging.sources.ArraySource(np.zeros((40, 1000)), batch_size=5, epochs=1), cluster=cluster, name="train"
            )
            total = tf.reduce_sum(x)
        with staging.StagingSession(cluster=cluster) as sess:
            metadata = tf.RunMetadata()
            options = tf.RunOptions(trace_level=tf.RunOptions.FULL_TRACE, output_partition_graphs=True)
            sess.run(total, options=options, run_metadata=metadata)
            while not sess.should_stop():
                sess.run(total)
    nodes = [node for graph in metadata.partition_graphs for node in graph.node]
    notes.add("places", sorted({(node.op, node.device.rpartition("/device")[0]) for node in nodes}))
    sends = [node for node in nodes if node.op in ("_Send", "_HostSend")]
    sent = [node for node in sends if _task(node, "send_device") != _task(node, "recv_device")]
    sizes = {node.name: node for node in nodes}
    notes.add("crossing", {node.name: _bytes_of(sizes, node, metadata) for node in sent})


def _task(node: Any, attribute: str) -> str:
    return node.attr[attribute].s.decode().rpartition("/device")[0]


def _bytes_of(nodes: dict[str, Any], send: Any, metadata: Any) -> int:
    """How many bytes the input of a _Send had in the traced step."""
    source = send.input[0].partition(":")[0].lstrip("^")
    for device in metadata.step_stats.dev_stats:
        for stats in device.node_stats:
            if stats.node_name == source and stats.output:
                return int(stats.output[0].tensor_description.allocation_description.requested_bytes)
    return 0


def train_in_step(
    notes: Notes,
    jobs: dict[str, list[str]],
    index: int,
    go: Any = None,
    *,
    num_records: int = 120,
    streams: tuple[int, ...] = (),
    late_news: bool = False,
    options: dict[str, Any] | None = None,
    session_options: dict[str, Any] | None = None,
) -> None:
    """A worker in synchronous training. With `streams`, each worker has a stream of so many batches.

    With `late_news`, it learns that the shortest stream has ended while it looks whether it may begin the step after.
    """
    cluster = staging.Cluster(jobs, "worker", index, sync=True, **(options or {}))
    source: Any = staging.sources.ArraySource(np.arange(num_records), batch_size=3, epochs=1, shuffle=True)
    if streams:
        source = staging.sources.GeneratorSource(lambda: iter([np.arange(3)] * streams[index]), resume="skip")
    with tf.Graph().as_default():
        with cluster.device_scope():
            ids = staging.staged(source, cluster=cluster, share="own" if streams else "static", name="train")
            weight = tf.get_variable("weight", [], initializer=tf.ones_initializer(), use_resource=False)
            loss = weight * tf.reduce_mean(tf.cast(ids, tf.float32))
            optimizer = tf.train.SyncReplicasOptimizer(
                tf.train.GradientDescentOptimizer(0.001),
                replicas_to_aggregate=cluster.num_workers,
                total_num_replicas=cluster.num_workers,
            )
            step = tf.train.get_or_create_global_step()
            train_op = optimizer.minimize(loss, global_step=step)
            hook = optimizer.make_session_run_hook(cluster.is_chief)
        with staging.StagingSession(cluster=cluster, hooks=[hook], **(session_options or {})) as sess:
            notes.add("session", os.getpid())
            if late_news:
                delay_news(cluster.member, sync_tokens_of(sess.graph).wake, min(streams))
            while not sess.should_stop():
                if go is not None:
                    go.acquire()
                got, _ = sess.run([ids, train_op])
                notes.add("got", got.tolist())
        notes.add("stats", [list(each.positions) for each in sess.stats()])
    notes.add("ended")


def delay_news(member: Any, wake: Any, steps: int) -> None:
    """Keep news from this worker until it looks whether the round of the step after `steps` has been applied."""
    note, read, came = member.on_news, in_step.run_unwrapped, threading.Event()
    latest: dict[str, Any] = {}
    session_of: list[Any] = []
    # After the last common step, before the next one, and after it. That one is made to return, although nobody else
    # sends gradients; the other worker may take back a token. Then the news come.
    looks_at_end = iter(
        [
            lambda: [read(session_of[0], wake) for _ in range(2)],
            lambda: None,
            lambda: came.wait(60) and note(latest),
        ]
    )

    def hold(entries: dict[str, Any]) -> None:
        latest.update(entries)
        if member.stopped_workers(entries)[0]:
            came.set()

    def read_then_hear(session: Any, fetches: Any, options: Any = None) -> Any:
        value = read(session, fetches, options=options)
        session_of[:] = [session]
        if isinstance(value, list) and value[0] == steps:
            next(looks_at_end, lambda: None)()
        return value

    member.on_news, in_step.run_unwrapped = hold, read_then_hear


class BeganHook(tf.train.SessionRunHook):  # type: ignore[misc]
    """Notes at which batch of its share this worker begins, at the start and after each recovery."""

    def __init__(self, notes: Notes, cluster: Any) -> None:
        self._notes, self._index = notes, cluster.worker_index

    def after_create_session(self, session: Any, coord: Any) -> None:
        position = pipelines_of(session.graph)[0].position
        if position is not None:
            own = position.tower_range.towers * self._index
            self._notes.add("began", int(run_unwrapped(session, position.saved[0])[own]))


class FailsAtStart(tf.train.SessionRunHook):  # type: ignore[misc]
    """Fails at the first start like a parameter server that is lost, after the hooks before it have started."""

    def __init__(self) -> None:
        self._starts = 0

    def after_create_session(self, session: Any, coord: Any) -> None:
        self._starts += 1
        if self._starts == 1:
            raise tf.errors.UnavailableError(None, None, "lost")


def session(
    cluster: Any,
    checkpoint_dir: str | None,
    save_steps: int,
    hooks: Sequence[Any] = (),
    *,
    by_hand: bool,
    scaffold: Any = None,
) -> Any:
    """A StagingSession, or the session that a TensorFlow 1 program makes."""
    if not by_hand:
        return staging.StagingSession(
            cluster=cluster,
            hooks=hooks,
            checkpoint_dir=checkpoint_dir,
            save_checkpoint_steps=save_steps,
            save_checkpoint_secs=None,
            stall_secs=2.0,
            scaffold=scaffold,
        )
    return tf.train.MonitoredTrainingSession(
        master=cluster.target,
        is_chief=cluster.is_chief,
        config=cluster.session_config(),
        checkpoint_dir=checkpoint_dir,
        save_checkpoint_steps=save_steps,
        save_checkpoint_secs=None,
        hooks=[staging.StagingHook(), *hooks],
        scaffold=scaffold,
    )


def fail_steps(notes: Notes, jobs: dict[str, list[str]], num_records: int, failures: int) -> None:
    """The only worker of a cluster. Its first steps fail when they have their batch, and it goes on regardless."""
    cluster = staging.Cluster(jobs, "worker", 0)
    source = staging.sources.ArraySource(np.arange(num_records), batch_size=1, epochs=1)
    with tf.Graph().as_default():
        ids = staging.staged(source, cluster=cluster, share="dynamic", name="train")
        # The element as it comes out of the area, before the step has acknowledged it.
        with tf.control_dependencies([ids.op.inputs[0]]):
            failing = tf.raw_ops.Assert(condition=False, data=["a step that fails"])
        with staging.StagingSession(cluster=cluster) as sess:
            for _ in range(failures):
                with contextlib.suppress(tf.errors.InvalidArgumentError):
                    sess.run([ids, failing])
            while not sess.should_stop():
                notes.add("got", sess.run(ids).tolist())


def break_off(notes: Notes, jobs: dict[str, list[str]], index: int, go: Any, options: dict[str, Any]) -> None:
    """A worker whose loop fails after two steps, and whose process then waits for `go` before it ends."""
    cluster = staging.Cluster(jobs, "worker", index, **options)
    source = staging.sources.ArraySource(np.arange(120), batch_size=3, epochs=1, shuffle=True, across_epochs=False)
    with tf.Graph().as_default():
        with cluster.device_scope():
            ids = staging.staged(source, cluster=cluster, share="dynamic", name="train")
            train_op = model(ids, 120)
        with contextlib.suppress(ZeroDivisionError), staging.StagingSession(cluster=cluster) as sess:
            for _ in range(2):
                notes.add("got", sess.run([ids, train_op])[0].tolist())
            raise ZeroDivisionError
    notes.add("broken")
    go.acquire()


def build_more(notes: Notes, jobs: dict[str, list[str]]) -> None:
    """Worker 1, with a variable that the chief's graph has not."""
    cluster_session._GRAPH_SECS = 1.0
    cluster = staging.Cluster(jobs, "worker", 1)
    with tf.Graph().as_default(), cluster.device_scope():
        train_op = tf.assign_add(tf.train.get_or_create_global_step(), 1)
        tf.get_variable("more", [])
        with staging.StagingSession(cluster=cluster) as sess:
            sess.run(train_op)


if __name__ == "__main__":
    main(*pickle.load(sys.stdin.buffer))
