"""Synchronous training on a cluster: all workers make the same number of steps, and nobody waits forever."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import tensorflow.compat.v1 as tf
from clusters import TestCluster, only_worker
from forked import ForkServer

from staging_tf1.lifecycle import in_step


@pytest.fixture
def two(fork_server: ForkServer, tmp_path: Path) -> Iterator[TestCluster]:
    """A cluster of one parameter server and two workers; nothing is started."""
    cluster = TestCluster(fork_server, tmp_path, workers=2)
    yield cluster
    cluster.close()


def test_shares_of_unequal_length_end_together_and_the_rest_is_named(two: TestCluster) -> None:
    two.start_ps()
    for index in range(2):
        # 31 and 30 records: 11 and 10 batches.
        two.start("train_in_step", f"worker{index}", two.jobs, index, num_records=61)
    two.join()
    got = [two.got(f"worker{index}") for index in range(2)]
    assert [len(each) for each in got] == [30, 30]
    assert len(set(got[0] + got[1])) == 60
    assert "each of the 2 workers or towers takes 10 batches; 1 of 21 are left over" in two.log("worker0")
    assert two.notes("worker0", "stats") == [[[10, 10]]]
    # TensorFlow's thread that applies the gradients ends without a word.
    assert "Traceback" not in two.log("worker0") and "threads still running" not in two.log("worker0")


def test_the_shortest_stream_ends_all(two: TestCluster) -> None:
    two.start_ps()
    for index in range(2):
        two.start("train_in_step", f"worker{index}", two.jobs, index, streams=(12, 7))
    two.join()
    taken = [len(two.notes(f"worker{index}", "got")) for index in range(2)]
    # The longer stream may have begun one step more.
    assert taken[1] == 7 and taken[0] in (7, 8)


def test_no_step_begins_after_the_news_that_another_stream_has_ended(two: TestCluster) -> None:
    two.start_ps()
    for index, late_news in enumerate((True, False)):
        two.start("train_in_step", f"worker{index}", two.jobs, index, streams=(12, 7), late_news=late_news)
    two.join()
    assert [len(two.notes(f"worker{index}", "got")) for index in range(2)] == [8, 7]


def test_a_worker_that_never_returns_ends_the_others_with_its_name(two: TestCluster) -> None:
    two.start_ps(silence_secs=3.0)
    gone = two.gate(4)
    options = {"silence_secs": 3.0}
    # Late enough for the other worker to have been let go: a step is reported once.
    session_options = {"stall_secs": 5.0}
    two.start("train_in_step", "worker0", two.jobs, 0, options=options, session_options=session_options)
    two.start("train_in_step", "worker1", two.jobs, 1, gone, options=options)
    two.await_notes("worker1", "got", 4)
    # The worker that is killed waits for its next permit, and the other one for its gradients.
    reported = "the step waits for the gradients of the other workers, in synchronous training"
    two.await_log("worker0", reported)
    two.kill("worker1")
    two.await_notes("worker0", "raised")
    (message,) = two.notes("worker0", "raised")
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
        waits = in_step.InStep(cluster, sess, position, lambda: False, ends_with_first=True)
        waits.before_step()
        waits.stop()
    cluster.close()
    said = "worker 0 cannot read the positions of the other workers: "
    slow, gone = f"{said}the parameter servers answer slowly", f"{said}ps 0 is gone"
    assert caplog.messages == [slow, gone, slow]
