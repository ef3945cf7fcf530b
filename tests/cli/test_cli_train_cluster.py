"""`staging-tf1 train` on a cluster: the workers share the images, the chief reports, and nobody is left behind."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import pytest
from clusters import TestCluster
from forked import ForkServer
from processes import RunPython
from slow import with_slow

IMAGES = 1442


@pytest.fixture
def two(fork_server: ForkServer, tmp_path: Path) -> Iterator[TestCluster]:
    """A cluster of one parameter server and two workers; nothing is started."""
    cluster = TestCluster(fork_server, tmp_path, workers=2)
    yield cluster
    cluster.close()


def train(cluster: TestCluster, *flags: str, sync: bool = False) -> None:
    environment = {"STAGING_TF1_SYNC": "1"} if sync else {}
    for job, addresses in cluster.jobs.items():
        for index in range(len(addresses)):
            cluster.start_program(f"{job}{index}", ["-m", "staging_tf1", "train", *flags], environment)


# `staged` trains without sync as `lockstep` does.
@pytest.mark.slow_cases("staged-False")
@pytest.mark.parametrize(
    ("workflow", "sync"), [("staged", False), ("staged", True), ("lockstep", False), ("classic", False)]
)
def test_each_worker_trains_on_its_share_and_the_chief_reports(
    two: TestCluster, tmp_path: Path, workflow: str, sync: bool
) -> None:
    first, other = "worker0", "worker1"
    if workflow == "lockstep":
        # The cluster that `staging-tf1 launch` describes.
        first, other = "chief0", "worker0"
        chief, worker = two.jobs["worker"]
        two.jobs = {"chief": [chief], "worker": [worker], "ps": two.jobs["ps"]}
    logdir = tmp_path / "logs"
    epochs, batch_size = (5 if with_slow() else 3), 32
    flags = ("--workflow", workflow, "--epochs", epochs, "--batch-size", batch_size, "--logdir", logdir)
    train(two, *map(str, flags), sync=sync)
    two.join()
    share = f"{epochs * IMAGES // 2:,} of {epochs * IMAGES:,}"
    # An epoch of `staged` ends with a smaller batch; the shuffle queue of `classic` knows no epochs.
    of_an_epoch = -(-IMAGES // 2 // batch_size)
    batches = epochs * of_an_epoch if workflow != "classic" else -(-epochs * IMAGES // 2 // batch_size)
    said = two.log(first)
    assert re.search(rf"^{workflow}: {batches} batches, .*waited \d+\.\d+ s for input.*$", said, re.MULTILINE), said
    assert re.search(rf"^trained on {share} examples in \d+\.\d s \([\d,]+ examples/s\)$", said, re.MULTILINE), said
    accuracy = re.search(r"^test accuracy (\d\.\d{3}) \(\d+ of 355\)$", said, re.MULTILINE)
    assert accuracy is not None, said
    assert float(accuracy[1]) >= (0.93 if with_slow() else 0.9)
    # The last checkpoint was saved when all had finished. In sync, a step takes a batch of each worker.
    steps = max(int(path.suffixes[0].removeprefix(".ckpt-")) for path in logdir.glob("model.ckpt-*.index"))
    assert batches - 20 < steps <= batches if sync else steps == 2 * batches
    # Another worker prints what it waits for, and one line at the end.
    printed = [line for line in two.log(other).splitlines() if not is_tensorflows(line)]
    assert re.fullmatch(rf"worker {other[-1]} trained on {share} examples in \d+\.\d s", printed[-1])
    assert all(f"worker {other[-1]} waits for" in line for line in printed[:-1]), printed
    assert "Traceback" not in two.logs()


def is_tensorflows(line: str) -> bool:
    """Whether TensorFlow's C++ side has logged the line."""
    return re.match(r"[IWE]0000 |WARNING: All log messages before absl|To enable the following", line) is not None


def test_classic_refuses_to_train_in_sync_with_one_line(two: TestCluster) -> None:
    train(two, "--workflow", "classic", sync=True)
    for task, process in two.processes.items():
        assert process.wait() == 1
        said = [line for line in two.log(task).splitlines() if not is_tensorflows(line)]
        assert said == [
            "staging-tf1 train: --workflow classic does not train in sync (STAGING_TF1_SYNC=1): only staged() counts "
            "the steps of all workers, so that none runs ahead. Use --workflow staged or lockstep, or train without "
            "sync."
        ]


@pytest.mark.parametrize(
    ("config", "message"),
    [
        ("{", "TF_CONFIG is not valid JSON"),
        (
            '{"cluster": {"worker": ["h:1"], "ps": ["h:2"]}, "task": {"type": "ps", "index": 1}}',
            "TF_CONFIG: task index 1 ",
        ),
        (
            '{"cluster": {"worker": ["h:1"]}, "task": {"type": "evaluator", "index": 0}}',
            "TF_CONFIG makes this process evaluator 0, but the chief tests the model. Leave it out.",
        ),
    ],
)
def test_a_wrong_cluster_gets_one_line(config: str, message: str, run_python: RunPython) -> None:
    done = run_python("-m", "staging_tf1", "train", env={"TF_CONFIG": config})
    assert done.returncode == 1
    said = [line for line in done.stderr.splitlines() if not is_tensorflows(line)]
    assert len(said) == 1
    assert said[0].startswith(f"staging-tf1 train: {message}")


# Its cluster is that of `launch`.
@pytest.mark.slow
def test_the_command_of_the_readme(run_python: RunPython) -> None:
    """Real processes, each with its own TensorFlow."""
    command = ["-m", "staging_tf1", "launch", "--workers", 2, "--ps", 1, "--", "-m", "staging_tf1", "train"]
    done = run_python(*command)
    assert done.returncode == 0, done.stderr
    accuracy = re.search(r"^\[chief 0\]  test accuracy (\d\.\d+) \(\d+ of 355\)$", done.stdout, re.MULTILINE)
    assert accuracy is not None, done.stdout
    assert float(accuracy[1]) >= (0.93 if with_slow() else 0.9)
    workers = re.findall(r"^\[worker 0\] .*$", done.stdout, re.MULTILINE)
    assert len(workers) == 1
    assert re.fullmatch(r"\[worker 0\] worker 0 trained on 21,630 of 43,260 examples in \d+\.\d s", workers[0])
    assert "Traceback" not in done.stderr
