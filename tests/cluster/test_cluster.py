"""Training on a cluster of real processes: shares, the start, and what is refused."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest
from cluster_models import seen_in
from clusters import TestCluster, long_form, until
from forked import ForkServer
from load import slowdown
from slow import with_slow

DYNAMIC: dict[str, Any] = {"staged_options": {"share": "dynamic"}}
ALL, ONCE = list(range(120)), [1] * 120


@pytest.mark.parametrize(
    "by_hand", [False, pytest.param(True, marks=long_form)], ids=["StagingSession", "MonitoredTrainingSession"]
)
def test_a_second_run_on_the_same_servers_starts_afresh(two: TestCluster, model: str, by_hand: bool) -> None:
    # Servers as TensorFlow 1 programs start them: they never return.
    two.start("serve_forever", "ps0", two.jobs, 0)
    for run in range(2):
        for index in range(2):
            two.start_worker(index, checkpoint_dir=f"{model}{run}", by_hand=by_hand)
        two.join("worker0", "worker1", secs=90.0)
        assert two.got() == sorted(ALL * (run + 1))
        # The last checkpoint was written after both had ended.
        assert seen_in(f"{model}{run}") == ONCE
    assert len(two.got("worker0")) == len(two.got("worker1"))


def test_a_slow_worker_gets_less_and_everything_comes_once(
    make_cluster: Callable[..., TestCluster], model: str
) -> None:
    three = make_cluster(3)
    gates = three.begin(1, 1, 1, checkpoint_dir=model, **DYNAMIC)
    for fast in (0, 2):
        gates[fast].release(50)
    until(lambda: len(three.got("worker0", "worker2")) >= 84, "the fast ones have 28 batches of 40")
    gates[1].release(50)
    three.join()
    assert three.got() == ALL and len(three.got("worker1")) <= 36
    # Of all workers together, in batches.
    assert [three.notes(f"worker{index}", "stats") for index in range(3)] == [[[[40]]]] * 3
    assert seen_in(model) == ONCE
    assert three.notes("ps0", "left") == [None]


@long_form
def test_a_worker_that_ends_early_leaves_its_batches_to_the_others(two: TestCluster, model: str) -> None:
    two.start_ps()
    gate = two.gate(1)
    two.start_worker(0, stop_after=3, checkpoint_dir=model, **DYNAMIC)
    two.start_worker(1, gate, **DYNAMIC)
    two.await_notes("worker0", "got", 3)
    gate.release(50)
    two.join()
    assert len(two.got("worker0")) == 9
    assert two.got() == ALL and seen_in(model) == ONCE


# A session made by hand begins again as in test_cluster_faults.py.
@pytest.mark.slow_cases("True")
@pytest.mark.parametrize("by_hand", [False, True])
def test_a_start_that_fails_gives_back_nothing_of_the_next_one(
    make_cluster: Callable[..., TestCluster], by_hand: bool
) -> None:
    cluster = make_cluster(1)
    cluster.start_ps()
    cluster.start_worker(0, fails_at_start=True, by_hand=by_hand, **DYNAMIC)
    cluster.join()
    assert cluster.notes("worker0", "began") == [0, 0]
    assert cluster.got() == ALL


@long_form
def test_fewer_and_more_workers_resume_by_arithmetic(make_cluster: Callable[..., TestCluster], model: str) -> None:
    total: list[int] = []
    # 12, 24 and 28 batches: each number of workers divides what was consumed evenly.
    for workers, steps in ((2, 6), (3, 4), (1, 4), (4, None)):
        cluster = make_cluster(workers)
        cluster.start_ps()
        for index in range(workers):
            cluster.start_worker(index, checkpoint_dir=model, stop_after=steps)
        cluster.join()
        total += cluster.got()
    assert sorted(total) == ALL and seen_in(model) == ONCE


def test_a_run_goes_on_with_another_number_of_workers_and_without_others(
    make_cluster: Callable[..., TestCluster], model: str
) -> None:
    numbers = (2, 3) if with_slow() else (2,)
    for workers in numbers:
        cluster = make_cluster(workers)
        gates = cluster.begin(1, *[3] * (workers - 1), checkpoint_dir=model, save_steps=1, **DYNAMIC)
        gates[0].release(3)
        # The checkpoint has gaps: what the others had been given.
        cluster.await_notes("worker0", "got", 4)
        cluster.close()
    alone = make_cluster(1)
    alone.start("train", "worker0", None, None, None, checkpoint_dir=model, **DYNAMIC)
    alone.join()
    assert len(alone.got()) == 120 - sum(3 * (4 + 3 * (workers - 1)) for workers in numbers)
    assert seen_in(model) == ONCE


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


@pytest.mark.slow_cases("MonitoredTrainingSession")
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


def test_who_is_missing_at_the_start_is_named(two: TestCluster) -> None:
    two.start_worker(0, options={"start_timeout_secs": 1.5})
    missing = f"ClusterError: worker 0: ps 0 at {two.jobs['ps'][0]} does not answer after 2 s ("
    assert two.raised("worker0").startswith(missing)
    assert "worker 0 waits for ps 0 at" in two.log("worker0")
    two.start_ps()
    two.start_worker(1, options={"start_timeout_secs": 2.0})
    assert two.raised("worker1").startswith("ClusterError: worker 1 has waited 2 s for worker 0 at 127.0.0.1:")


def test_workers_are_told_why_the_chief_could_not_begin(two: TestCluster, model: str) -> None:
    # A checkpoint of another model; a cluster of one writes it as well.
    two.start("train", "before", None, None, None, checkpoint_dir=model, stop_after=3)
    two.join()
    two.start_ps()
    for index in range(2):
        two.start_worker(index, checkpoint_dir=model, num_records=119)
    two.raised("worker0")
    failed = "ClusterError: worker 0 could not begin: "
    assert two.raised("worker1").startswith(f"{failed}CheckpointError: checkpoint")
    said = "ClusterError: worker 0 saves checkpoints and summaries by the global step, and the graph"
    for index, expected in enumerate([said, f"{failed}{said}"]):
        two.start("train_without_step", f"without{index}", two.jobs, index, f"{model} without")
        assert two.raised(f"without{index}").startswith(expected)


def test_servers_that_know_the_workers_in_another_order_are_named(make_cluster: Callable[..., TestCluster]) -> None:
    cluster = make_cluster(ps=2)
    first, second = cluster.jobs["worker"]
    cluster.start_ps(0)
    cluster.start("serve", "ps1", {**cluster.jobs, "worker": [second, first]}, 1)
    for index in range(2):
        cluster.start_worker(index)
    for task, name in (("ps1", "ps 1"), ("worker0", "worker 0"), ("worker1", "worker 1")):
        here, there, other = (second, first, "the chief") if task == "ps1" else (first, second, "ps 1")
        message = cluster.raised(task)
        assert re.match(rf"ClusterError: .*{name} and {other} \(process \d+ on \S+\) describe the cluster", message)
        assert f"worker 0 is {here} here, {there} there; worker 1 is {there} here, {here} there. Give all" in message


# What is refused while a run is under way. Nothing of it changes the run.


@pytest.fixture(scope="module", params=["static", pytest.param("dynamic", marks=pytest.mark.slow)])
def share(request: pytest.FixtureRequest) -> str:
    """How the workers of `begun` share their input."""
    return str(request.param)


@pytest.fixture(scope="module")
def begun(fork_server: ForkServer, tmp_path_factory: pytest.TempPathFactory, share: str) -> Iterator[TestCluster]:
    """A cluster of two workers, whose chief has made a step. The other worker has not started."""
    cluster = TestCluster(fork_server, tmp_path_factory.mktemp("begun"), workers=2)
    try:
        cluster.begin(1, seed=5, staged_options={"share": share})
        yield cluster
    finally:
        cluster.close()


def test_the_second_process_for_a_task_is_told(begun: TestCluster) -> None:
    # On the same machine, where the port is taken.
    begun.start("train", "second", begun.jobs, "worker", 0)
    message = begun.raised("second")
    assert message.startswith("ClusterError: worker 0 cannot listen on port")
    assert "Perhaps another process runs worker 0" in message
    # On another machine, whose name for itself leads here.
    begun.start("claim_elsewhere", "elsewhere", begun.jobs, "worker", 0)
    assert begun.raised("elsewhere").startswith("ClusterError: Another process runs worker 0 at 127.0.0.1:")


def told(argument: str, theirs: object, own: object) -> str:
    return (
        f"ClusterError: pipeline 'train': the chief has {argument}={theirs!r}, and worker 1 has {argument}={own!r}. "
        f"Give the source the same {argument}= in every worker, so that no record is read twice or by nobody."
    )


OTHERS: dict[str, tuple[dict[str, Any], str]] = {
    "batch size": ({"batch_size": 4}, "batch_size was 3, is 4"),
    "epochs": ({"epochs": 2}, told("epochs", 1, 2)),
    "transform": ({"transform": np.real}, told("transform", "", "real")),
    "records": ({"rotated_by": 1}, "pipeline 'train': the array of the source of worker 1 differs from that of "),
    "another share": ({}, ": the chief has share='{0}', and worker 1 has share='{1}'. Give staged() the same share="),
    "own": ({}, ": the chief has share='{0}', and worker 1 has share='own'. Give staged() the same share="),
}


@pytest.mark.parametrize("what", OTHERS)
def test_a_worker_with_another_input_than_the_chief_is_told(begun: TestCluster, share: str, what: str) -> None:
    options, said = OTHERS[what]
    other = "static" if share == "dynamic" else "dynamic"
    given = {"staged_options": {"share": {"another share": other, "own": "own"}.get(what, share)}, **options}
    begun.start("train", what, begun.jobs, "worker", 1, seed=5, **given)
    message = begun.raised(what)
    assert message.startswith("ClusterError: ") and said.format(share, other) in message
    assert not begun.notes(what, "got")


def test_a_worker_with_more_variables_than_the_chief_is_told(begun: TestCluster) -> None:
    begun.start("build_more", "more variables", begun.jobs)
    assert begun.raised("more variables") == (
        "ClusterError: worker 1 has variables 'more', and the graph of the chief has not. Build the same model and "
        "the same pipelines in all workers."
    )


def test_processes_that_describe_the_cluster_differently_are_told(begun: TestCluster) -> None:
    others = {**begun.jobs, "worker": [*begun.jobs["worker"], "127.0.0.1:9"]}
    begun.start("train", "differs", others, "worker", 1)
    assert "describe the cluster differently: worker 2 is 127.0.0.1:9 here, absent there" in begun.raised("differs")


def test_a_chief_that_returns_with_another_input_is_told_and_ends_nobody(two: TestCluster) -> None:
    gates = two.begin(1, 1)
    two.kill("worker0")
    two.start_worker(0, gates[0], epochs=2)
    said = "pipeline 'train': the run that is under way has epochs=1, and worker 0 has epochs=2. Give"
    assert said in two.raised("worker0")
    # With the right number it continues.
    two.start_worker(0, gates[0])
    for gate in gates:
        gate.release(100)
    two.join()
