"""Dynamic shares on a cluster of real processes: unequal workers, workers that die or stand still, restarts."""

from __future__ import annotations

import itertools
import re
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from cluster_models import seen_in
from clusters import TestCluster, long_form, until
from forked import ForkServer
from gate import Gate
from slow import with_slow

DYNAMIC: dict[str, Any] = {"staged_options": {"share": "dynamic"}}
# A worker is gone soon, but not because the machine is busy for a moment.
IMPATIENT: dict[str, Any] = {**DYNAMIC, "options": {"silence_secs": 8.0}}


@pytest.fixture
def three(fork_server: ForkServer, tmp_path: Path) -> Iterator[TestCluster]:
    """A cluster of one parameter server and three workers; nothing is started."""
    cluster = TestCluster(fork_server, tmp_path, workers=3)
    yield cluster
    cluster.close()


@pytest.fixture
def two(fork_server: ForkServer, tmp_path: Path) -> Iterator[TestCluster]:
    """The same with two workers."""
    cluster = TestCluster(fork_server, tmp_path, workers=2)
    yield cluster
    cluster.close()


def open_gate(gate: Gate) -> None:
    """Let a worker run to its end."""
    gate.release(200)


def test_a_slow_worker_gets_less_and_everything_comes_once(three: TestCluster, tmp_path: Path) -> None:
    three.start_ps()
    gates = [three.gate(1) for _ in range(3)]
    three.start_worker(0, gates[0], checkpoint_dir=str(tmp_path / "model"), **DYNAMIC)
    three.start_worker(1, gates[1], **DYNAMIC)
    three.start_worker(2, gates[2], **DYNAMIC)
    for index in range(3):
        three.await_notes(f"worker{index}", "got", 1)
    for fast in (0, 2):
        open_gate(gates[fast])
    until(
        lambda: sum(len(three.notes(f"worker{index}", "got")) for index in (0, 2)) >= 28, "the fast ones have 28 of 40"
    )
    open_gate(gates[1])
    three.join()
    got = [three.got(f"worker{index}") for index in range(3)]
    assert sorted(itertools.chain(*got)) == list(range(120))
    assert len(got[1]) <= 36
    # Of all workers together, in batches.
    assert [three.notes(f"worker{index}", "stats") for index in range(3)] == [[[[40]]]] * 3
    assert seen_in(tmp_path / "model") == [1] * 120
    assert three.notes("ps0", "left") == [None]


def test_what_a_killed_worker_had_not_consumed_goes_to_the_others(two: TestCluster, tmp_path: Path) -> None:
    two.start_ps(silence_secs=8.0)
    gates = [two.gate(1), two.gate(5)]
    two.start_worker(0, gates[0], checkpoint_dir=str(tmp_path / "model"), **IMPATIENT)
    two.start_worker(1, gates[1], **IMPATIENT)
    two.await_notes("worker1", "got", 5)
    two.kill("worker1")
    open_gate(gates[0])
    # Nobody starts it again.
    two.join("worker0", "ps0")
    assert sorted(two.got("worker0") + two.got("worker1")) == list(range(120))
    assert seen_in(tmp_path / "model") == [1] * 120
    log = two.log("worker0")
    assert "The other workers get the batches that it has not consumed." in log
    assert re.search(
        r"StagingWarning: worker 0 ends without worker 1 at \S+ \(.*\)\. With share='dynamic' the others", log
    )
    assert "are missing from this run" not in log


def test_a_worker_that_stood_still_trains_nothing_that_others_were_given(two: TestCluster, tmp_path: Path) -> None:
    two.start_ps(silence_secs=8.0)
    gates = [two.gate(1), two.gate(5)]
    two.start_worker(0, gates[0], checkpoint_dir=str(tmp_path / "model"), **IMPATIENT)
    two.start_worker(1, gates[1], **IMPATIENT)
    two.await_notes("worker1", "got", 5)
    two.await_notes("worker0", "got", 1)
    two.kill("worker1", signal.SIGSTOP)
    gates[0].release(33)
    # All but one of those that are left: some of them had been given to the other.
    two.await_notes("worker0", "got", 34)
    open_gate(gates[1])
    two.kill("worker1", signal.SIGCONT)
    two.await_log("worker1", "is no longer part of this run")
    # Otherwise the chief may end without it, and it would wait for the next run.
    two.await_notes("worker1", "began", 2)
    open_gate(gates[0])
    two.join()
    assert sorted(two.got("worker0") + two.got("worker1")) == list(range(120))
    assert seen_in(tmp_path / "model") == [1] * 120


@long_form
def test_a_killed_chief_goes_on_to_deal(two: TestCluster, tmp_path: Path) -> None:
    model = str(tmp_path / "model")
    two.start_ps()
    gates = [two.gate(5), two.gate(7)]
    two.start_worker(0, gates[0], checkpoint_dir=model, **DYNAMIC)
    two.start_worker(1, gates[1], **DYNAMIC)
    two.await_notes("worker0", "got", 5)
    two.await_notes("worker1", "got", 7)
    two.kill("worker0")
    # It waits for the chief when it has consumed what it had been given.
    open_gate(gates[1])
    two.await_notes("worker1", "got", 8)
    two.start_worker(0, checkpoint_dir=model, **DYNAMIC)
    two.join()
    assert sorted(two.got("worker0") + two.got("worker1")) == list(range(120))
    assert seen_in(tmp_path / "model") == [1] * 120
    assert len(two.notes("worker1", "session")) == 1


# A killed server as in test_cluster_kills.py and test_cluster_faults.py.
@pytest.mark.slow
def test_a_killed_parameter_server_takes_everybody_back_to_the_checkpoint(two: TestCluster, tmp_path: Path) -> None:
    two.start_ps()
    gates = [two.gate(1), two.gate(6)]
    two.start_worker(0, gates[0], checkpoint_dir=str(tmp_path / "model"), save_steps=4, **DYNAMIC)
    two.start_worker(1, gates[1], **DYNAMIC)
    two.await_notes("worker1", "got", 6)
    gates[0].release(7)
    two.await_notes("worker0", "got", 8)
    two.kill("ps0")
    two.start_ps()
    for gate in gates:
        open_gate(gate)
    two.join()
    assert seen_in(tmp_path / "model") == [1] * 120
    assert sorted({*two.got("worker0"), *two.got("worker1")}) == list(range(120))


@pytest.mark.parametrize("by_hand", [False, True])
def test_a_start_that_fails_gives_back_nothing_of_the_next_one(
    fork_server: ForkServer, tmp_path: Path, by_hand: bool
) -> None:
    cluster = TestCluster(fork_server, tmp_path, workers=1)
    try:
        cluster.start_ps()
        cluster.start_worker(0, fails_at_start=True, by_hand=by_hand, **DYNAMIC)
        cluster.join()
    finally:
        cluster.close()
    assert cluster.notes("worker0", "began") == [0, 0]
    assert sorted(cluster.got("worker0")) == list(range(120))


def test_a_run_goes_on_with_another_number_of_workers_and_without_others(
    fork_server: ForkServer, tmp_path: Path
) -> None:
    model = str(tmp_path / "model")
    numbers = (2, 3) if with_slow() else (2,)
    for workers in numbers:
        (folder := tmp_path / str(workers)).mkdir()
        cluster = TestCluster(fork_server, folder, workers)
        try:
            cluster.start_ps()
            gates = [cluster.gate(1), *(cluster.gate(3) for _ in range(1, workers))]
            cluster.start_worker(0, gates[0], checkpoint_dir=model, save_steps=1, **DYNAMIC)
            for index in range(1, workers):
                cluster.start_worker(index, gates[index], **DYNAMIC)
                cluster.await_notes(f"worker{index}", "got", 3)
            gates[0].release(3)
            # The checkpoint has gaps: what the others had been given.
            cluster.await_notes("worker0", "got", 4)
        finally:
            cluster.close()
    (folder := tmp_path / "1").mkdir()
    alone = TestCluster(fork_server, folder, 1)
    alone.start("train", "worker0", None, None, None, checkpoint_dir=model, **DYNAMIC)
    alone.join()
    assert len(alone.got("worker0")) == 120 - sum(3 * (4 + 3 * (workers - 1)) for workers in numbers)
    assert seen_in(tmp_path / "model") == [1] * 120


@long_form
def test_a_worker_that_ends_early_leaves_its_batches_to_the_others(two: TestCluster, tmp_path: Path) -> None:
    two.start_ps()
    gate = two.gate(1)
    two.start_worker(0, stop_after=3, checkpoint_dir=str(tmp_path / "model"), **DYNAMIC)
    two.start_worker(1, gate, **DYNAMIC)
    two.await_notes("worker0", "got", 3)
    open_gate(gate)
    two.join()
    assert len(two.got("worker0")) == 9
    assert sorted(two.got("worker0") + two.got("worker1")) == list(range(120))
    assert seen_in(tmp_path / "model") == [1] * 120


# A lease that is given back as in test_dynamic_shares.py.
@pytest.mark.slow
def test_a_loop_that_fails_leaves_its_batches_to_the_others(two: TestCluster, tmp_path: Path) -> None:
    two.start_ps(silence_secs=8.0)
    gates = [two.gate(1), two.gate(0)]
    two.start_worker(0, gates[0], checkpoint_dir=str(tmp_path / "model"), **IMPATIENT)
    two.start("break_off", "worker1", two.jobs, 1, gates[1], IMPATIENT["options"])
    two.await_notes("worker1", "broken")
    open_gate(gates[0])
    # Its process lives on.
    until(lambda: len(two.got("worker0") + two.got("worker1")) == 120, "the others have the rest")
    gates[1].release()
    two.join()
    assert seen_in(tmp_path / "model") == [1] * 120


@long_form
def test_batches_that_failed_steps_have_taken_come_again(fork_server: ForkServer, tmp_path: Path) -> None:
    cluster = TestCluster(fork_server, tmp_path, workers=1)
    try:
        cluster.start_ps()
        cluster.start("fail_steps", "worker0", cluster.jobs, 20, 4)
        cluster.join()
    finally:
        cluster.close()
    got = cluster.got("worker0")
    assert len(got) == len(set(got))
    # A step that fails may have acknowledged its batch before.
    assert set(range(4, 20)) <= set(got) <= set(range(20))
    assert "batches that failed steps have taken come again" in cluster.log("worker0")


@long_form
def test_a_worker_does_not_wait_forever_for_a_chief_that_is_gone(two: TestCluster) -> None:
    two.start_ps()
    gates = [two.gate(1), two.gate(1)]
    two.start_worker(0, gates[0], **DYNAMIC)
    two.start_worker(1, gates[1], **DYNAMIC, options={"start_timeout_secs": 15.0})
    two.await_notes("worker0", "got", 1)
    two.await_notes("worker1", "got", 1)
    two.kill("worker0")
    open_gate(gates[1])
    two.await_notes("worker1", "raised")
    assert (
        "waits for batches that the chief hands out, and worker 0 has been silent" in two.notes("worker1", "raised")[0]
    )


@long_form
def test_a_worker_that_waits_begins_again_with_a_new_run(two: TestCluster, tmp_path: Path) -> None:
    model = str(tmp_path / "model")
    two.start_ps()
    gates = [two.gate(1), two.gate(1)]
    two.start_worker(0, gates[0], checkpoint_dir=model, save_steps=1, by_hand=True, **DYNAMIC)
    two.start_worker(1, gates[1], **DYNAMIC)
    two.await_notes("worker0", "got", 1)
    two.await_notes("worker1", "got", 1)
    two.kill("worker0")
    open_gate(gates[1])
    two.await_notes("worker1", "got", 3)
    # A session made by hand restores the checkpoint while the parameter server still has the variables.
    two.start_worker(0, checkpoint_dir=model, by_hand=True, **DYNAMIC)
    two.join()
    assert "feed thread 'feed:train:0' failed: AbortedError: worker 1 is no longer part" in two.log("worker1")
    assert sorted({*two.got("worker0"), *two.got("worker1")}) == list(range(120))
