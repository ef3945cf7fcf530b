"""Describes the tasks of a cluster on this machine: their program, addresses and environment. Starts nothing."""

from __future__ import annotations

import contextlib
import json
import os
import re
import shutil
import socket
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

HOST = "127.0.0.1"
# The job names of TF_CONFIG. A cluster with one worker has only a chief.
CHIEF, WORKER, PS = "chief", "worker", "ps"
_PLACEHOLDER = re.compile(r"\{(ps_hosts|worker_hosts|job_name|task_index|task)\}")
# PYTHONUNBUFFERED, which the tasks also get, is for programs that start Python themselves.
_PYTHON = (sys.executable, "-u")


class ProgramError(ValueError):
    """The program does not exist or cannot be executed."""


class Program(NamedTuple):
    """A command, and the arguments in which placeholders are replaced."""

    command: tuple[str, ...]
    arguments: tuple[str, ...]


def find_program(words: Sequence[str]) -> Program:
    """Return the program that `words` name: `script.py args`, `-m module args` or `program args`.

    Raises:
        ProgramError: there are no words, or no such script or program.
    """
    if not words:
        raise ProgramError("got no program, expected script.py, -m and a module, or a program, after --")
    first, *rest = words
    if first == "-m":
        if not rest:
            raise ProgramError("-m needs the name of a module")
        return Program((*_PYTHON, "-m", rest[0]), tuple(rest[1:]))
    if first.endswith(".py"):
        if not os.path.isfile(first):
            raise ProgramError(f"file {first!r} does not exist; check its path")
        return Program((*_PYTHON, first), tuple(rest))
    # The programs of this Python's environment, such as staging-tf1, are on PATH only while it is activated.
    path = shutil.which(first) or shutil.which(first, path=os.path.dirname(sys.executable))
    if path is None and os.path.isfile(first):
        cure = f"it is not an executable file on PATH; run ./{first} after chmod +x, or name a script with .py"
        raise ProgramError(f"program {first!r} cannot be run: {cure}")
    if path is None:
        raise ProgramError(f"program {first!r} was not found on PATH; give its path")
    return Program((path,), tuple(rest))


@dataclass(frozen=True, eq=False)
class Task:
    """One process of the cluster. `environment` is added to that of this process."""

    job: str
    index: int
    command: tuple[str, ...]
    environment: Mapping[str, str]

    @property
    def name(self) -> str:
        """Return the name in messages and output, such as 'chief 0'."""
        return f"{self.job} {self.index}"

    @property
    def trains(self) -> bool:
        """Whether this is the chief or a worker. The run has finished when all of these have."""
        return self.job != PS


def free_ports(host: str, count: int) -> list[int]:
    """Return `count` different free ports of `host`.

    All are bound before any is released, because the system may hand out a released port again at once. Another program
    may still take one before the task binds it.

    Raises:
        OSError: the system has no free port, or this process may not open so many sockets.
    """
    with contextlib.ExitStack() as stack:
        bound = [stack.enter_context(socket.socket(socket.AF_INET, socket.SOCK_STREAM)) for _ in range(count)]
        for listener in bound:
            listener.bind((host, 0))
        return [listener.getsockname()[1] for listener in bound]


def make_tasks(program: Program, workers: int, servers: int, ports: Sequence[int], sync: bool = False) -> list[Task]:
    """Return a chief, `workers` - 1 workers and `servers` parameter servers, one for each port.

    Each has its TF_CONFIG, and the placeholders in its arguments are replaced.
    """
    hosts = [f"{HOST}:{port}" for port in ports]
    cluster = {CHIEF: hosts[:1], WORKER: hosts[1:workers], PS: hosts[workers:]}
    # TensorFlow refuses a job without tasks.
    cluster = {job: addresses for job, addresses in cluster.items() if addresses}
    tasks = []
    for job, index in [(job, index) for job, addresses in cluster.items() for index in range(len(addresses))]:
        values = {
            "ps_hosts": ",".join(hosts[workers:]),
            # Programs with these flags have no chief: it is the worker with index 0.
            "worker_hosts": ",".join(hosts[:workers]),
            "job_name": PS if job == PS else WORKER,
            "task_index": str(index + 1 if job == WORKER else index),
            # Without the space of the task's name, because this is for names of files.
            "task": f"{job}-{index}",
        }
        environment = {
            "TF_CONFIG": json.dumps({"cluster": cluster, "task": {"type": job, "index": index}}),
            "PYTHONUNBUFFERED": "1",
            **({"STAGING_TF1_SYNC": "1"} if sync else {}),
        }
        tasks.append(Task(job, index, (*program.command, *fill(program.arguments, values)), environment))
    return tasks


def fill(arguments: Sequence[str], values: Mapping[str, str]) -> list[str]:
    """Replace the placeholders, by these exact names only. Other braces stay as they are.

    >>> fill(["--index={task_index}", "{'task': {task}}", "{other}"], {"task_index": "1", "task": "worker-1"})
    ['--index=1', "{'task': worker-1}", '{other}']
    """
    return [_PLACEHOLDER.sub(lambda match: values[match[1]], word) for word in arguments]
