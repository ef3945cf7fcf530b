"""`Layout`: the tasks of a cluster and which of them this process is, read from TF_CONFIG or given.

Pure: nothing here imports TensorFlow or opens a connection.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NoReturn

from staging_tf1.arguments import INT32_MAX, as_int, shown
from staging_tf1.errors import ClusterError

# Jobs whose tasks train. The task of "chief" or "master", or else worker 0, is the chief.
CHIEF_JOBS = ("chief", "master")
_JOBS = (*CHIEF_JOBS, "worker", "ps", "evaluator")
_EXAMPLE = '{"cluster": {"ps": ["host:port"], "worker": ["host:port", ...]}, "task": {"type": "worker", "index": 0}}'


@dataclass(frozen=True, order=True)
class Task:
    """One task: its job and its index in the job."""

    job: str
    index: int

    @property
    def device(self) -> str:
        """The device name of the task, without a device in it."""
        return f"/job:{self.job}/task:{self.index}"

    def __str__(self) -> str:
        return f"{self.job} {self.index}"


@dataclass(frozen=True)
class Layout:
    """The tasks of a cluster, and which of them this process is.

    Attributes:
      jobs: for each job the addresses, "host:port", of its tasks. Empty for a cluster of one process.
      task: which task this process is; None in a cluster of one.

    >>> text = '{"cluster": {"ps": ["h:1"], "worker": ["h:2", "h:3"]}, "task": {"type": "worker", "index": 1}}'
    >>> layout = Layout.from_tf_config(text)
    >>> str(layout.task), layout.worker_index, layout.is_chief, str(layout.chief)
    ('worker 1', 1, False, 'worker 0')
    """

    jobs: Mapping[str, Mapping[int, str]]
    task: Task | None

    @classmethod
    def from_tf_config(cls, text: str | None) -> Layout:
        """Read the value of the environment variable TF_CONFIG; None or "" is a cluster of one.

        Raises:
          ClusterError: it is no JSON, lacks something, or names a task that the cluster does not have.
        """
        if not text or not text.strip():
            return cls({}, None)
        try:
            config = json.loads(text)
        except (ValueError, RecursionError) as error:
            raise ClusterError(
                f"TF_CONFIG is not valid JSON ({error}): got {shown(text)}, expected {_EXAMPLE}."
            ) from None
        if not isinstance(config, dict):
            _refuse("", config, "an object")
        if not config.get("cluster") and not config.get("task"):
            return cls({}, None)
        jobs, task = config.get("cluster"), config.get("task")
        if task is not None and not isinstance(task, dict):
            _refuse("task", task, 'an object with "type" and "index"')
        if not jobs and (task or {}).get("type") in (*CHIEF_JOBS, "worker", "evaluator"):
            raise ClusterError(f'TF_CONFIG has no "cluster", only a task: got {shown(text)}, expected {_EXAMPLE}.')
        if task is None:
            raise ClusterError(
                f'TF_CONFIG has no "task": it must say which task of the cluster this process is. Got {shown(text)}, '
                f"expected {_EXAMPLE}."
            )
        if "type" not in task:
            _refuse("task", task, 'an object with "type" and "index"')
        return cls.checked("TF_CONFIG", jobs, task["type"], task.get("index", 0))

    @classmethod
    def checked(cls, caller: str, jobs: Any, job: Any, index: Any) -> Layout:
        """Check jobs, addresses and task.

        Raises:
          ClusterError: something is invalid; the message names it.
        """
        checked = _checked_jobs(caller, jobs)
        number = as_int(int(index)) if isinstance(index, str) and index.isdigit() else as_int(index)
        if not isinstance(job, str) or job not in _JOBS:
            raise ClusterError(f"{caller}: got task type {shown(job)}, expected one of {', '.join(_JOBS)}.")
        if number is None or number > INT32_MAX:
            raise ClusterError(f"{caller}: got task index {shown(index)}, expected a whole number from 0.")
        if job == "evaluator":
            # An evaluator is no part of the cluster: it reads the checkpoints.
            return cls(checked, Task(job, number))
        if job not in checked:
            raise ClusterError(
                f"{caller}: this process is {job} {number}, but the cluster has no job {job!r}, only "
                f"{', '.join(sorted(checked))}. Add its addresses to the cluster."
            )
        if number not in checked[job]:
            raise ClusterError(
                f"{caller}: task index {number} is out of range: job {job!r} has {len(checked[job])} task(s), "
                f"{', '.join(f'{i} ({address})' for i, address in checked[job].items())}."
            )
        return cls(checked, Task(job, number))._complete(caller)

    def _complete(self, caller: str) -> Layout:
        """Check that the tasks make a cluster. One worker without a parameter server is a cluster of one."""
        if not self.workers:
            raise ClusterError(f"{caller}: the cluster has no chief and no worker, so nothing would train. Add one.")
        if "ps" in self.jobs:
            return self
        if len(self.workers) == 1:
            return Layout({}, None)
        raise ClusterError(
            f"{caller}: the cluster has {len(self.workers)} workers and no job 'ps'. The variables that workers share "
            f'need a parameter server: add "ps": ["host:port"], and start that task.'
        )

    @property
    def is_distributed(self) -> bool:
        """Whether there are other tasks to train with."""
        return bool(self.jobs) and self.task is not None and self.task.job != "evaluator"

    @property
    def workers(self) -> list[Task]:
        """The tasks that train, the chief first."""
        return [Task(job, index) for job in (*CHIEF_JOBS, "worker") for index in self.jobs.get(job, ())]

    @property
    def servers(self) -> list[Task]:
        """The parameter servers."""
        return [Task("ps", index) for index in self.jobs.get("ps", ())]

    @property
    def chief(self) -> Task:
        """The task that initializes, restores and saves."""
        return self.workers[0]

    @property
    def is_chief(self) -> bool:
        """Whether this process is the chief. True in a cluster of one."""
        return self.task == self.chief if self.is_distributed else self.task is None

    @property
    def num_workers(self) -> int:
        """How many tasks train, the chief included."""
        return len(self.workers) if self.is_distributed else 1

    @property
    def worker_index(self) -> int | None:
        """The number of this task among those that train: 0 for the chief. None on a parameter server."""
        if not self.is_distributed:
            return 0
        return self.workers.index(self.task) if self.task in self.workers else None

    def address(self, task: Task) -> str:
        """Return the address of `task`: "host:port"."""
        return self.jobs[task.job][task.index]

    def addresses(self) -> dict[str, dict[int, str]]:
        """Return the jobs as `tf.train.ClusterSpec` takes them."""
        return {job: dict(tasks) for job, tasks in self.jobs.items()}

    def differences(self, other: Mapping[str, Mapping[str, str]]) -> str:
        """Return how the jobs of `other`, as `to_json` made them, differ from these; "" if they do not."""
        mine = self.to_json()
        parts = []
        for job in sorted({*mine, *other}):
            here, there = mine.get(job, {}), other.get(job, {})
            parts += [
                f"{job} {index} is {here.get(index, 'absent')} here, {there.get(index, 'absent')} there"
                for index in sorted({*here, *there}, key=int)
                if here.get(index) != there.get(index)
            ]
        return "; ".join(parts)

    def to_json(self) -> dict[str, dict[str, str]]:
        """Return the jobs with keys that JSON can hold."""
        return {job: {str(index): address for index, address in tasks.items()} for job, tasks in self.jobs.items()}


def _refuse(key: str, got: object, expected: str) -> NoReturn:
    name = f'TF_CONFIG["{key}"]' if key else "TF_CONFIG"
    raise ClusterError(f"{name} is {shown(got)}, expected {expected}: {_EXAMPLE}.")


def _checked_jobs(caller: str, jobs: Any) -> dict[str, dict[int, str]]:
    if not isinstance(jobs, Mapping) or not jobs:
        raise ClusterError(f"{caller}: got cluster {shown(jobs)}, expected a dict from jobs to lists of addresses.")
    checked: dict[str, dict[int, str]] = {}
    owners: dict[str, str] = {}
    for job, addresses in jobs.items():
        if job not in _JOBS:
            raise ClusterError(f"{caller}: unknown job {shown(job)} in the cluster, expected {', '.join(_JOBS)}.")
        checked[job] = {}
        for index, address in _numbered(caller, job, addresses):
            if address in owners:
                raise ClusterError(f"{caller}: {job} {index} and {owners[address]} have the same address, {address}.")
            owners[address] = f"{job} {index}"
            checked[job][index] = address
    chiefs = [f"{job} {index}" for job in CHIEF_JOBS for index in checked.get(job, ())]
    if len(chiefs) > 1:
        raise ClusterError(f"{caller}: the cluster has {len(chiefs)} chiefs ({', '.join(chiefs)}), expected one.")
    # An evaluator has no server that others connect to.
    return {job: tasks for job, tasks in checked.items() if tasks and job != "evaluator"}


def _numbered(caller: str, job: str, addresses: Any) -> Iterator[tuple[int, str]]:
    """Yield the index and address of each task. As in `tf.train.ClusterSpec`, a dict leaves tasks out."""
    if isinstance(addresses, Mapping):
        pairs: Sequence[tuple[Any, Any]] = sorted(addresses.items())
    elif isinstance(addresses, (list, tuple)):
        pairs = list(enumerate(addresses))
    else:
        raise ClusterError(f"{caller}: job {job!r} has {shown(addresses)}, expected a list of addresses, 'host:port'.")
    for index, address in pairs:
        number = as_int(index)
        host, _, port = address.rpartition(":") if isinstance(address, str) else ("", "", "")
        if number is None or not host or not port.isdigit() or not 0 < int(port) < 65536:
            raise ClusterError(f"{caller}: {job} {shown(index)} has address {shown(address)}, expected 'host:port'.")
        yield number, address
