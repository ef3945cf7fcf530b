"""Clusters of real processes for the tests, on 127.0.0.1. TensorFlow is imported once, by a fork server."""

from __future__ import annotations

import ctypes
import json
import multiprocessing
import os
import signal
import socket
import sys
import time
from collections.abc import Callable
from multiprocessing import forkserver
from pathlib import Path
from typing import Any

import pytest
from load import slowdown

# Tests of what others show, too, with more processes. `make cluster` runs them.
long_form = pytest.mark.skipif(not os.environ.get("STAGING_TF1_CLUSTER_TESTS"), reason="long form: make cluster")

CONTEXT = multiprocessing.get_context("forkserver")
# This module, too: it imports pytest, which would take longer in each process than its start.
CONTEXT.set_forkserver_preload(["uncollected", "clusters", "cluster_programs"])


def _start_fork_server() -> None:
    """Starts it with a path on which it finds the module to preload: it does not get that of this process."""
    before = os.environ.get("PYTHONPATH")
    os.environ["PYTHONPATH"] = os.pathsep.join(filter(None, [str(Path(__file__).parent), *sys.path]))
    try:
        forkserver.ensure_running()
    finally:
        if before is None:
            del os.environ["PYTHONPATH"]
        else:
            os.environ["PYTHONPATH"] = before


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


def until(condition: Callable[[], bool], what: str, secs: float = LIMIT_SECS) -> None:
    """Waits until `condition`; fails with `what` after a time that grows with the load."""
    start = time.monotonic()
    while not condition():
        # To measure the load costs time, so only when it matters.
        if time.monotonic() - start > secs:
            assert time.monotonic() - start < secs * slowdown(), f"waited in vain until {what}"
        time.sleep(0.02)


class TestCluster:
    """Starts, watches and ends the processes of one cluster. `close` kills what is left."""

    __test__ = False

    def __init__(self, folder: Path, workers: int, ps: int = 1) -> None:
        self.folder = folder
        addresses = free_addresses(workers + ps)
        self.jobs = {"ps": addresses[:ps], "worker": addresses[ps:]}
        self.processes: dict[str, Any] = {}
        self._kept: list[Any] = []

    def start(self, program: str, task: str, *arguments: Any, **options: Any) -> Any:
        """Starts a process that runs `program` of `cluster_programs`; `task` names its files."""
        process = CONTEXT.Process(target=run, args=(program, str(self.folder), task, arguments, options), daemon=True)
        _start_fork_server()
        process.start()
        # A semaphore among the arguments lives as long as this process refers to it.
        self._kept.append(arguments)
        self.processes[task] = process
        return process

    def start_ps(self, index: int = 0, **options: Any) -> Any:
        return self.start("serve", f"ps{index}", self.jobs, index, **options)

    def start_worker(self, index: int, go: Any = None, **options: Any) -> Any:
        return self.start("train", f"worker{index}", self.jobs, "worker", index, go, **options)

    def start_program(
        self, task: str, words: list[str], environment: dict[str, str] | None = None, **options: Any
    ) -> Any:
        """Starts a process that runs a script, or -m and a module. `task` is "ps0", "worker1": it is in TF_CONFIG."""
        job = task.rstrip("0123456789")
        config = json.dumps({"cluster": self.jobs, "task": {"type": job, "index": int(task.removeprefix(job))}})
        return self.start("run_program", task, {"TF_CONFIG": config, **(environment or {})}, words, **options)

    def notes(self, task: str, kind: str) -> list[Any]:
        """The values of that kind that `task` has noted so far, over all its processes."""
        path = self.folder / f"{task}.jsonl"
        if not path.exists():
            return []
        # The last line may be half written.
        lines = path.read_text(encoding="utf-8").split("\n")[:-1]
        return [value for what, value in map(json.loads, lines) if what == kind]

    def got(self, task: str) -> list[int]:
        """The records that the steps of `task` have returned."""
        return [record for batch in self.notes(task, "got") for record in batch]

    def await_notes(self, task: str, kind: str, count: int = 1) -> None:
        def noted() -> bool:
            return len(self.notes(task, kind)) >= count

        until(lambda: noted() or not self.processes[task].is_alive(), f"{task}: {count} {kind}")
        assert noted(), self.log(task)

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
        """Sends the signal and, if it ends the process, waits for the end."""
        process = self.processes[task]
        os.kill(process.pid, number)
        if number not in (signal.SIGSTOP, signal.SIGCONT):
            process.join()

    def join(self, *tasks: str, secs: float = LIMIT_SECS) -> None:
        """Waits until the processes have ended well. Fails as soon as one has not, because the others may wait for it.

        If they do not end, the message says where each thread waits.
        """
        awaited = [self.processes[task] for task in tasks or self.processes]
        named = ", ".join(tasks) or "everybody"
        try:
            until(
                lambda: all(each.exitcode == 0 for each in awaited) or any(each.exitcode for each in awaited),
                f"{named} ends",
                secs,
            )
        except AssertionError as error:
            raise AssertionError(f"{error}\n{self.stacks()}") from None
        assert not any(each.exitcode for each in awaited), self.logs()

    def stacks(self) -> str:
        """What everybody has printed, and where each thread is."""
        for process in self.processes.values():
            if process.is_alive():
                os.kill(process.pid, signal.SIGUSR1)
        time.sleep(1.0)
        return self.logs()

    def log(self, task: str) -> str:
        """What `task` has printed."""
        path = self.folder / f"{task}.log"
        return path.read_text(encoding="utf-8", errors="replace") if path.exists() else ""

    def logs(self) -> str:
        return "\n".join(f"--- {task}\n{self.log(task)[-5000:]}" for task in self.processes)

    def close(self) -> None:
        for process in self.processes.values():
            if process.is_alive():
                process.kill()
            process.join()


def run(program: str, folder: str, task: str, arguments: tuple[Any, ...], options: dict[str, Any]) -> None:
    """The target of each process. Here, so that this process does not import TensorFlow to start one."""
    import cluster_programs

    # If the test is killed, nothing is left running: the fork server ends with it, and this process with that.
    ctypes.CDLL(None).prctl(1, int(signal.SIGKILL), 0, 0, 0)
    cluster_programs.main(program, folder, task, arguments, options)
