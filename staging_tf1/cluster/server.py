"""The `tf.train.Server` of this task: its start, and how long one of a parameter server serves."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Any

from absl import logging

from staging_tf1._tf import tf
from staging_tf1.cluster.layout import Layout, Task
from staging_tf1.cluster.member import Member
from staging_tf1.cluster.reach import incarnation_of, is_listening
from staging_tf1.errors import ClusterError
from staging_tf1.signals import catch_sigterm, release_sigterm

# The addresses at which this process has started servers. TensorFlow never stops them.
_served: set[str] = set()
# How long a parameter server lets the others read that the run has ended. The first one also waits for the others.
_LEAVE_SECS = 5.0
# How long it waits for a worker to be started again when all have ended after a failed start.
_RETURN_SECS = 10.0
# How often it looks whether the chief has left, after SIGTERM.
_LOOK_SECS = 0.2


def start_server(layout: Layout) -> Any:
    """Start the server of this task and return it.

    Raises:
      ClusterError: the port is taken, or this process has started the task before.
    """
    task = layout.task
    assert task is not None
    address = layout.address(task)
    if address in _served:
        raise ClusterError(
            f"This process has already started {task} at {address}, with another Cluster object. Make one, and pass it "
            f"to staged(), the session and whatever else needs it."
        )
    try:
        server = tf.train.Server(tf.train.ClusterSpec(layout.addresses()), job_name=task.job, task_index=task.index)
    except tf.errors.OpError as error:
        raise ClusterError(
            f"{task} cannot listen on port {address.rpartition(':')[2]} of its address {address}: "
            f"{error.message.strip()}. Perhaps another process runs {task}, or uses the port. Stop it, or choose "
            f"another port."
        ) from error
    _served.add(address)
    return server


def check_claim(layout: Layout, server: Any) -> None:
    """Raise ClusterError if the address of this task leads to another process than this one, which has `server`."""
    task = layout.task
    assert task is not None
    try:
        reached = incarnation_of(layout, task)
    except tf.errors.OpError:
        # A name that leads here only once this process is ready, as in Kubernetes.
        return
    if reached != incarnation_of(layout, task, str(server.target)):
        raise ClusterError(
            f"Another process runs {task} at {layout.address(task)}. Each task is one process: stop the other one, or "
            f"give this process another task."
        )


def await_end(member: Member) -> None:
    """Wait, on a parameter server, until the chief has ended a run, or all workers have finished or gone.

    Raises:
      ClusterError: all workers are gone, and no run has begun. Or the chief has other addresses.
    """
    workers, signs = member.layout.workers, member.signs
    gone: list[Task] = []
    # Since when all workers have ended after a failed start; None if they have not.
    ended_at: float | None = None

    def over(entries: dict[str, Any]) -> bool:
        nonlocal ended_at
        run = entries.get("run", {"id": None, "state": "absent"})
        finished = [task for task in workers if run["id"] is not None and entries.get(f"done/{task}") == run["id"]]
        gone[:] = [task for task in workers if task not in finished]
        all_gone = all(map(signs.is_gone, gone))
        if "cluster" in run:
            try:
                member.addresses.check_chief(run)
            except ClusterError:
                # It may end before its first sign of life, and the others would wait for it.
                with suppress(tf.errors.OpError):
                    member.tell_addresses()
                raise
        if run["state"] != "failed" or not all(member.has_left(task, entries) for task in workers):
            ended_at = None
        elif ended_at is None:
            ended_at = member.clock.now()
        in_vain = all_gone or (ended_at is not None and member.clock.now() - ended_at > _RETURN_SECS)
        if in_vain and run["state"] in ("absent", "starting", "failed"):
            raise ClusterError(
                f"{member.task} ends, because no run has begun{_why(run)} and all workers are gone: "
                f"{', '.join(map(signs.described, gone))}. See their logs, and start the cluster again."
            )
        # Workers that are gone may return to the model that this task holds, unless others have finished it.
        return run["state"] == "ended" or (bool(finished) and all_gone)

    def waiting_for(entries: dict[str, Any]) -> str | None:
        run = entries.get("run")
        if run is None or run["state"] != "failed":
            return None
        return (
            f"{member.layout.chief} to begin again{_why(run)}. {member.task} ends {_RETURN_SECS:g} s after all workers "
            f"have ended, or when none has given a sign of life for {member.silence_secs:g} s"
        )

    entries = member.await_entries(over, waiting_for)
    if gone and entries["run"]["state"] != "ended":
        logging.warning("%s ends without: %s", member.task, ", ".join(map(signs.described, gone)))
    _leave(member, entries["run"]["id"])


def _why(run: dict[str, Any]) -> str:
    return f" ({run['why']})" if run.get("why") else ""


def _leave(member: Member, run_id: str) -> None:
    """Wait until the workers have read that the run has ended, and closed their sessions; for a while."""
    first, *others = member.layout.servers
    is_first = member.task == first
    # The first parameter server holds the ledger.
    left = [f"left/{task}" for task in others] if is_first else []
    end = member.clock.now() + (2 if is_first else 1) * _LEAVE_SECS

    def all_have_left(entries: dict[str, Any]) -> bool:
        workers = all(member.has_left(task, entries) for task in member.layout.workers)
        return workers and all(entries.get(name) == run_id for name in left)

    member.await_entries(lambda entries: member.clock.now() > end or all_have_left(entries), lambda _: None)
    if not is_first:
        member.ledger.write({f"left/{member.task}": run_id})


@contextmanager
def outlasting_chief(member: Member) -> Iterator[None]:
    """Return a context in which SIGTERM ends a parameter server when the chief has left. A second one ends it at once.

    A cluster is stopped with a SIGTERM to all tasks, and the chief needs the parameter servers to save the model.
    Nothing changes outside the main thread, or if the program handles SIGTERM.
    """
    if not catch_sigterm():
        yield
        return
    try:
        yield
    except SystemExit:
        _await_chief(member)
        raise
    finally:
        release_sigterm()


def _await_chief(member: Member) -> None:
    chief, end = member.layout.chief, member.clock.now() + member.silence_secs
    logging.info("%s got SIGTERM, and serves until %s has left, which may save the model.", member.task, chief)
    # Without the first parameter server, the chief cannot save any more.
    with suppress(tf.errors.OpError):
        while is_listening(member.layout, chief) and member.clock.now() < end:
            if member.has_left(chief, member.read()):
                return
            time.sleep(_LOOK_SECS)
