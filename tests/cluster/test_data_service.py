"""Input from the tf.data service: its order is never the same, and its servers may die."""

from __future__ import annotations

import socket
import subprocess
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tensorflow as tf2
import tensorflow.compat.v1 as tf
from forked import ForkServer, Program
from load import slowdown
from stalls import Reports, cause_in
from tensorflow.data.experimental import service

import staging_tf1 as staging
from staging_tf1.errors import ResumeError, StallError, StuckThreadWarning
from staging_tf1.graph.dependencies import service_behind

# TensorFlow warns of itself when its `distribute` is called in graph mode.
pytestmark = [
    pytest.mark.usefixtures("quick_graphs"),
    pytest.mark.filterwarnings("ignore:To make it possible to preserve tf.data options"),
]

RECORDS = 40
# Nobody listens there. Building a graph does not connect.
NOBODY = "localhost:1"
EXACT = (
    "staged(name='train') got resume='exact', the default, with a dataset that reads from the tf.data service at "
    "localhost:1. The service delivers in a new order each time, so no position in it can be resumed exactly. Use "
    "resume='restart' to begin a restored run with a new pass over the data, or resume='ignore' to drop as many "
    "batches of the new pass as had been consumed."
)

Dataset = tf2.data.Dataset


def served(dataset: Any, address: str = NOBODY, mode: str = "distributed_epoch") -> Any:
    return dataset.apply(service.distribute(mode, f"grpc://{address}"))


def numbers() -> Any:
    return served(Dataset.range(RECORDS))


# What is found in the graph. No server runs.


def in_a_branch() -> Any:
    pick = tf.data.experimental.to_variant
    chosen = tf.cond(tf.placeholder_with_default(True, []), lambda: pick(Dataset.range(3)), lambda: pick(numbers()))
    return tf.data.experimental.from_variant(chosen, tf.TensorSpec([], tf.int64))


def in_a_function_of_a_function() -> Any:
    return Dataset.range(2).interleave(lambda _: Dataset.range(2).flat_map(lambda _: numbers()))


def captured_by_a_function() -> Any:
    inner = numbers()
    return Dataset.range(2).flat_map(lambda _: inner)


def by_its_id() -> Any:
    known = service.register_dataset(f"grpc://{NOBODY}", Dataset.range(3))
    return service.from_dataset_id("parallel_epochs", f"grpc://{NOBODY}", known, tf.TensorSpec([], tf.int64))


FROM_THE_SERVICE: dict[str, Callable[[], Any]] = {
    "itself": numbers,
    "of TensorFlow 1": lambda: tf.data.Dataset.zip(numbers()),
    "by its id": by_its_id,
    "map, batch and prefetch": lambda: numbers().map(lambda x: 2 * x).batch(4).prefetch(1),
    "zip": lambda: Dataset.zip((Dataset.range(3), numbers())),
    "window": lambda: numbers().window(2).flat_map(lambda window: window),
    "captured": captured_by_a_function,
    "made in functions": in_a_function_of_a_function,
    "in a branch": in_a_branch,
}


@pytest.mark.parametrize("name", FROM_THE_SERVICE)
def test_an_exact_resume_is_refused(graph: Any, name: str) -> None:
    dataset = FROM_THE_SERVICE[name]()
    before = len(graph.get_operations())
    with pytest.raises(ValueError) as caught:
        staging.staged(dataset, name="train")
    # Tests that ran before in this process may have switched to branches that are no functions.
    in_function = "made in" in name or ("in a branch" in name and tf.control_flow_v2_enabled())
    expected = EXACT.replace("the tf.data service at localhost:1", "a tf.data service") if in_function else EXACT
    assert str(caught.value) == expected
    assert len(graph.get_operations()) == before, "a refused call adds no op"


def only_registered() -> Any:
    service.register_dataset(f"grpc://{NOBODY}", Dataset.range(3))
    return Dataset.range(3)


def as_long_as_one_of_the_service() -> Any:
    return Dataset.range(5).take(numbers().reduce(np.int64(0), lambda count, _: count + 1))


FROM_HERE: dict[str, Callable[[], Any]] = {
    "range": lambda: Dataset.range(3),
    "functions": lambda: Dataset.range(3).interleave(lambda x: Dataset.range(x).map(lambda y: y + x)).batch(2),
    "only registered": only_registered,
    "as long as one of the service": as_long_as_one_of_the_service,
}


@pytest.mark.parametrize("name", FROM_HERE)
def test_other_datasets_resume_exactly(graph: Any, name: str) -> None:
    staging.staged(FROM_HERE[name]())


def test_without_a_position_nothing_is_refused(graph: Any) -> None:
    element = tf.data.make_initializable_iterator(numbers()).get_next()
    staging.staged(element, name="tensors")
    assert tf.global_variables() == []


@pytest.mark.parametrize("make", [tf.data.make_initializable_iterator, tf.data.make_one_shot_iterator])
def test_the_service_is_found_behind_an_iterator(graph: Any, make: Callable[[Any], Any]) -> None:
    def found(dataset: Any) -> str:
        return service_behind((1 + make(dataset).get_next()).op)

    one_shot = make is tf.data.make_one_shot_iterator
    assert found(numbers()) == ("a tf.data service" if one_shot else "the tf.data service at localhost:1")
    assert found(Dataset.range(3)) == ""


# With servers.


class Cluster:
    """A dispatcher and its workers, in this process. Workers tell the dispatcher every 50 ms that they are alive."""

    def __init__(self) -> None:
        self.dispatcher = service.DispatchServer()
        self.address = self.dispatcher.target.split("://")[1]
        self.workers: list[Any] = []

    def add_worker(self, port: int = 0) -> None:
        config = service.WorkerConfig(
            dispatcher_address=self.address, port=port, heartbeat_interval_ms=50, dispatcher_timeout_ms=1000
        )
        self.workers.append(service.WorkerServer(config))

    def stop(self) -> None:
        for worker in self.workers:
            worker.stop()
        self.dispatcher.stop()


@contextmanager
def running(workers: int) -> Iterator[Cluster]:
    cluster = Cluster()
    try:
        for _ in range(workers):
            cluster.add_worker()
        yield cluster
    finally:
        cluster.stop()


# A dispatcher and two workers, or a worker at a port of a dispatcher, until the standard input ends.
SERVERS = """
import sys
from tensorflow.data.experimental import service
if sys.argv[1:]:
    address, ports = sys.argv[1], [int(sys.argv[2])]
else:
    dispatcher, ports = service.DispatchServer(), [0, 0]
    address = dispatcher.target.partition("://")[2]
configs = [service.WorkerConfig(dispatcher_address=address, port=port, heartbeat_interval_ms=50) for port in ports]
workers = [service.WorkerServer(config) for config in configs]
print(address, flush=True)
sys.stdin.read()
"""


@pytest.fixture(scope="module")
def address(fork_server: ForkServer) -> Iterator[str]:
    """The address of a dispatcher with two workers, in a process to kill: a stop of the workers may take minutes."""
    with fork_server.start("-c", SERVERS, stdin=subprocess.PIPE, stderr=subprocess.DEVNULL) as child:
        try:
            assert child.stdout is not None
            served_at = child.stdout.readline().strip()
            assert served_at, "the servers have not started"
            yield served_at
        finally:
            child.kill()


def all_of(x: Any) -> list[int]:
    """Return the records of all steps of a new session, to the end of the data."""
    got: list[int] = []
    with staging.StagingSession() as sess:
        while not sess.should_stop():
            got += np.ravel(sess.run(x)).tolist()
    return got


@pytest.mark.parametrize(
    ("mode", "times"), [("distributed_epoch", 1), ("parallel_epochs", 2), (service.ShardingPolicy.OFF, 2)]
)
def test_every_record_comes_once_or_from_every_worker(graph: Any, address: str, mode: Any, times: int) -> None:
    x = staging.staged(served(Dataset.range(RECORDS), address, mode), resume="restart")
    assert Counter(all_of(x)) == dict.fromkeys(range(RECORDS), times)


def test_towers_and_lockstep(graph: Any, address: str) -> None:
    dataset = served(Dataset.range(RECORDS), address).batch(2)
    towers = staging.staged(dataset, devices=["/cpu:0"] * 2, lockstep=True, resume="restart")
    assert sorted(all_of(tf.concat(towers, 0))) == list(range(RECORDS))


def part(folder: Path, dataset: Callable[[], Any], count: int | None = None, **staged: Any) -> tuple[list[int], Any]:
    """Take up to `count` batches in a session that restores `folder`. Return them, and the position that is saved."""
    with tf.Graph().as_default():
        x = staging.staged(dataset(), name="train", **staged)
        step = tf.train.get_or_create_global_step()
        with tf.control_dependencies([x]):
            train = tf.assign_add(step, 1)
        got: list[int] = []
        options = dict(save_checkpoint_steps=1, log_step_count_steps=0)
        with staging.StagingSession(checkpoint_dir=str(folder), **options) as sess:
            while not sess.should_stop() and (count is None or len(got) < count):
                got.append(int(sess.run([x, train])[0]))
    latest = tf.train.latest_checkpoint(str(folder))
    return got, [tf.train.load_variable(latest, name).tolist() for name in ("train/position", "global_step")]


def test_a_restart_begins_with_a_new_pass(tmp_path: Path, address: str) -> None:
    def dataset() -> Any:
        return served(Dataset.range(RECORDS), address)

    first, saved = part(tmp_path, dataset, 5, resume="restart")
    assert (len(set(first)), saved) == (5, [[5], 5])
    second, saved = part(tmp_path, dataset, resume="restart")
    assert (sorted(second), saved) == (list(range(RECORDS)), [[RECORDS], 5 + RECORDS])


def test_a_named_job_goes_on_where_the_service_is(tmp_path: Path, address: str) -> None:
    def dataset() -> Any:
        job = service.distribute("distributed_epoch", f"grpc://{address}", job_name="job")
        return Dataset.range(RECORDS).apply(job)

    first, _ = part(tmp_path, dataset, 5, resume="restart")
    rest, _ = part(tmp_path, dataset, resume="restart")
    assert len({*first, *rest}) == len(first) + len(rest), "no record comes twice"
    assert part(tmp_path, dataset, resume="restart")[0] == [], "the pass is over"


def test_ignore_drops_as_many_batches_of_the_new_pass(
    tmp_path: Path, address: str, caplog: pytest.LogCaptureFixture
) -> None:
    def dataset() -> Any:
        return served(Dataset.range(RECORDS), address)

    part(tmp_path, dataset, 5, resume="ignore")
    assert "resume='ignore'" not in caplog.text, "nothing was dropped"
    second, saved = part(tmp_path, dataset, resume="ignore")
    assert len(second) == len(set(second)) == RECORDS - 5
    assert saved == [[RECORDS], RECORDS]
    assert (
        "'train': the checkpoint holds position 5 in another order of batches: the tf.data service delivers in a new "
        "order each time. The saved position cannot be mapped to the new order. resume='ignore' continues at batch 5 "
        "of the new order anyway."
    ) in caplog.text


def test_another_dataset_cannot_resume_there(tmp_path: Path, address: str) -> None:
    part(tmp_path, lambda: served(Dataset.range(RECORDS), address), 3, resume="restart")
    with pytest.raises(ResumeError, match="source was 'tf.data service', is 'tf.data.Dataset'"):
        part(tmp_path, lambda: Dataset.range(RECORDS), 1)


# Servers that die.


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("localhost", 0))
        port: int = probe.getsockname()[1]
        return port


@contextmanager
def child_worker(cluster: Cluster, port: int, folder: Path, fork_server: ForkServer) -> Iterator[Program]:
    with (folder / "stderr").open("w") as stderr:
        with fork_server.start("-c", SERVERS, cluster.address, port, stdin=subprocess.PIPE, stderr=stderr) as child:
            try:
                assert child.stdout is not None
                assert child.stdout.readline(), (folder / "stderr").read_text()[-2000:]
                yield child
            finally:
                child.kill()


@pytest.mark.slow  # the service's own records; the others test what this package does
def test_a_killed_worker_costs_records_but_repeats_none(
    graph: Any, tmp_path: Path, reports: Reports, fork_server: ForkServer
) -> None:
    records, port = 400, free_port()
    got: list[int] = []
    with running(0) as cluster, child_worker(cluster, port, tmp_path, fork_server) as child:
        x = staging.staged(served(Dataset.range(records), cluster.address), name="train", resume="restart")

        def back_at_the_same_address() -> None:
            if len(cluster.workers) == 1:  # the child is dead, and not back yet
                cluster.add_worker(port)

        # TensorFlow ends no pass without the dead worker, so the report comes at the end.
        reports.on_report = back_at_the_same_address
        with staging.StagingSession(stall_secs=0.5 * slowdown()) as sess:
            while not sess.should_stop():
                got.append(int(sess.run(x)))
                if len(got) == 20:  # all of the child's
                    cluster.add_worker()
                    child.kill()
                    child.wait()
    causes = [cause_in(reports.texts.get_nowait()) for _ in range(reports.texts.qsize())]
    assert causes[-1].startswith(f"the tf.data service at {cluster.address} has delivered nothing to 'train' (made at ")
    assert len(set(got)) == len(got), "dynamic sharding repeats no record"
    assert set(got) <= set(range(records))
    # What the child had read ahead is lost. It reads ahead by a few records.
    assert len(got) > records // 2


# Lockstep, as in test_towers_and_lockstep.
def test_a_dispatcher_that_is_gone_is_named(graph: Any, reports: Reports) -> None:
    with running(1) as cluster:
        dataset = served(Dataset.range(10**9), cluster.address)
        x = staging.staged(dataset, name="train", resume="restart")
        # The first step takes longer than others, because the servers build the dataset.
        session = staging.StagingSession(stall_secs=2 * slowdown(), stall_raises=True, stop_grace_period_secs=0)
        with pytest.warns(StuckThreadWarning), pytest.raises(StallError) as caught:
            with session as sess:
                sess.run(x)
                cluster.dispatcher.stop()
                while True:  # what the worker has read ahead
                    sess.run(x)
    assert caught.value.report == reports.texts.get_nowait()
    cause = cause_in(caught.value.report)
    assert cause.startswith(f"the tf.data service at {cluster.address} has delivered nothing to 'train' (made at ")
    assert cause.endswith("TensorFlow reports no error for a dead one, but waits until it is back at the same address.")


@pytest.mark.slow  # TensorFlow's own error; docs/data_service.md names it
def test_a_dispatcher_that_has_forgotten_the_pass_is_an_error(graph: Any) -> None:
    with running(1) as cluster:
        port = int(cluster.address.split(":")[1])
        x = staging.staged(served(Dataset.range(10**9), cluster.address), resume="restart")
        with pytest.raises(tf.errors.NotFoundError):  # of the job, or of its client
            with staging.StagingSession() as sess:
                sess.run(x)
                cluster.dispatcher.stop()
                cluster.dispatcher = service.DispatchServer(service.DispatcherConfig(port=port))
                while True:
                    sess.run(x)
