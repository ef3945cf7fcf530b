"""Whether a task's server answers and is the task that it should be; and how to break with one that does not."""

from __future__ import annotations

import os
import socket
import time
from collections.abc import Callable, Sequence
from contextlib import suppress

from absl import logging

from staging_tf1._tf import tf
from staging_tf1.background import Background
from staging_tf1.cluster.clock import Clock
from staging_tf1.cluster.connection import bounded_config, connect, is_refused, met
from staging_tf1.cluster.layout import Layout, Task
from staging_tf1.cluster.waiting import FIRST_LOG_SECS, LOG_SECS, Backoff, Patience
from staging_tf1.errors import ClusterError

_PROBE_SECS = 5.0
# What this process has open.
_OPEN = "/proc/self/fd"


def await_servers(
    layout: Layout, tasks: Sequence[Task], patience: Callable[[], Patience], clock: Clock | None = None
) -> None:
    """Wait until the servers of `tasks` answer. Log what it waits for.

    TensorFlow itself would wait forever, without a word, when the session is created. `clock` is None if nothing looks
    at it regularly.

    Raises:
      ClusterError: one does not answer in that time, or is another task.
    """
    now = time.monotonic if clock is None else clock.now
    began = now()
    next_log = began + FIRST_LOG_SECS
    for task in tasks:
        pauses = Backoff(layout)
        while (reason := why_unreachable(layout, task)) is not None:
            most = patience()
            if now() - began > most.secs:
                cure = most.reason or "Start it, or correct its address in the cluster."
                raise ClusterError(
                    f"{layout.task}: {task} at {layout.address(task)} does not answer after {most.secs:.0f} s "
                    f"({reason}). {cure}"
                )
            if now() >= next_log:
                logging.info("%s waits for %s at %s: %s", layout.task, task, layout.address(task), reason)
                next_log = now() + LOG_SECS
            time.sleep(pauses.next())


def why_unreachable(layout: Layout, task: Task) -> str | None:
    """Return why the server of `task` does not answer; None if it does.

    Raises:
      ClusterError: the server there says that it is another task.
    """
    try:
        connect(layout.address(task))
    except OSError as error:
        return error.strerror or str(error)
    try:
        incarnation_of(layout, task)
    except tf.errors.DeadlineExceededError:
        return "something listens there, but no TensorFlow server answers"
    except tf.errors.OpError as error:
        return f"{type(error).__name__}: {error.message.strip().splitlines()[-1]}"
    return None


def why_silent(layout: Layout, task: Task) -> str | None:
    """Return why the server of `task` does not answer, or which other task does; None if it does itself."""
    try:
        return why_unreachable(layout, task)
    except ClusterError as error:
        return str(error)


def unreachable(layout: Layout, tasks: Sequence[Task]) -> list[str]:
    """Return those of `tasks` whose servers do not answer, each with its address and the reason."""
    reasons = {task: why_silent(layout, task) for task in tasks}
    return [
        f"{task} at {layout.address(task)} does not answer ({why})" for task, why in reasons.items() if why is not None
    ]


def is_listening(layout: Layout, task: Task) -> bool:
    """Return False if nothing listens at the address of `task`, so that its process is gone; True if in doubt."""
    return not is_refused(f"grpc://{layout.address(task)}")


class Knock:
    """Looks once whether anything listens at the address of a task. In a thread: a lost machine takes seconds.

    Attributes:
      is_answered, is_refused: whether it is known that something listens there, or that nothing does.
    """

    def __init__(self, layout: Layout, task: Task) -> None:
        self.is_answered = self.is_refused = False
        self._address = layout.address(task)
        Background(f"cluster:knock:{task}", self._look).start()

    def _look(self) -> None:
        try:
            connect(self._address)
            self.is_answered = True
        except ConnectionRefusedError:
            self.is_refused = True
        except OSError:
            return


def cut_off(layout: Layout, task: Task) -> None:
    """Break the connections of this process to `task`. What waits for it fails, as if its process had ended.

    A run cannot be ended otherwise: `Session.close` waits for the servers, and the run for the close.
    """
    host, _, port = layout.address(task).rpartition(":")
    found = set(met.get(layout.address(task), ()))
    # A host may be unknown by now.
    with suppress(OSError):
        resolved = socket.getaddrinfo(host.strip("[]"), int(port), type=socket.SOCK_STREAM)
        found |= {address[:2] for *_, address in resolved}
    try:
        descriptors = os.listdir(_OPEN)
    except OSError:
        # No Linux.
        return
    # A socket for IPv6 may have a peer with IPv4.
    peers = {(f"{prefix}{host}", port) for host, port in found for prefix in ("", "::ffff:")}
    for descriptor in descriptors:
        # Some are closed by now.
        with suppress(OSError):
            if os.readlink(f"{_OPEN}/{descriptor}").startswith("socket:"):
                with socket.fromfd(int(descriptor), socket.AF_INET6, socket.SOCK_STREAM) as copy:
                    if copy.getpeername()[:2] in peers:
                        copy.shutdown(socket.SHUT_RDWR)


def incarnation_of(layout: Layout, task: Task, target: str | None = None) -> int:
    """Return the random number that the server of `task` drew when it started.

    Args:
      layout: the cluster.
      task: the task.
      target: where to ask; None is the task's address.

    Raises:
      ClusterError: the server there says that it is another task.
      tf.errors.OpError: it does not answer.
    """
    target = target or f"grpc://{layout.address(task)}"
    graph = tf.Graph()
    with graph.as_default():
        nothing = tf.no_op()
    # Its own devices pass every filter.
    with tf.Session(target, graph=graph, config=bounded_config("/job:none", _PROBE_SECS)) as session:
        # First, because the list of devices is made without a time limit.
        session.run(nothing)
        devices = {_task_of(device.name): device.incarnation for device in session.list_devices()}
    if task not in devices:
        is_what = ", ".join(sorted(map(str, devices)))
        raise ClusterError(
            f"{layout.task}: the server at {target.removeprefix('grpc://')} is {is_what}, expected {task}. The "
            f"processes describe the cluster differently, or another cluster has that address. Give all processes the "
            f"same addresses."
        )
    return int(devices[task])


def _task_of(device: str) -> Task:
    spec = tf.DeviceSpec.from_string(device)
    return Task(spec.job, spec.task)
