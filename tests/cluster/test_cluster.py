"""Training on a cluster of real processes: shares, the start, the end, faults."""

from __future__ import annotations

import re
import signal
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from cluster_models import seen_in
from clusters import TestCluster, long_form
from forked import ForkServer
from load import slowdown


@pytest.fixture
def two(fork_server: ForkServer, tmp_path: Path) -> Iterator[TestCluster]:
    """A cluster of one parameter server and two workers; nothing is started."""
    cluster = TestCluster(fork_server, tmp_path, workers=2)
    yield cluster
    cluster.close()


# An end as in test_a_second_run_on_the_same_servers_starts_afresh.
@pytest.mark.slow
def test_two_workers_share_a_source_and_everybody_ends(two: TestCluster, tmp_path: Path) -> None:
    two.start_ps()
    for index in range(2):
        two.start_worker(index, checkpoint_dir=str(tmp_path / "model"))
    two.join()
    got = [two.got(f"worker{index}") for index in range(2)]
    assert [len(each) for each in got] == [60, 60]
    assert sorted(got[0] + got[1]) == list(range(120))
    # The last checkpoint was written after both had ended.
    assert seen_in(tmp_path / "model") == [1] * 120
    assert two.notes("ps0", "left") == [None]


def test_a_killed_worker_goes_on_behind_its_position(two: TestCluster, tmp_path: Path) -> None:
    model = str(tmp_path / "model")
    two.start_ps()
    two.start_worker(0, checkpoint_dir=model)
    go = two.gate(5)
    two.start_worker(1, go)
    two.await_notes("worker1", "got", 5)
    two.kill("worker1")
    # The chief ends its share, and waits for the other worker.
    two.await_notes("worker0", "got", 20)
    two.start_worker(1)
    two.join()
    assert sorted(two.got("worker0") + two.got("worker1")) == list(range(120))
    assert seen_in(tmp_path / "model") == [1] * 120


def test_a_killed_chief_goes_on_and_initializes_nothing(two: TestCluster, tmp_path: Path) -> None:
    model = str(tmp_path / "model")
    two.start_ps()
    go, other = two.gate(5), two.gate(7)
    two.start_worker(0, go, checkpoint_dir=model)
    two.start_worker(1, other)
    two.await_notes("worker0", "got", 5)
    two.await_notes("worker1", "got", 7)
    two.kill("worker0")
    two.start_worker(0, checkpoint_dir=model)
    other.release()
    two.await_notes("worker1", "got", 8)
    other.release(20)
    two.join()
    assert sorted(two.got("worker0") + two.got("worker1")) == list(range(120))
    assert seen_in(tmp_path / "model") == [1] * 120
    assert len(two.notes("worker1", "session")) == 1


# A killed server as in test_cluster_kills.py and test_cluster_faults.py.
@pytest.mark.slow
def test_a_killed_parameter_server_takes_everybody_back_to_the_checkpoint(two: TestCluster, tmp_path: Path) -> None:
    model = str(tmp_path / "model")
    two.start_ps()
    gates = [two.gate(8), two.gate(6)]
    for index, go in enumerate(gates):
        two.start_worker(index, go, checkpoint_dir=model, save_steps=4)
    two.await_notes("worker0", "got", 8)
    two.await_notes("worker1", "got", 6)
    two.kill("ps0")
    two.start_ps()
    for go in gates:
        go.release(40)
    two.join()
    # What the model has seen is exact; what the steps have returned is more: some were lost with the server.
    assert seen_in(tmp_path / "model") == [1] * 120
    got = Counter(two.got("worker0") + two.got("worker1"))
    assert sorted(got) == list(range(120))


@pytest.mark.parametrize(
    "by_hand",
    [False, pytest.param(True, marks=long_form)],
    ids=["StagingSession", "MonitoredTrainingSession"],
)
def test_a_second_run_on_the_same_servers_starts_afresh(two: TestCluster, tmp_path: Path, by_hand: bool) -> None:
    # Servers as TensorFlow 1 programs start them: they never return.
    two.start("serve_forever", "ps0", two.jobs, 0)
    for run in range(2):
        model = str(tmp_path / f"model{run}")
        for index in range(2):
            two.start_worker(index, checkpoint_dir=model, by_hand=by_hand)
        two.join("worker0", "worker1", secs=90.0)
        got = two.got("worker0") + two.got("worker1")
        assert sorted(got) == sorted(list(range(120)) * (run + 1))
        assert seen_in(tmp_path / f"model{run}") == [1] * 120


@long_form
def test_fewer_and_more_workers_resume_by_arithmetic(fork_server: ForkServer, tmp_path: Path) -> None:
    model = tmp_path / "model"
    total: list[int] = []
    # 12, 24 and 28 batches: each number of workers divides what was consumed evenly.
    for workers, steps in ((2, 6), (3, 4), (1, 4), (4, None)):
        (tmp_path / str(workers)).mkdir()
        cluster = TestCluster(fork_server, tmp_path / str(workers), workers)
        try:
            cluster.start_ps()
            for index in range(workers):
                cluster.start_worker(index, checkpoint_dir=str(model), stop_after=steps)
            cluster.join()
            total += [record for index in range(workers) for record in cluster.got(f"worker{index}")]
            seen = seen_in(model)
        finally:
            cluster.close()
    assert Counter(total) == Counter(range(120))
    assert seen == [1] * 120


@long_form
def test_a_chief_made_by_hand_that_restarts_takes_the_others_with_it(two: TestCluster, tmp_path: Path) -> None:
    # Its MonitoredTrainingSession restores the checkpoint over the model that the other worker trains.
    model = str(tmp_path / "model")
    two.start_ps()
    gates = [two.gate(4), two.gate(4)]
    for index, go in enumerate(gates):
        two.start_worker(index, go, checkpoint_dir=model, save_steps=2, by_hand=True)
    for index in range(2):
        two.await_notes(f"worker{index}", "got", 4)
    two.kill("worker0")
    two.start_worker(0, checkpoint_dir=model, save_steps=2, by_hand=True)
    two.await_notes("worker0", "session", 2)
    gates[1].release(40)
    two.join(secs=120.0)
    assert seen_in(tmp_path / "model") == [1] * 120


def test_a_worker_that_is_stopped_for_a_while_goes_on(two: TestCluster, tmp_path: Path) -> None:
    two.start_ps()
    two.start_worker(0, checkpoint_dir=str(tmp_path / "model"))
    go = two.gate(5)
    two.start_worker(1, go)
    two.await_notes("worker1", "got", 5)
    two.kill("worker1", signal.SIGSTOP)
    two.await_notes("worker0", "got", 20)
    two.kill("worker1", signal.SIGCONT)
    go.release(20)
    two.join()
    assert seen_in(tmp_path / "model") == [1] * 120


@pytest.mark.parametrize(
    ("number", "allow_missing"),
    [(signal.SIGKILL, False), (signal.SIGKILL, True), pytest.param(signal.SIGTERM, False, marks=long_form)],
)
def test_a_worker_that_never_returns_is_named(
    two: TestCluster, tmp_path: Path, number: int, allow_missing: bool
) -> None:
    quick = {"silence_secs": 2.0}
    two.start_ps(**quick)
    two.start_worker(0, checkpoint_dir=str(tmp_path / "model"), options={**quick, "allow_missing": allow_missing})
    two.start_worker(1, two.gate(5), options=quick)
    two.await_notes("worker1", "got", 5)
    two.kill("worker1", number)
    if allow_missing:
        two.join("worker0", "ps0")
        assert two.log("worker0").count("StagingWarning: worker 0 ends without worker 1 at 127.0.0.1:") == 1
    else:
        # After the last checkpoint.
        two.join("ps0")
        assert two.processes["worker0"].wait() == 1
        (message,) = two.notes("worker0", "raised")
        assert message.startswith("ClusterError: worker 0 has ended without worker 1 at 127.0.0.1:"), message
        assert "Start the cluster again, or allow that with Cluster(allow_missing=True)." in message
    if allow_missing:
        assert two.notes("worker0", "stats") == [[[20, 5]]]
    # Its rest is trained by a later run.
    two.start_ps(**quick)
    two.start_worker(0, checkpoint_dir=str(tmp_path / "model"))
    two.start_worker(1)
    two.join("worker0", "worker1", "ps0")
    assert seen_in(tmp_path / "model") == [1] * 120


@pytest.mark.parametrize("lockstep", [False, True])
def test_a_chief_of_two_towers_saves_after_the_others_have_ended(
    two: TestCluster, tmp_path: Path, lockstep: bool
) -> None:
    options: dict[str, Any] = {"devices": 2, "by_hand": True, "checkpoint_dir": str(tmp_path / "model")}
    options["staged_options"] = {"lockstep": lockstep}
    two.start_ps()
    go = two.gate(3)
    two.start_worker(0, **options)
    two.start_worker(1, go, **options)
    two.await_notes("worker0", "got", 10)
    two.await_log("worker0", "worker 0 waits for worker 1")
    go.release(20)
    two.join()
    assert seen_in(tmp_path / "model") == [1] * 120


def test_what_stands_where_and_what_crosses_the_network(two: TestCluster) -> None:
    two.start_ps()
    for index in range(2):
        two.start("show_places", f"worker{index}", two.jobs, index)
    two.join()
    for index in range(2):
        (places,) = two.notes(f"worker{index}", "places")
        own, shared = f"/job:worker/replica:0/task:{index}", "/job:ps/replica:0/task:0"
        assert {device for _, device in places} == {own, shared}
        # The position with its check and its advance is shared; whatever holds or counts batches is the worker's own.
        kinds = {device: {op for op, where in places if where == device} for device in (own, shared)}
        assert {"QueueDequeueV2", "QueueEnqueueV2", "QueueSizeV2", "Timestamp"} <= kinds[own]
        assert not any(re.search("Stage|Unstage|Queue|Timestamp|Sum", op) for op in kinds[shared]), kinds[shared]
        assert {"LookupTableFindV2", "Equal", "Assert", "AssignAddVariableOp"} <= kinds[shared]
        (crossing,) = two.notes(f"worker{index}", "crossing")
        # Of the pipeline, a step sends its token and learns that it was counted. No batch, and nothing else, because
        # each tensor costs the server a tenth of a millisecond.
        assert len(crossing) == 2, crossing
        assert all(nbytes <= 64 for nbytes in crossing.values()), crossing


@pytest.mark.parametrize(
    ("by_hand", "share"),
    [(False, "static"), (True, "dynamic")],
    ids=["StagingSession", "MonitoredTrainingSession"],
)
def test_a_worker_notices_at_once_that_the_chief_has_begun(two: TestCluster, by_hand: bool, share: str) -> None:
    options = {"by_hand": by_hand, "staged_options": {"share": share}}
    two.start_ps()
    two.start_worker(1, **options)
    two.await_log("worker1", "worker 1 waits for worker 0 at 127.0.0.1:")
    two.start_worker(0, **options)
    two.join()
    began = [two.notes(f"worker{index}", "session")[0] for index in range(2)]
    # TensorFlow looks every 30 seconds. With dynamic shares, the chief can have trained everything by then, and waits.
    assert began[1] - began[0] < 2.0 * max(1.0, slowdown())


def test_a_missing_parameter_server_is_named(two: TestCluster) -> None:
    two.start_worker(0, options={"start_timeout_secs": 1.5})
    two.await_notes("worker0", "raised")
    (message,) = two.notes("worker0", "raised")
    assert message.startswith(f"ClusterError: worker 0: ps 0 at {two.jobs['ps'][0]} does not answer after 2 s (")
    assert "worker 0 waits for ps 0 at" in two.log("worker0")


def test_a_missing_chief_is_named(two: TestCluster) -> None:
    two.start_ps()
    two.start_worker(1, options={"start_timeout_secs": 2.0})
    two.await_notes("worker1", "raised")
    (message,) = two.notes("worker1", "raised")
    assert message.startswith("ClusterError: worker 1 has waited 2 s for worker 0 at 127.0.0.1:")


@pytest.mark.slow  # test_cluster_faults.py has servers that stand still
def test_a_step_that_waits_for_a_parameter_server_says_so(two: TestCluster) -> None:
    two.start_ps()
    two.start_worker(0)
    go = two.gate(2)
    two.start_worker(1, go)
    two.await_notes("worker1", "got", 2)
    two.kill("ps0", signal.SIGSTOP)
    go.release()
    two.await_log("worker1", "parameter server that does not answer: ps 0 at 127.0.0.1:")
    two.kill("ps0", signal.SIGCONT)
    go.release(40)
    two.join()
    assert sorted(two.got("worker0") + two.got("worker1")) == list(range(120))


def test_workers_are_told_why_the_chief_could_not_begin(two: TestCluster, tmp_path: Path) -> None:
    model = str(tmp_path / "model")
    # A checkpoint of another model; a cluster of one writes it as well.
    two.start("train", "before", None, None, None, checkpoint_dir=model, stop_after=3)
    two.join()
    two.start_ps()
    two.start_worker(0, checkpoint_dir=model, num_records=119)
    two.start_worker(1, num_records=119)
    for index in range(2):
        two.await_notes(f"worker{index}", "raised")
    (message,) = two.notes("worker1", "raised")
    assert message.startswith("ClusterError: worker 0 could not begin: CheckpointError: checkpoint")


# What is refused while a run is under way. Nothing of it changes the run.


@pytest.fixture(scope="module")
def begun(fork_server: ForkServer, tmp_path_factory: pytest.TempPathFactory) -> Iterator[TestCluster]:
    """A cluster of two workers, whose chief has made a step. The other worker has not started."""
    cluster = TestCluster(fork_server, tmp_path_factory.mktemp("begun"), workers=2)
    try:
        cluster.start_ps()
        cluster.start_worker(0, cluster.gate(1))
        cluster.await_notes("worker0", "got")
        yield cluster
    finally:
        cluster.close()


def refusal(cluster: TestCluster, task: str) -> str:
    """What `task` raises. Its address is free afterwards."""
    cluster.await_notes(task, "raised")
    cluster.processes[task].wait()
    (message,) = cluster.notes(task, "raised")
    return str(message)


def test_the_second_process_for_a_task_is_told(begun: TestCluster) -> None:
    # On the same machine, where the port is taken.
    begun.start("train", "second", begun.jobs, "worker", 0)
    message = refusal(begun, "second")
    assert message.startswith("ClusterError: worker 0 cannot listen on port")
    assert "Perhaps another process runs worker 0" in message
    # On another machine, whose name for itself leads here.
    begun.start("claim_elsewhere", "elsewhere", begun.jobs, "worker", 0)
    message = refusal(begun, "elsewhere")
    assert message.startswith("ClusterError: Another process runs worker 0 at 127.0.0.1:")


@long_form
def test_processes_that_describe_the_cluster_differently_are_told(begun: TestCluster) -> None:
    others = {**begun.jobs, "worker": [*begun.jobs["worker"], "127.0.0.1:9"]}
    begun.start("train", "differs", others, "worker", 1)
    message = refusal(begun, "differs")
    assert "describe the cluster differently: worker 2 is 127.0.0.1:9 here, absent there" in message


def test_a_worker_with_another_source_than_the_chief_is_told(begun: TestCluster) -> None:
    begun.start("train", "other source", begun.jobs, "worker", 1, batch_size=4)
    message = refusal(begun, "other source")
    assert "ClusterError: 'train'" in message and "batch_size was 3, is 4" in message


def test_a_worker_with_more_variables_than_the_chief_is_told(begun: TestCluster) -> None:
    begun.start("build_more", "more variables", begun.jobs)
    assert refusal(begun, "more variables") == (
        "ClusterError: worker 1 has variables 'more', and the graph of the chief has not. Build the same model and "
        "the same pipelines in all workers."
    )
    assert begun.processes["worker0"].poll() is None
