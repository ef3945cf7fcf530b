"""Clusters of real processes for the tests, on 127.0.0.1: forks of a process that has imported TensorFlow."""

from __future__ import annotations

import json
import os
import pickle
import signal
import socket
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import tensorflow.compat.v1 as tf
from forked import ForkServer, Program
from gate import Gate
from load import slowdown
from processes import state_of

import staging_tf1 as staging
from staging_tf1.lifecycle.timed import TimedRuns
from staging_tf1.signals import InterruptWatcher
from staging_tf1.watch.waiting import WaitMeter

# Tests of what others show, too, with more processes. `make cluster` runs them.
long_form = pytest.mark.skipif(not os.environ.get("STAGING_TF1_CLUSTER_TESTS"), reason="long form: make cluster")

_PROGRAMS = Path(__file__).with_name("cluster_programs.py")
# How long anything in a test cluster may take on an idle machine.
LIMIT_SECS = 40.0


def free_addresses(count: int) -> list[str]:
    """Addresses on this machine that nobody listens on."""
    sockets = [socket.socket() for _ in range(count)]
    for each in sockets:
        each.bind(("127.0.0.1", 0))
    addresses = [f"127.0.0.1:{each.getsockname()[1]}" for each in sockets]
    for each in sockets:
        each.close()
    return addresses


def only_worker() -> staging.Cluster:
    """The only worker of a cluster, whose parameter server is in this process, too."""
    addresses = free_addresses(2)
    jobs = {"ps": addresses[:1], "worker": addresses[1:]}
    tf.train.Server(jobs, job_name="ps", task_index=0)
    return staging.Cluster(jobs, "worker", 0)


def timed_runs(session: Any) -> TimedRuns:
    """What times the runs of a session without pipelines."""
    waiting = WaitMeter(session, [], lambda pipeline: ())
    return TimedRuns(session.graph, waiting, InterruptWatcher(lambda: None), None)


def until(condition: Callable[[], bool], what: str | Callable[[], str], secs: float = LIMIT_SECS) -> None:
    """Wait until `condition`; fail with `what`, or what it then returns, after a time that grows with the load."""
    start = time.monotonic()
    while not condition():
        # To measure the load costs time, so only when it matters.
        if time.monotonic() - start > secs:
            is_late = time.monotonic() - start >= secs * slowdown()
            assert not is_late, f"waited in vain until {what() if callable(what) else what}"
        time.sleep(0.02)


def is_stopped(pid: int) -> bool:
    """Whether all threads of a process stand still after a SIGSTOP."""
    return all(state_of(thread) in ("T", None) for thread in Path(f"/proc/{pid}/task").iterdir())


class TestCluster:
    """Starts, watches and ends the processes of one cluster. `close` kills what is left."""

    __test__ = False

    def __init__(self, server: ForkServer, folder: Path, workers: int, ps: int = 1) -> None:
        self.folder = folder
        addresses = free_addresses(workers + ps)
        self.jobs = {"ps": addresses[:ps], "worker": addresses[ps:]}
        self.processes: dict[str, Program] = {}
        self._started: dict[str, Any] = {}
        self._server = server
        self._gates: list[Gate] = []

    def gate(self, permits: int) -> Gate:
        """A gate with so many permits, as an argument of programs."""
        self._gates.append(Gate(self.folder / f"gate{len(self._gates)}", permits))
        return self._gates[-1]

    def start(self, program: str, task: str, *arguments: Any, **options: Any) -> None:
        """Start a process that runs `program` of `cluster_programs`; `task` names its files."""
        self._started[task] = program, arguments, options
        with tempfile.TemporaryFile() as given, (self.folder / f"{task}.log").open("ab") as log:
            pickle.dump((program, str(self.folder), task, arguments, options), given)
            given.seek(0)
            self.processes[task] = self._server.start(_PROGRAMS, stdin=given, stdout=log, stderr=log)

    def start_again(self, task: str) -> None:
        """Start a process as the last one of `task`."""
        program, arguments, options = self._started[task]
        self.start(program, task, *arguments, **options)

    def begin(self, *permits: int, ps: dict[str, Any] | None = None, **options: Any) -> list[Gate]:
        """Start all servers and workers, and wait until each worker has used its permits for steps."""
        for index in range(len(self.jobs["ps"])):
            self.start_ps(index, **(ps or {}))
        gates = [self.gate(count) for count in permits]
        for index, gate in enumerate(gates):
            self.start_worker(index, gate, **options)
        for index, count in enumerate(permits):
            if count:
                self.await_notes(f"worker{index}", "got", count)
        return gates

    def start_ps(self, index: int = 0, **options: Any) -> None:
        self.start("serve", f"ps{index}", self.jobs, index, **options)

    def start_worker(self, index: int, go: Any = None, **options: Any) -> None:
        self.start("train", f"worker{index}", self.jobs, "worker", index, go, **options)

    def start_program(
        self, task: str, words: list[str], environment: dict[str, str] | None = None, **options: Any
    ) -> None:
        """Start a process that runs a script, or -m and a module. `task` is "ps0", "worker1": it is in TF_CONFIG."""
        job = task.rstrip("0123456789")
        config = json.dumps({"cluster": self.jobs, "task": {"type": job, "index": int(task.removeprefix(job))}})
        self.start("run_program", task, {"TF_CONFIG": config, **(environment or {})}, words, **options)

    def notes(self, task: str, kind: str) -> list[Any]:
        """The values of that kind that `task` has noted so far, over all its processes."""
        path = self.folder / f"{task}.jsonl"
        if not path.exists():
            return []
        # The last line may be half written.
        lines = path.read_text(encoding="utf-8").split("\n")[:-1]
        return [value for what, value in map(json.loads, lines) if what == kind]

    def got(self, *tasks: str) -> list[int]:
        """The records that the steps of `tasks`, or of all workers, have returned, sorted."""
        workers = tasks or [f"worker{index}" for index in range(len(self.jobs["worker"]))]
        return sorted(record for task in workers for batch in self.notes(task, "got") for record in batch)

    def raised(self, task: str) -> str:
        """Wait until `task` has raised, and its process has ended. Return the exception."""
        self.await_notes(task, "raised")
        self.processes[task].wait()
        return str(self.notes(task, "raised")[-1])

    def await_notes(self, task: str, kind: str, count: int = 1) -> None:
        def noted() -> bool:
            return len(self.notes(task, kind)) >= count

        until(lambda: noted() or self.processes[task].poll() is not None, f"{task}: {count} {kind}")
        assert noted(), self.log(task)

    def await_log(self, task: str, text: str) -> None:
        """Wait until `task` has printed `text`; fail with what it has printed."""
        until(lambda: text in self.log(task), lambda: f"{task} prints {text!r}\n{self.log(task)}")

    def wrong_batches(
        self, checkpoint_dir: str, num_records: int, batch_size: int, shares: int | None = None
    ) -> list[tuple[int, int, int]]:
        """Share, number and count of each batch that the model has not seen exactly once, in the latest checkpoint.

        There is a share for each worker, unless `shares` says otherwise.
        """
        from cluster_models import batches_seen_in  # this module imports TensorFlow

        shares = len(self.jobs["worker"]) if shares is None else shares
        seen = batches_seen_in(checkpoint_dir, num_records, batch_size, shares)
        return [
            (share, number, count)
            for share, counts in enumerate(seen)
            for number, count in enumerate(counts)
            if count != 1
        ]

    def kill(self, task: str, number: int = signal.SIGKILL) -> None:
        """Send the signal, and wait until it has ended or stopped the process."""
        process = self.processes[task]
        process.send_signal(number)
        if number == signal.SIGSTOP:
            # Threads that run on another core go on for a moment, and may answer.
            until(lambda: is_stopped(process.pid), f"{task} stands still")
        elif number != signal.SIGCONT:
            process.wait()

    def join(self, *tasks: str, secs: float = LIMIT_SECS) -> None:
        """Wait until the processes have ended well. Fail as soon as one has not, because the others may wait for it.

        If they do not end, the message says where each thread waits.
        """
        awaited = [self.processes[task] for task in tasks or self.processes]
        named = ", ".join(tasks) or "everybody"
        try:
            until(
                lambda: all(each.poll() == 0 for each in awaited) or any(each.poll() for each in awaited),
                f"{named} ends",
                secs,
            )
        except AssertionError as error:
            raise AssertionError(f"{error}\n{self.stacks()}") from None
        assert not any(each.poll() for each in awaited), self.logs()

    def stacks(self) -> str:
        """What everybody has printed, and where each thread is."""
        for process in self.processes.values():
            process.send_signal(signal.SIGUSR1)
        time.sleep(1.0)
        return self.logs()

    def log(self, task: str) -> str:
        """What `task` has printed."""
        path = self.folder / f"{task}.log"
        return path.read_text(encoding="utf-8", errors="replace") if path.exists() else ""

    def logs(self) -> str:
        return "\n".join(f"--- {task}\n{self.log(task)[-5000:]}" for task in self.processes)

    def close(self) -> None:
        """Kill what is left. May be called again."""
        for process in self.processes.values():
            process.kill()
            process.wait()
        while self._gates:
            self._gates.pop().close()
