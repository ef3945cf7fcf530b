"""Clusters for the tests of this folder: of real processes, and of tasks that are threads of this process."""

from __future__ import annotations

import socket
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import tensorflow.compat.v1 as tf
from clusters import TestCluster, free_addresses
from forked import ForkServer

from staging_tf1.cluster.layout import Layout
from staging_tf1.cluster.ledger import Ledger
from staging_tf1.cluster.member import Member


@pytest.fixture
def make_cluster(fork_server: ForkServer, tmp_path: Path) -> Iterator[Callable[..., TestCluster]]:
    """Make a cluster of so many workers and parameter servers; nothing is started."""
    made: list[TestCluster] = []

    def make(workers: int = 2, ps: int = 1) -> TestCluster:
        folder = tmp_path / f"cluster{len(made)}"
        folder.mkdir()
        made.append(TestCluster(fork_server, folder, workers, ps))
        return made[-1]

    yield make
    for each in made:
        each.close()


@pytest.fixture
def two(make_cluster: Callable[..., TestCluster]) -> TestCluster:
    """A cluster of one parameter server and two workers; nothing is started."""
    return make_cluster()


@pytest.fixture
def model(tmp_path: Path) -> str:
    """The folder of the checkpoints."""
    return str(tmp_path / "model")


class Members:
    """Tasks that share the ledger of a real server in this process. `listening` are the sockets of the workers."""

    def __init__(self, workers: int, ps: int, silence_secs: float, listens: bool) -> None:
        addresses = free_addresses(workers + ps)
        self._jobs, self._silence_secs = {"ps": addresses[:ps], "worker": addresses[ps:]}, silence_secs
        self._server = tf.train.Server({"ps": addresses[:1]}, "ps", 0)
        ports = [int(address.split(":")[1]) for address in addresses[ps:]] if listens else []
        self.listening = [socket.create_server(("127.0.0.1", port)) for port in ports]
        self._made: list[Member] = []

    def member(self, job: str, index: int, *, in_reverse: bool = False) -> Member:
        """Make a task. It may know the workers `in_reverse`."""
        workers = self._jobs["worker"]
        jobs = {**self._jobs, "worker": workers[::-1] if in_reverse else workers}
        ledger = Ledger(self._server.target, "/job:ps/task:0")
        self._made.append(Member(Layout.checked("test", jobs, job, index), ledger, self._silence_secs, 60.0))
        return self._made[-1]

    def close(self) -> None:
        """Stop all tasks that were made."""
        for each in self._made:
            each.gate.open()
            each.stop()
        for listening in self.listening:
            listening.close()


@pytest.fixture
def make_members() -> Iterator[Callable[..., Members]]:
    """Make the tasks of a cluster."""
    made: list[Members] = []

    def make(workers: int = 2, ps: int = 1, silence_secs: float = 60.0, listens: bool = False) -> Members:
        made.append(Members(workers, ps, silence_secs, listens))
        return made[-1]

    yield make
    for each in made:
        each.close()
