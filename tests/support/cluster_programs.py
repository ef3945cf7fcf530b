"""Programs that the processes of a test cluster run."""

from __future__ import annotations

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
    transform: Any = None,
    rotated_by: int = 0,
    streams: tuple[int, ...] = (),
    devices: int = 1,
    staged_options: dict[str, Any] | None = None,
    counts: int | None = None,
    use_resource: bool = False,
    step_secs: float = 0.0,
    sync: bool = False,
    late_news: bool = False,
    checkpoint_dir: str | None = None,
    save_steps: int = 1000,
    keep: int | None = None,
    sharded: bool = False,
    by_hand: bool = False,
    stall_secs: float = 2.0,
    fails_at_start: bool = False,
    stop_after: int | None = None,
    options: dict[str, Any] | None = None,
) -> None:
    """A worker. Each step waits for `go`, if there is one.

    With `streams`, each worker has a stream of so many batches. With `counts`, or `sync`, the model counts what it has
    seen of each record, and has so many megabytes of weights. Each step takes at least `step_secs`, between its batch
    and its gradients. With `late_news`, a worker in step learns that the shortest stream has ended while it looks
    whether it may begin the step after. With `fails_at_start`, its session is created twice.
    """
    cluster = staging.Cluster(jobs, job, index, sync=sync, **(options or {}))
    source: Any = ids_source(num_records, batch_size, epochs, seed, transform, rotated_by)
    if streams:
        source = ids_stream(streams, index, batch_size)
    hooks: list[Any] = [BeganHook(notes, cluster), *([FailsAtStart()] if fails_at_start else [])]
    with tf.Graph().as_default():
        with cluster.device_scope():
            towers = staging.staged(
                source, cluster=cluster, devices=["/device:CPU:0"] * devices, name="train", **(staged_options or {})
            )
            ids = tf.concat(towers, axis=0)
            if step_secs:
                ids = slowed(ids, step_secs)
            if sync:
                train_op, optimizer = count_in_step(ids, num_records, counts or 0, cluster.num_workers)
                hooks.append(optimizer.make_session_run_hook(cluster.is_chief))
            elif counts is not None:
                train_op = counting_model(ids, num_records, counts, use_resource=use_resource)
            else:
                train_op = model(ids, num_records)
        scaffold = None
        if counts is not None:
            scaffold = tf.train.Scaffold(saver=tf.train.Saver(max_to_keep=keep, sharded=sharded))
        saving = {"checkpoint_dir": checkpoint_dir, "save_checkpoint_steps": save_steps, "save_checkpoint_secs": None}
        with session(cluster, hooks, by_hand, stall_secs, scaffold=scaffold, **saving) as sess:
            notes.add("session", time.time())
            if late_news:
                delay_news(cluster.member, sync_tokens_of(sess.graph).wake, min(streams))
            while not sess.should_stop() and stop_after != 0:
                if go is not None:
                    go.acquire()
                got, _ = sess.run([ids, train_op])
                notes.add("got", got.tolist())
                stop_after = None if stop_after is None else stop_after - 1
        if not by_hand:
            notes.add("stats", [list(each.positions) for each in sess.stats()])
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


def session(cluster: Any, hooks: Sequence[Any], by_hand: bool, stall_secs: float, **options: Any) -> Any:
    """A StagingSession, or the session that a TensorFlow 1 program makes."""
    if not by_hand:
        return staging.StagingSession(cluster=cluster, hooks=hooks, stall_secs=stall_secs, **options)
    return tf.train.MonitoredTrainingSession(
        master=cluster.target,
        is_chief=cluster.is_chief,
        config=cluster.session_config(),
        hooks=[staging.StagingHook(), *hooks],
        **options,
    )


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
