"""Single faults in a cluster, at chosen moments: each has one outcome that docs/cluster.md promises."""

from __future__ import annotations

import re
import signal
import time
from collections.abc import Callable, Iterator
from itertools import permutations
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from cluster_models import seen_in
from clusters import TestCluster, long_form, until
from forked import ForkServer

# Whoever is silent for so long is gone.
QUICK: dict[str, Any] = {"silence_secs": 4.0}


@pytest.fixture
def two(fork_server: ForkServer, tmp_path: Path) -> Iterator[TestCluster]:
    """A cluster of two parameter servers and two workers; nothing is started."""
    cluster = TestCluster(fork_server, tmp_path, workers=2, ps=2)
    yield cluster
    cluster.close()


def test_a_chief_by_hand_that_restarts_takes_everybody_back_to_the_checkpoint(two: TestCluster, tmp_path: Path) -> None:
    options = {"num_records": 600, "by_hand": True, "checkpoint_dir": str(tmp_path / "model"), "save_steps": 50}
    start_servers(two)
    gates = [two.gate(0), two.gate(20)]
    two.start_worker(0, gates[0], **options)
    two.start_worker(1, gates[1], **options)
    two.await_notes("worker1", "got", 20)
    two.kill("worker0")
    two.start_worker(0, gates[0], **options)

    began, permits = time.monotonic(), iter(range(60))

    def has_restarted() -> bool:
        # The other worker trains while the chief starts and restores, and has batches left for the time after it.
        if len(two.notes("worker1", "got")) < 20 + 20 * (time.monotonic() - began) and next(permits, None) is not None:
            gates[1].release()
        return len(two.notes("worker0", "session")) == 2

    until(has_restarted, "the chief has restarted")
    for gate in gates:
        gate.release(200)
    two.join()
    assert two.wrong_batches(options["checkpoint_dir"], 600, 3) == []


# The same with the first server, as in test_cluster.py with static shares, and without sync.
@pytest.mark.slow_cases("0")
@pytest.mark.parametrize("server", [0, 1])
def test_a_chief_without_data_says_that_the_model_is_lost(two: TestCluster, tmp_path: Path, server: int) -> None:
    options = {"num_records": 60, "checkpoint_dir": str(tmp_path / "model"), "save_steps": 4}
    start_servers(two)
    gates = [two.gate(0), two.gate(3)]
    for index, gate in enumerate(gates):
        two.start_worker(index, gate, **options)
    two.await_notes("worker1", "got", 3)
    # One more permit than batches, for the step that finds the end.
    gates[0].release(11)
    # If a server dies before the chief has seen the end of its data, the chief begins again instead.
    two.await_log("worker0", "worker 0 waits for worker 1")
    assert len(two.notes("worker0", "got")) == 10
    two.kill(f"ps{server}")
    two.start_ps(server)
    two.await_notes("worker0", "raised")
    (message,) = two.notes("worker0", "raised")
    assert re.match(r"ClusterError: worker 0 has no batch left .* has restarted and lost the model\. Start", message)
    for gate in gates:
        gate.release(20)
    two.start_worker(0, gates[0], **options)
    two.join()
    assert two.wrong_batches(options["checkpoint_dir"], 60, 3) == []


@pytest.mark.parametrize(
    ("share", "by_hand"),
    [
        ("static", False),
        pytest.param("dynamic", False, marks=long_form),
        pytest.param("dynamic", True, marks=long_form),
        pytest.param("static", True, marks=long_form),
    ],
)
def test_a_worker_that_goes_on_after_the_end_says_so_and_fails(two: TestCluster, share: str, by_hand: bool) -> None:
    options: dict[str, Any] = {"staged_options": {"share": share}, "options": QUICK, "by_hand": by_hand}
    start_servers(two, **QUICK)
    gates = [two.gate(1), two.gate(5)]
    two.start_worker(0, gates[0], **{**options, "options": {**QUICK, "allow_missing": True}})
    two.start_worker(1, gates[1], **options)
    two.await_notes("worker1", "got", 5)
    two.kill("worker1", signal.SIGSTOP)
    gates[0].release(200)
    two.join("worker0", "ps0", "ps1")
    gates[1].release(100)
    two.kill("worker1", signal.SIGCONT)
    # TensorFlow itself never ends the close of its session.
    two.await_notes("worker1", "raised")
    (message,) = two.notes("worker1", "raised")
    # What watches the servers finds it, or what waits for them at a new start of the session.
    found = r"after 1 s \(Connection refused\)|\(Connection refused\), and has been silent for \d+ s"
    assert re.match(rf"ClusterError: worker 1: ps \d at \S+ does not answer ({found})\.", message)
    assert re.search(r"stood still for \d+ s .* the run may have ended without it\. Start the whole cluster", message)
    assert two.processes["worker1"].wait() == 1


@pytest.mark.parametrize(
    "task", ["ps0", pytest.param("ps1", marks=long_form), pytest.param("worker0", marks=long_form)]
)
def test_a_task_that_stood_still_blames_nobody_and_ends_nothing(two: TestCluster, tmp_path: Path, task: str) -> None:
    options: dict[str, Any] = {"staged_options": {"share": "dynamic"}, "options": QUICK}
    start_servers(two, **QUICK)
    gates = [two.gate(2), two.gate(2)]
    for index, gate in enumerate(gates):
        two.start_worker(index, gate, checkpoint_dir=str(tmp_path / "model"), **options)
    for index in range(2):
        two.await_notes(f"worker{index}", "got", 2)
    two.kill(task, signal.SIGSTOP)
    # Twice as long as a task may be silent.
    until(over(8.0), "it has stood still")
    two.kill(task, signal.SIGCONT)
    for gate in gates:
        gate.release(200)
    two.join()
    assert seen_in(tmp_path / "model") == [1] * 120
    assert not re.search(r"silent for \d\d? s\)|ends without", two.logs())


def test_servers_that_know_the_workers_in_another_order_are_named(two: TestCluster) -> None:
    others = {**two.jobs, "worker": two.jobs["worker"][::-1]}
    two.start_ps(0)
    two.start("serve", "ps1", others, 1)
    for index in range(2):
        two.start_worker(index)
    tasks = ["ps1", "worker0", "worker1"]
    for task in tasks:
        two.await_notes(task, "raised")
    first, second = two.jobs["worker"]
    for task in tasks:
        (message,) = two.notes(task, "raised")
        here, there = (second, first) if task == "ps1" else (first, second)
        other = "the chief" if task == "ps1" else "ps 1"
        name = task.replace("r", "r ").replace("ps", "ps ").replace("wor ker", "worker")
        assert re.match(rf"ClusterError: .*{name} and {other} \(process \d+ on \S+\) describe the cluster", message)
        assert f"worker 0 is {here} here, {there} there; worker 1 is {there} here, {here} there. Give all" in message


@pytest.mark.slow  # test_a_parameter_server_that_stands_still_for_good_ends_the_workers names it
def test_workers_in_step_say_which_parameter_server_stands_still(two: TestCluster) -> None:
    start_servers(two)
    gates = [two.gate(2), two.gate(2)]
    for index, gate in enumerate(gates):
        two.start("train_in_step", f"worker{index}", two.jobs, index, gate)
    for index in range(2):
        two.await_notes(f"worker{index}", "got", 2)
    two.kill("ps0", signal.SIGSTOP)
    for gate in gates:
        gate.release(100)
    said = "cannot read the positions of the other workers: ps 0 at"
    for index in range(2):
        two.await_log(f"worker{index}", said)
    two.kill("ps0", signal.SIGCONT)
    two.join()


# A step ends in the same way, whatever the other cases wait for.
@pytest.mark.parametrize(
    ("server", "how"),
    [
        (1, "static"),
        pytest.param(0, "in step", marks=long_form),
        (1, "goes on"),
        pytest.param(0, "dynamic", marks=long_form),
        pytest.param(1, "in step", marks=long_form),
        pytest.param(1, "by hand", marks=long_form),
    ],
)
@pytest.mark.slow_cases(r"(?!(1-static)$).*")
def test_a_parameter_server_that_stands_still_for_good_ends_the_workers(
    two: TestCluster, server: int, how: str
) -> None:
    start_servers(two)
    for index in range(2):
        two.await_notes(f"ps{index}", "serving")
    gates = [two.gate(2), two.gate(2)]
    for index, gate in enumerate(gates):
        options = {"options": {"start_timeout_secs": 8.0}}
        if how == "in step":
            two.start("train_in_step", f"worker{index}", two.jobs, index, gate, **options)
        else:
            share = {"share": "dynamic" if how == "dynamic" else "static"}
            two.start_worker(index, gate, staged_options=share, by_hand=how == "by hand", **options)
    for index in range(2):
        two.await_notes(f"worker{index}", "got", 2)
    two.kill(f"ps{server}", signal.SIGSTOP)
    for gate in gates:
        gate.release(200)
    if how == "goes on":
        # The steps have been broken off by then, and nobody has seen yet why.
        for index in range(2):
            two.await_log(f"worker{index}", "breaks with ps 1")
        two.kill(f"ps{server}", signal.SIGCONT)
    for index in range(2):
        two.await_notes(f"worker{index}", "raised")
        (message,) = two.notes(f"worker{index}", "raised")
        assert re.match(rf"ClusterError: worker {index}.* ps {server} .*silent for \d+ s\. (Start|Restart)", message)
        assert two.processes[f"worker{index}"].wait() == 1


SHARES = [("static", "dynamic"), ("own", "static")]


@pytest.mark.parametrize(
    "shares",
    [
        pytest.param(each, marks=() if each in SHARES else long_form)
        for each in permutations(["static", "dynamic", "own"], 2)
    ],
    ids="-".join,
)
def test_workers_with_different_shares_are_told(two: TestCluster, shares: tuple[str, str]) -> None:
    start_servers(two)
    for index, share in enumerate(shares):
        two.start_worker(index, two.gate(0), seed=5, staged_options={"share": share})
    two.await_notes("worker1", "raised")
    (message,) = two.notes("worker1", "raised")
    said = f": the chief has share='{shares[0]}', and worker 1 has share='{shares[1]}'. Give staged() the same share="
    assert message.startswith("ClusterError: 'train' (made at ") and said in message


INPUTS = [
    ({"epochs": 1}, {"epochs": 2}, "epochs=1", "epochs=2"),
    ({"epochs": 3}, {"epochs": 2}, "epochs=3", "epochs=2"),
    ({}, {"transform": np.real}, "transform=''", "transform='real'"),
    ({"transform": np.flipud}, {"transform": np.real}, "transform='flipud'", "transform='real'"),
]


@pytest.mark.slow_cases("static-[123]|dynamic-[012]")
@pytest.mark.parametrize("number", range(len(INPUTS)))
@pytest.mark.parametrize("share", ["static", "dynamic"])
def test_workers_with_different_inputs_are_told(two: TestCluster, share: str, number: int) -> None:
    *given, theirs, own = INPUTS[number]
    start_servers(two)
    for index, options in enumerate(given):
        two.start_worker(index, two.gate(0), staged_options={"share": share}, **options)
    two.await_notes("worker1", "raised")
    (message,) = two.notes("worker1", "raised")
    assert message == (
        f"ClusterError: pipeline 'train': the chief has {theirs}, and worker 1 has {own}. Give the source the same "
        f"{own.partition('=')[0]}= in every worker, so that no record is read twice or by nobody."
    )
    assert not two.notes("worker1", "got")


@pytest.mark.slow_cases("dynamic")
@pytest.mark.parametrize("share", ["static", "dynamic"])
def test_workers_with_other_records_are_told(two: TestCluster, share: str) -> None:
    start_servers(two)
    for index in range(2):
        two.start_worker(index, two.gate(0), rotated_by=index, staged_options={"share": share})
    two.await_notes("worker1", "raised")
    (message,) = two.notes("worker1", "raised")
    assert message.startswith(
        "ClusterError: pipeline 'train': the array of the source of worker 1 differs from that of "
    )
    assert not two.notes("worker1", "got")


def test_a_chief_that_returns_with_another_input_is_told_and_ends_nobody(two: TestCluster) -> None:
    start_servers(two)
    gates = [two.gate(1), two.gate(1)]
    for index, gate in enumerate(gates):
        two.start_worker(index, gate)
    for index in range(2):
        two.await_notes(f"worker{index}", "got")
    two.kill("worker0")
    two.start_worker(0, gates[0], epochs=2)
    two.await_notes("worker0", "raised")
    (message,) = two.notes("worker0", "raised")
    assert "pipeline 'train': the run that is under way has epochs=1, and worker 0 has epochs=2. Give" in message
    # With the right number it continues.
    two.start_worker(0, gates[0])
    for gate in gates:
        gate.release(100)
    two.join()


def test_a_graph_without_a_global_step_is_told_to_all(two: TestCluster, tmp_path: Path) -> None:
    start_servers(two)
    for index in range(2):
        two.start("train_without_step", f"worker{index}", two.jobs, index, str(tmp_path / "model"))
    for index, said in enumerate(["ClusterError: ", "ClusterError: worker 0 could not begin: ClusterError: "]):
        two.await_notes(f"worker{index}", "raised")
        (message,) = two.notes(f"worker{index}", "raised")
        assert message.startswith(f"{said}worker 0 saves checkpoints and summaries by the global step, and the graph")


def over(secs: float) -> Callable[[], bool]:
    """A condition that is true after so many seconds."""
    end = time.monotonic() + secs
    return lambda: time.monotonic() > end


def test_a_worker_that_has_finished_stays_until_the_last_save(two: TestCluster, tmp_path: Path) -> None:
    options = {"num_records": 60, "checkpoint_dir": str(tmp_path / "model")}
    gate = two.gate(0)
    start_servers(two)
    two.start_worker(0, gate, **options)
    two.start_worker(1, **options)
    two.await_log("worker1", "worker 1 waits for worker 0 to save the last checkpoint")
    assert len(two.notes("worker1", "got")) == 10
    # The first checkpoint has none of its steps.
    two.kill("ps1")
    two.start_ps(1)
    gate.release(40)
    two.await_notes("worker1", "raised")
    (message,) = two.notes("worker1", "raised")
    assert message.startswith(
        "ClusterError: worker 1 had finished, but a parameter server has restarted and lost the model. worker 0 "
    )
    two.start_worker(1, **options)
    two.join()
    assert two.wrong_batches(options["checkpoint_dir"], 60, 3) == []


def start_servers(cluster: TestCluster, **options: object) -> None:
    for index in range(len(cluster.jobs["ps"])):
        cluster.start_ps(index, **options)


def test_sigterm_for_all_tasks_saves_what_the_steps_have_trained(two: TestCluster, tmp_path: Path) -> None:
    start_servers(two)
    for index, steps in enumerate([5, 7]):
        two.start_worker(index, two.gate(steps), checkpoint_dir=str(tmp_path / "model"))
    two.await_notes("worker0", "got", 5)
    two.await_notes("worker1", "got", 7)
    # The servers first, as it may happen.
    for server in ("ps0", "ps1"):
        two.processes[server].send_signal(signal.SIGTERM)
        two.await_log(server, "got SIGTERM, and serves until worker 0 has left, which may save the model.")
    for worker in ("worker0", "worker1"):
        two.processes[worker].send_signal(signal.SIGTERM)
    # The other worker saves nothing.
    codes = {"ps0": 143, "ps1": 143, "worker0": 143, "worker1": -signal.SIGTERM}
    assert {task: process.wait() for task, process in two.processes.items()} == codes
    trained = [record for record, count in enumerate(seen_in(tmp_path / "model")) if count]
    assert trained == sorted(two.got("worker0") + two.got("worker1"))


@pytest.mark.parametrize("workers", [0, 1])
def test_sigterm_ends_a_parameter_server_without_a_chief_and_twice_at_once(two: TestCluster, workers: int) -> None:
    start_servers(two)
    for index in range(workers):
        two.start_worker(index, two.gate(1))
        two.await_notes("worker0", "got")
    for server in ("ps1", "ps0"):
        two.await_notes(server, "serving")
        process = two.processes[server]
        process.send_signal(signal.SIGTERM)
        if workers:
            two.await_log(server, "got SIGTERM")
            process.send_signal(signal.SIGTERM)
        assert process.wait() in ([-signal.SIGTERM] if workers else [143, -signal.SIGTERM])
