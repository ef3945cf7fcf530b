"""Synchronous training on a cluster: all workers make the same number of steps, and nobody waits forever."""

from __future__ import annotations

import os
import random
import subprocess
from collections.abc import Callable
from contextlib import suppress
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import tensorflow.compat.v1 as tf
from cluster_models import miscounted
from clusters import LIMIT_SECS, TestCluster, long_form, only_worker, timed_runs

from staging_tf1.lifecycle import in_step

BATCH = 3
# As in `test_cluster_kills`.
KILLS = int(os.environ.get("STAGING_TF1_CLUSTER_KILLS", "2"))
SEED = int(os.environ.get("STAGING_TF1_CLUSTER_KILL_SEED", "7"))


def start(cluster: TestCluster, index: int, step_secs: float, records: int, go: Any = None, **staged: Any) -> None:
    """Start a worker in step, whose model counts the records of its gradients."""
    options = {"num_records": records, "checkpoint_dir": str(cluster.folder / "model"), "staged_options": staged}
    cluster.start_worker(index, go, counts=0, sync=True, step_secs=step_secs, **options)


def lost_and_twice(cluster: TestCluster, num_records: int) -> tuple[int, int]:
    """How many batches the last checkpoint lacks, and has twice."""
    latest = tf.train.latest_checkpoint(str(cluster.folder / "model"))
    lost, twice, _ = miscounted(latest, num_records, BATCH)
    assert tf.train.load_variable(latest, "train/position").sum() * BATCH == num_records
    return lost // BATCH, twice // BATCH


# A beat of a cluster in step lasts a quarter of a second.
@pytest.mark.matrix_cases("(?!unlike$).*")
@pytest.mark.parametrize(
    "step_secs",
    [
        pytest.param((0.02, 0.02), id="short"),
        pytest.param((0.3, 0.3), id="a beat"),
        pytest.param((1.5, 1.5), id="six beats", marks=long_form),
        pytest.param((0.02, 0.7), id="unlike"),
        pytest.param((0.7, 0.02), id="slow chief"),
        pytest.param((0.3, 0.3, 0.3), id="three", marks=long_form),
        pytest.param((0.7, 0.02, 0.3), id="three unlike"),
        pytest.param((1.5, 0.02, 0.02), id="three, slow chief", marks=long_form),
    ],
)
def test_every_gradient_is_applied(make_cluster: Callable[..., TestCluster], step_secs: tuple[float, ...]) -> None:
    cluster = make_cluster(len(step_secs))
    rounds = 12 if max(step_secs) > 0.1 else 60
    records = rounds * len(step_secs) * BATCH
    cluster.start_ps()
    for index, secs in enumerate(step_secs):
        start(cluster, index, secs, records)
    cluster.join()
    assert lost_and_twice(cluster, records) == (0, 0)


@pytest.mark.matrix_cases(r"(?!(2-0\.02)$).*")
@pytest.mark.parametrize(
    ("workers", "secs"), [(2, 0.02), (2, 0.4), (3, 0.02), pytest.param(3, 0.4, marks=long_form)], ids=str
)
def test_each_kill_costs_at_most_a_batch(make_cluster: Callable[..., TestCluster], workers: int, secs: float) -> None:
    cluster, choose = make_cluster(workers), random.Random(SEED)
    rounds = KILLS * 6 + 10
    records = rounds * workers * BATCH
    gates = [cluster.gate(0) for _ in range(workers)]
    cluster.start_ps()
    for index, gate in enumerate(gates):
        start(cluster, index, secs, records, gate)
    for number in range(KILLS):
        victim = f"worker{choose.randrange(1, workers)}"
        before = len(cluster.notes(victim, "got"))
        for gate in gates:
            gate.release(6)
        cluster.await_notes(victim, "got", before + choose.randrange(1, 5))
        with suppress(subprocess.TimeoutExpired):
            cluster.processes[victim].wait(choose.uniform(0, 2 * secs))
        cluster.kill(victim)
        print(f"kill {number + 1}: {victim}", flush=True)
        cluster.start_again(victim)
    for gate in gates:
        gate.release(workers * rounds)
    cluster.join(secs=LIMIT_SECS + 2 * rounds * secs)
    lost, twice = lost_and_twice(cluster, records)
    print(f"STAGING_TF1_CLUSTER_KILL_SEED={SEED}: {KILLS} kills, lost {lost} of {rounds * workers} batches")
    # At the end, those who are left may have gradients for a part of a round.
    assert (lost <= KILLS + workers - 1, twice) == (True, 0)


def test_shares_of_unequal_length_end_together_and_the_rest_is_named(two: TestCluster) -> None:
    two.start_ps()
    for index in range(2):
        # 31 and 30 records: 11 and 10 batches.
        two.start_worker(index, sync=True, num_records=61)
    two.join()
    assert [len(two.got(f"worker{index}")) for index in range(2)] == [30, 30]
    assert len(set(two.got())) == 60
    assert "each of the 2 workers or towers takes 10 batches; 1 of 21 are left over" in two.log("worker0")
    assert two.notes("worker0", "stats") == [[[10, 10]]]
    # TensorFlow's thread that applies the gradients ends without a word.
    assert "Traceback" not in two.log("worker0") and "threads still running" not in two.log("worker0")


# test_no_step_begins_after_the_news_that_another_stream_has_ended has two such streams.
@pytest.mark.slow
@pytest.mark.matrix_cases("(?!last shortest).*")
@pytest.mark.parametrize(
    ("streams", "step_secs"),
    [
        pytest.param((7, 12), (0.02, 0.02), id="chief shortest"),
        pytest.param((12, 7), (0.3, 0.3), id="last shortest"),
        pytest.param((12, 7), (0.02, 0.7), id="shortest slow"),
        pytest.param((12, 7), (0.7, 0.02), id="longest slow"),
        pytest.param((12, 7, 9), (0.3, 0.02, 0.02), id="three"),
        pytest.param((7, 8, 7), (0.02, 0.3, 0.7), id="two at once"),
    ],
)
def test_streams_of_unequal_length_lose_at_most_the_step_that_was_begun(
    make_cluster: Callable[..., TestCluster], streams: tuple[int, ...], step_secs: tuple[float, ...]
) -> None:
    cluster = make_cluster(len(streams))
    options = {"streams": streams, "num_records": sum(streams) * BATCH, "checkpoint_dir": str(cluster.folder / "model")}
    cluster.start_ps()
    for index, secs in enumerate(step_secs):
        cluster.start_worker(index, counts=0, sync=True, step_secs=secs, staged_options={"share": "own"}, **options)
    cluster.join()
    latest = tf.train.latest_checkpoint(str(cluster.folder / "model"))
    positions, counts = (tf.train.load_variable(latest, name) for name in ("train/position", "z_counts"))
    of_batches = np.split(counts.reshape(-1, BATCH)[:, 0], np.cumsum(streams)[:-1])
    trained = [each.tolist() for each in of_batches]
    common = min(streams)
    assert all(position in (common, common + 1) for position in positions.reshape(-1)), positions
    for each, length in zip(trained, streams):
        assert each == [1.0] * common + [0.0] * (length - common)


def test_no_step_begins_after_the_news_that_another_stream_has_ended(two: TestCluster) -> None:
    two.start_ps()
    options = {"sync": True, "streams": (12, 7), "num_records": 57, "staged_options": {"share": "own"}}
    for index, late_news in enumerate((True, False)):
        two.start_worker(index, late_news=late_news, **options)
    two.join()
    assert [len(two.notes(f"worker{index}", "got")) for index in range(2)] == [8, 7]


@pytest.mark.slow  # test_each_kill_costs_at_most_a_batch kills workers in step
def test_a_worker_that_never_returns_ends_the_others_with_its_name(two: TestCluster) -> None:
    # Late enough for the other worker to have been let go: a step is reported once.
    options = {"sync": True, "stall_secs": 5.0, "options": {"silence_secs": 3.0}}
    two.start_ps(silence_secs=3.0)
    two.start_worker(0, **options)
    two.start_worker(1, two.gate(4), **options)
    two.await_notes("worker1", "got", 4)
    # The worker that is killed waits for its next permit, and the other one for its gradients.
    two.await_log("worker0", "the step waits for the gradients of the other workers, in synchronous training")
    two.kill("worker1")
    message = two.raised("worker0")
    assert message.startswith("ClusterError: worker 0 waits for the gradients of worker 1 at 127.0.0.1:"), message


def test_positions_that_cannot_be_read_are_warned_of_once_for_each_reason(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    cluster = only_worker()
    with tf.Graph().as_default() as graph:
        # A read waits until its time limit as long as the queue is empty.
        steps = tf.FIFOQueue(1, tf.int64, [1])
        answer, take = steps.enqueue([[0]]), steps.dequeue()
    position: Any = SimpleNamespace(saved=[take], tower_range=SimpleNamespace(towers=1))
    reasons = iter([[], [], ["ps 0 is gone"], ["ps 0 is gone"], ["ps 0 is gone"]])

    def unreachable(layout: Any, tasks: Any) -> list[str]:
        reason = next(reasons, None)
        if reason is None:
            sess.run(answer)
        return reason or []

    monkeypatch.setattr(in_step, "unreachable", unreachable)
    monkeypatch.setattr(in_step, "_BOUNDED", tf.RunOptions(timeout_in_ms=50))
    with tf.Session(graph=graph) as sess, caplog.at_level("WARNING", logger="absl"):
        waits = in_step.InStep(cluster, sess, position, timed_runs(sess), ends_with_first=True)
        waits.await_turn()
        waits.close()
    cluster.close()
    said = "worker 0 cannot read the positions of the other workers: "
    slow, gone = f"{said}the parameter servers answer slowly", f"{said}ps 0 is gone"
    assert caplog.messages == [slow, gone, slow]
