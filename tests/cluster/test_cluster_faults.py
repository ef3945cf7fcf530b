"""Faults in a cluster, at chosen moments, and how its run ends: each has one outcome that docs/cluster.md promises."""

from __future__ import annotations

import re
import signal
import time
from collections.abc import Callable
from typing import Any

import pytest
from cluster_models import seen_in
from clusters import TestCluster, long_form, until

DYNAMIC: dict[str, Any] = {"staged_options": {"share": "dynamic"}}
# Who is silent for so long is gone. The second is soon, but not because the machine is busy for a moment.
QUICK, IMPATIENT = {"silence_secs": 4.0}, {"silence_secs": 8.0}
ALL, ONCE = list(range(120)), [1] * 120


@pytest.fixture
def four(make_cluster: Callable[..., TestCluster]) -> TestCluster:
    """A cluster of two parameter servers and two workers; nothing is started."""
    return make_cluster(ps=2)


def over(secs: float) -> Callable[[], bool]:
    """A condition that is true after so many seconds."""
    end = time.monotonic() + secs
    return lambda: time.monotonic() > end


# With dynamic shares, and a killed server as in test_cluster_kills.py.
@pytest.mark.parametrize("share", ["static", pytest.param("dynamic", marks=long_form)])
@pytest.mark.parametrize(
    ("task", "number"),
    [
        ("worker1", signal.SIGKILL),
        ("worker0", signal.SIGKILL),
        pytest.param("ps0", signal.SIGKILL, marks=pytest.mark.slow),
        ("worker1", signal.SIGSTOP),
    ],
)
def test_a_task_that_is_gone_for_a_while(two: TestCluster, model: str, task: str, number: int, share: str) -> None:
    gates = two.begin(5, 7, checkpoint_dir=model, save_steps=4, staged_options={"share": share})
    two.kill(task, number)
    other = 0 if task == "worker1" else 1
    if task != "ps0":
        gates[other].release()
        two.await_notes(f"worker{other}", "got", (5, 7)[other] + 1)
    if number == signal.SIGSTOP:
        two.kill(task, signal.SIGCONT)
    else:
        two.start_again(task)
    for gate in gates:
        gate.release(50)
    two.join()
    # What the model has seen is exact. The steps that were lost with a server have returned more.
    assert seen_in(model) == ONCE
    assert sorted(set(two.got())) == ALL
    if task != "ps0":
        assert two.got() == ALL and len(two.notes(f"worker{other}", "session")) == 1


# With dynamic shares, test_a_worker_that_stood_still_trains_nothing_that_others_were_given has the default run.
# allow_missing ends the same wait.
@pytest.mark.slow_cases("dynamic.*", "static-True.*")
@pytest.mark.parametrize(
    ("share", "allow_missing", "number"),
    [
        ("static", False, signal.SIGKILL),
        ("static", True, signal.SIGKILL),
        ("dynamic", False, signal.SIGKILL),
        pytest.param("static", False, signal.SIGTERM, marks=long_form),
    ],
)
def test_a_worker_that_never_returns_is_named(
    two: TestCluster, model: str, share: str, allow_missing: bool, number: int
) -> None:
    silence = QUICK if share == "static" else IMPATIENT
    options = {**silence, "allow_missing": allow_missing}
    gates = two.begin(1, 5, ps=silence, checkpoint_dir=model, options=options, staged_options={"share": share})
    two.kill("worker1", number)
    gates[0].release(50)
    two.join("ps0")
    if share == "static" and not allow_missing:
        # After the last checkpoint.
        message = two.raised("worker0")
        assert message.startswith("ClusterError: worker 0 has ended without worker 1 at 127.0.0.1:"), message
        assert "Start the cluster again, or allow that with Cluster(allow_missing=True)." in message
    else:
        two.join("worker0")
        log = two.log("worker0")
        assert log.count("StagingWarning: worker 0 ends without worker 1 at 127.0.0.1:") == 1
        assert ("With share='dynamic' the others" in log) == ("The other workers get" in log) == (share == "dynamic")
        assert ("are missing from this run" in log) == (share == "static")
    if share == "static":
        # Its rest is trained by a later run.
        assert allow_missing is (two.notes("worker0", "stats") == [[[20, 5]]])
        for task in ("ps0", "worker0", "worker1"):
            two.start_again(task)
        for gate in gates:
            gate.release(50)
        two.join()
    assert two.got() == ALL and seen_in(model) == ONCE


@pytest.mark.slow  # test_supply.py has a worker that is no longer part of the run
def test_a_worker_that_stood_still_trains_nothing_that_others_were_given(two: TestCluster, model: str) -> None:
    gates = two.begin(1, 5, ps=IMPATIENT, checkpoint_dir=model, options=IMPATIENT, **DYNAMIC)
    two.kill("worker1", signal.SIGSTOP)
    # All but one of those that are left: some of them had been given to the other.
    gates[0].release(33)
    two.await_notes("worker0", "got", 34)
    gates[1].release(50)
    two.kill("worker1", signal.SIGCONT)
    two.await_log("worker1", "is no longer part of this run")
    # Otherwise the chief may end without it, and it would wait for the next run.
    two.await_notes("worker1", "began", 2)
    gates[0].release(50)
    two.join()
    assert two.got() == ALL and seen_in(model) == ONCE


@pytest.mark.slow  # test_a_task_that_is_gone_for_a_while kills a chief
def test_a_chief_by_hand_that_restarts_takes_everybody_back_to_the_checkpoint(four: TestCluster, model: str) -> None:
    gates = four.begin(0, 20, num_records=600, by_hand=True, checkpoint_dir=model, save_steps=50)
    four.kill("worker0")
    four.start_again("worker0")
    began, permits = time.monotonic(), iter(range(60))

    def has_restarted() -> bool:
        # The other worker trains while the chief starts and restores, and has batches left for the time after it.
        if len(four.notes("worker1", "got")) < 20 + 20 * (time.monotonic() - began) and next(permits, None) is not None:
            gates[1].release()
        return len(four.notes("worker0", "session")) == 2

    until(has_restarted, "the chief has restarted")
    for gate in gates:
        gate.release(200)
    four.join()
    assert four.wrong_batches(model, 600, 3) == []


# test_a_worker_that_has_finished_stays_until_the_last_save has a server that has lost the model. The first server as
# the second, but for who notices it: test_cluster_member.py.
@pytest.mark.slow
@pytest.mark.parametrize("server", [0, 1])
def test_a_chief_without_data_says_that_the_model_is_lost(four: TestCluster, model: str, server: int) -> None:
    gates = four.begin(0, 3, num_records=60, checkpoint_dir=model, save_steps=4)
    # One more permit than batches, for the step that finds the end.
    gates[0].release(11)
    # If a server dies before the chief has seen the end of its data, the chief begins again instead.
    four.await_log("worker0", "worker 0 waits for worker 1")
    assert len(four.notes("worker0", "got")) == 10
    four.kill(f"ps{server}")
    four.start_again(f"ps{server}")
    assert re.match(
        r"ClusterError: worker 0 has no batch left .* has restarted and lost the model\. Start", four.raised("worker0")
    )
    for gate in gates:
        gate.release(20)
    four.start_again("worker0")
    four.join()
    assert four.wrong_batches(model, 60, 3) == []


def test_a_worker_that_has_finished_stays_until_the_last_save(four: TestCluster, model: str) -> None:
    gates = four.begin(0, 0, num_records=60, checkpoint_dir=model)
    gates[1].release(40)
    four.await_log("worker1", "worker 1 waits for worker 0 to save the last checkpoint")
    assert len(four.notes("worker1", "got")) == 10
    # The first checkpoint has none of its steps.
    four.kill("ps1")
    four.start_again("ps1")
    gates[0].release(40)
    assert four.raised("worker1").startswith(
        "ClusterError: worker 1 had finished, but a parameter server has restarted and lost the model. worker 0 "
    )
    four.start_again("worker1")
    four.join()
    assert four.wrong_batches(model, 60, 3) == []


# In lockstep, the chief waits for the others as it does here.
@pytest.mark.slow_cases("True")
@pytest.mark.parametrize("lockstep", [False, True])
def test_a_chief_of_two_towers_saves_after_the_others_have_ended(two: TestCluster, model: str, lockstep: bool) -> None:
    options = {"devices": 2, "by_hand": True, "staged_options": {"lockstep": lockstep}}
    gates = two.begin(0, 3, checkpoint_dir=model, **options)
    gates[0].release(50)
    two.await_notes("worker0", "got", 10)
    two.await_log("worker0", "worker 0 waits for worker 1")
    gates[1].release(50)
    two.join()
    assert seen_in(model) == ONCE


@pytest.mark.slow  # test_a_task_that_is_gone_for_a_while has workers that go on
@pytest.mark.parametrize(
    ("share", "by_hand"),
    [
        ("static", False),
        pytest.param("dynamic", False, marks=long_form),
        pytest.param("dynamic", True, marks=long_form),
        pytest.param("static", True, marks=long_form),
    ],
)
def test_a_worker_that_goes_on_after_the_end_says_so_and_fails(four: TestCluster, share: str, by_hand: bool) -> None:
    options = {"options": {**QUICK, "allow_missing": True}, "by_hand": by_hand, "staged_options": {"share": share}}
    gates = four.begin(1, 5, ps=QUICK, **options)
    four.kill("worker1", signal.SIGSTOP)
    gates[0].release(200)
    four.join("worker0", "ps0", "ps1")
    gates[1].release(100)
    four.kill("worker1", signal.SIGCONT)
    # TensorFlow itself never ends the close of its session.
    message = four.raised("worker1")
    # What watches the servers finds it, or what waits for them at a new start of the session.
    found = r"after 1 s \(Connection refused\)|\(Connection refused\), and has been silent for \d+ s"
    assert re.match(rf"ClusterError: worker 1: ps \d at \S+ does not answer ({found})\.", message)
    assert re.search(r"stood still for \d+ s .* the run may have ended without it\. Start the whole cluster", message)


@pytest.mark.slow  # test_a_task_that_is_gone_for_a_while has tasks that stand still
@pytest.mark.parametrize(
    "task", ["ps0", pytest.param("ps1", marks=long_form), pytest.param("worker0", marks=long_form)]
)
def test_a_task_that_stood_still_blames_nobody_and_ends_nothing(four: TestCluster, model: str, task: str) -> None:
    gates = four.begin(2, 2, ps=QUICK, checkpoint_dir=model, options=QUICK, **DYNAMIC)
    four.kill(task, signal.SIGSTOP)
    # Twice as long as a task may be silent.
    until(over(8.0), "it has stood still")
    four.kill(task, signal.SIGCONT)
    for gate in gates:
        gate.release(200)
    four.join()
    assert seen_in(model) == ONCE
    assert not re.search(r"silent for \d\d? s\)|ends without", four.logs())


# The default run has the signs of such a server in test_cluster_signs.py, and one that is gone for a while above.
@pytest.mark.slow
@pytest.mark.matrix_cases("(?!1-goes on).*")
@pytest.mark.parametrize(
    ("server", "how"),
    [
        (1, "static"),
        (1, "goes on"),
        *(pytest.param(*each, marks=long_form) for each in [(0, "sync"), (0, "dynamic"), (1, "sync"), (1, "by hand")]),
    ],
)
def test_a_parameter_server_that_stands_still_for_good_ends_the_workers(
    four: TestCluster, server: int, how: str
) -> None:
    gates = four.begin(
        2,
        2,
        options={"start_timeout_secs": 8.0},
        sync=how == "sync",
        by_hand=how == "by hand",
        staged_options={"share": "dynamic" if how == "dynamic" else "static"},
    )
    four.kill(f"ps{server}", signal.SIGSTOP)
    for gate in gates:
        gate.release(200)
    if how == "goes on":
        # The steps have been broken off by then, and nobody has seen yet why.
        for index in range(2):
            four.await_log(f"worker{index}", "breaks with ps 1")
        four.kill(f"ps{server}", signal.SIGCONT)
    for index in range(2):
        message = four.raised(f"worker{index}")
        assert re.match(rf"ClusterError: worker {index}.* ps {server} .*silent for \d+ s\. (Start|Restart)", message)


# The one before has a server that stands still, too; test_cluster_sync.py has the words of workers in step.
@pytest.mark.slow
@pytest.mark.parametrize("sync", [False, True])
def test_workers_say_which_parameter_server_stands_still_until_it_goes_on(two: TestCluster, sync: bool) -> None:
    gates = two.begin(2, 2, sync=sync)
    two.kill("ps0", signal.SIGSTOP)
    for gate in gates:
        gate.release(100)
    said = "cannot read the positions of the other workers" if sync else "parameter server that does not answer"
    for index in range(2):
        two.await_log(f"worker{index}", f"{said}: ps 0 at 127.0.0.1:")
    two.kill("ps0", signal.SIGCONT)
    two.join()
    assert two.got() == ALL


def test_sigterm_for_all_tasks_saves_what_the_steps_have_trained(four: TestCluster, model: str) -> None:
    four.begin(5, 7, checkpoint_dir=model)
    # The servers first, as it may happen.
    for server in ("ps0", "ps1"):
        four.processes[server].send_signal(signal.SIGTERM)
        four.await_log(server, "got SIGTERM, and serves until worker 0 has left, which may save the model.")
    for worker in ("worker0", "worker1"):
        four.processes[worker].send_signal(signal.SIGTERM)
    # The other worker saves nothing.
    codes = {"ps0": 143, "ps1": 143, "worker0": 143, "worker1": -signal.SIGTERM}
    assert {task: process.wait() for task, process in four.processes.items()} == codes
    assert [record for record, count in enumerate(seen_in(model)) if count] == four.got()


@pytest.mark.parametrize("workers", [0, 1])
def test_sigterm_ends_a_parameter_server_without_a_chief_and_twice_at_once(four: TestCluster, workers: int) -> None:
    four.begin(*[1] * workers)
    for server in ("ps1", "ps0"):
        four.await_notes(server, "serving")
        process = four.processes[server]
        process.send_signal(signal.SIGTERM)
        if workers:
            four.await_log(server, "got SIGTERM")
            process.send_signal(signal.SIGTERM)
        assert process.wait() in ([-signal.SIGTERM] if workers else [143, -signal.SIGTERM])
