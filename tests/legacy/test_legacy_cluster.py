"""TensorFlow 1 programs with parameter servers, workers, actors and learners run unmodified, in real processes."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import pytest
from clusters import TestCluster, free_addresses, until
from forked import QUIET, ForkServer
from legacy_support import PROGRAMS, Run

FOLDER = PROGRAMS / "cluster"


@pytest.fixture
def two(fork_server: ForkServer, tmp_path: Path) -> Iterator[TestCluster]:
    """A cluster of one parameter server and two workers; nothing is started."""
    cluster = TestCluster(fork_server, tmp_path, workers=2)
    yield cluster
    cluster.close()


def start(cluster: TestCluster, program: str, task: str, *flags: str) -> None:
    """Start a forked process that runs `program` as `staging-tf1 run` does, with the flags of `task`."""
    job = task.rstrip("0123456789")
    hosts = [f"--{name}_hosts={','.join(addresses)}" for name, addresses in cluster.jobs.items()]
    words = [str(FOLDER / f"{program}.py"), *hosts, f"--job_name={job}", f"--task_index={task.removeprefix(job)}"]
    cluster.start("run_program", task, QUIET, [*words, *flags], legacy=True)


def await_line(cluster: TestCluster, task: str, line: str) -> None:
    until(lambda: line in cluster.log(task).splitlines(), lambda: f"{task} prints {line!r}\n{cluster.log(task)}")


def run_workers(cluster: TestCluster, program: str, *flags: str) -> None:
    """Run `program` on a parameter server, which never returns, and two workers, which do."""
    start(cluster, program, "ps0", *flags)
    start(cluster, program, "worker0", *flags)
    if program == "between_graph":
        # A worker that comes before the chief looks again after 30 seconds.
        await_line(cluster, "worker0", "worker 0 begins")
    start(cluster, program, "worker1", *flags)
    cluster.join("worker0", "worker1")
    assert cluster.processes["ps0"].poll() is None
    # No other signal: coverage has a handler for SIGTERM, which Python would call when the server has returned.
    cluster.kill("ps0")


def only(pattern: str, text: str) -> re.Match[str]:
    """The only match of `pattern` in `text`."""
    # Not by whole lines: Python writes a line and its end one after the other, and a thread may write between the two.
    (found,) = re.finditer(pattern, text)
    return found


def test_between_graph_replication_with_a_feed_queue_and_an_area(two: TestCluster) -> None:
    run_workers(two, "between_graph")
    for index in range(2):
        assert only(rf"worker {index}: 30 batches in order True, loss (0\.\d+)", two.log(f"worker{index}"))
    # The last to finish has counted the steps of both. Without a lock, as in TensorFlow 1, an addition may be lost.
    assert 55 <= max(int(only(r"global step (\d+)", two.log(f"worker{index}"))[1]) for index in range(2)) <= 60


def test_between_graph_replication_in_sync(two: TestCluster) -> None:
    run_workers(two, "between_graph", "--sync_replicas")
    batches = [
        int(only(rf"worker {index}: (\d+) batches in order True, loss 0\.\d+", two.log(f"worker{index}"))[1])
        for index in range(2)
    ]
    # Two gradients make a step. One worker may send both; those that come too late are dropped.
    assert sum(batches) >= 60 and min(batches) > 0


def test_variables_on_parameter_servers_are_staged(two: TestCluster) -> None:
    run_workers(two, "staged_variables", "--variable_update=parameter_server")
    ends = [two.log(f"worker{index}") for index in range(2)]
    for index, log in enumerate(ends):
        first, last = map(float, only(rf"worker {index}: 10 steps of all, loss from (.*) to (.*)", log).groups())
        # A gradient is 6 * (1 + index)**2 * weight, and the rate 0.01. The weights of the last step are staged, so they
        # lack one update; the other worker may take all its steps later.
        assert last <= first * (1 - 0.06 * (1 + index) ** 2) ** (2 * 3) + 1e-3
    assert only(r"weights (.*)", ends[0])[1] == only(r"weights (.*)", ends[1])[1]


def test_replicas_have_copies_of_the_variables(two: TestCluster) -> None:
    run_workers(two, "staged_variables", "--variable_update=distributed_replicated")
    for index in range(2):
        log = two.log(f"worker{index}")
        # TensorFlow 1.15.5 prints the same. Worker i's gradient is 6 * (1 + i)**2 * weight; the rate is 0.01.
        assert only(r"weights (.*)", log)[1] == only(r"copy (.*)", log)[1] == f"{0.7**5:.6f}"
        assert only(rf"worker {index}: 10 steps of all, loss from (.*) to (.*)", log)


@pytest.mark.slow  # test_legacy_estimator.py has one process
def test_workers_of_an_estimator_stage_their_parts(fork_server: ForkServer, tmp_path: Path) -> None:
    cluster = TestCluster(fork_server, tmp_path, workers=0, ps=0)
    cluster.jobs = {job: [address] for job, address in zip(("chief", "worker", "ps"), free_addresses(3), strict=True)}
    program = str(FOLDER / "estimator_staged.py")
    try:
        for job in cluster.jobs:
            cluster.start_program(f"{job}0", [program, str(tmp_path / "model")], QUIET, legacy=True)
        cluster.join("chief0", "worker0", secs=120)
    finally:
        cluster.close()
    own = int(only(r"chief: (\d+) batches in order True", cluster.log("chief0"))[1])
    others = int(only(r"worker: (\d+) batches in order True", cluster.log("worker0"))[1])
    assert own > 0 and others >= 20 and own + others >= 200
    # The checkpoints hold the position of the chief's part.
    assert only(r"position \[(\d+)\]", cluster.log("chief0"))[1] == str(own)


# What a task is told, and a name that exists only under the shim. Without TensorFlow, which three processes would load.
TASK = """
import argparse, collections.abc, time
parser = argparse.ArgumentParser()
for flag in ("--ps_hosts", "--worker_hosts", "--job_name", "--task_index"):
    parser.add_argument(flag)
told = parser.parse_args()
print("%s %s" % (told.job_name, told.task_index), told.ps_hosts, told.worker_hosts, collections.Mapping.__name__)
if told.job_name == "ps":
    time.sleep(1000)
"""


def launch(run_python: Run, program: Path) -> str:
    """Return what the workers print that `staging-tf1 launch` starts with `staging-tf1 run`."""
    hosts = ["--ps_hosts={ps_hosts}", "--worker_hosts={worker_hosts}", "--job_name={job_name}"]
    command = ["-m", "staging_tf1", "run", program, *hosts, "--task_index={task_index}"]
    ran = run_python("-m", "staging_tf1", "launch", "--workers", 2, "--grace", 1, "--", *command, env=QUIET)
    assert ran.returncode == 0, ran.stderr[-3000:]
    assert "staging-tf1 launch: ending ps 0: still running 1 s after all workers had finished" in ran.stderr
    printed: str = ran.stdout
    return printed


def test_launch_runs_a_program_with_its_flags_and_ends_the_server(run_python: Run, tmp_path: Path) -> None:
    program = tmp_path / "task.py"
    program.write_text(TASK)
    printed = launch(run_python, program)
    for tag, worker in {"chief 0": 0, "worker 0": 1}.items():
        words = rf"worker {worker} 127.0.0.1:\d+ 127.0.0.1:\d+,127.0.0.1:\d+ Mapping"
        assert only(rf"\[{tag}\] +{words}", printed)


# The program as in test_variables_on_parameter_servers_are_staged, and the command as with a program without
# TensorFlow.
@pytest.mark.slow
def test_launch_runs_a_cluster_of_tensorflow_1(run_python: Run) -> None:
    printed = launch(run_python, FOLDER / "staged_variables.py")
    for tag, worker in {"chief 0": 0, "worker 0": 1}.items():
        assert only(rf"\[{tag}\] +worker {worker}: 10 steps of all, loss from .* to .*", printed)


def test_a_learner_stages_the_trajectories_of_its_actors(
    with_contrib: None, fork_server: ForkServer, tmp_path: Path
) -> None:
    cluster = TestCluster(fork_server, tmp_path, workers=0, ps=0)
    learner, *actors = free_addresses(3)
    gone = tmp_path / "gone"
    hosts = [f"--learner_host={learner}", f"--actor_hosts={','.join(actors)}", f"--actors_gone={gone}"]

    def begin(job: str, index: int) -> None:
        words = [str(FOLDER / "actors_and_learner.py"), *hosts, f"--job_name={job}", f"--task={index}"]
        cluster.start("run_program", f"{job}{index}", QUIET, words, legacy=True)
        await_line(cluster, f"{job}{index}", f"{job} {index} begins")

    try:
        begin("learner", 0)
        for index in range(2):
            begin("actor", index)
        cluster.join("actor0", "actor1")
        gone.touch()
        cluster.join()
    finally:
        cluster.close()
    taken = re.findall(r"^took (\d) (\d+) (\w+)$", cluster.log("learner0"), re.MULTILINE)
    for index in range(2):
        sent = int(only(rf"actor {index} sent (\d+)", cluster.log(f"actor{index}"))[1])
        numbers = [int(number) for actor, number, is_right in taken if actor == str(index) and is_right == "True"]
        # In order, each once; the rest was in the queue, in the area or under way when the learner ended.
        assert numbers == list(range(len(numbers)))
        assert 10 <= len(numbers) <= sent <= len(numbers) + 4
