"""`Cluster`: which task of a cluster this process is, and everything a training program needs to know about it."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager, nullcontext
from types import TracebackType
from typing import Any

from absl import logging

from staging_tf1._tf import tf
from staging_tf1.arguments import flag, instance, refuse, seconds, shown
from staging_tf1.cluster.layout import Layout
from staging_tf1.cluster.ledger import Ledger
from staging_tf1.cluster.member import Member
from staging_tf1.cluster.server import await_end, check_claim, outlasting_chief, start_server
from staging_tf1.errors import ClusterError, StagingWarning, warn

# How many seconds a worker waits for parameter servers and chief. Nodes of a cluster may start minutes apart.
_START_SECS = 600.0
_SILENCE_SECS = 60.0
# Set by `staging-tf1 launch --sync`.
_SYNC_VARIABLE = "STAGING_TF1_SYNC"


_MISSING = (
    "The records that it has not consumed are missing from this run; a run that resumes from the checkpoint reads them"
)

_GIVEN = "With share='dynamic' the others get the batches that it has not consumed"


class Cluster:
    """Which task of a `tf.train.Server` cluster this process is.

    The same program text runs on one machine and on a cluster. Without arguments, or without TF_CONFIG, this is a
    cluster of one: no server is started, and nothing is placed on other machines::

        cluster = staging.Cluster.from_environment()
        if cluster.serves():
            raise SystemExit
        with cluster.device_scope():
            batch = staging.staged(source, cluster=cluster)
            train_op = ...
        with staging.StagingSession(cluster=cluster, checkpoint_dir="...") as sess:
            while not sess.should_stop():
                sess.run(train_op)

    The chief (the task of job "chief" or "master", or else worker 0) initializes or restores the variables and saves
    checkpoints. Variables stand on the parameter servers (job "ps"). Each worker reads its own share of the input.
    Servers have no authentication: use them in private networks only
    (https://github.com/tensorflow/tensorflow/blob/master/SECURITY.md).

    Args:
      jobs: a `tf.train.ClusterSpec`, or a dict from jobs ("chief", "worker", "ps") to lists of addresses, "host:port".
        None is a cluster of one.
      job_name: the job of this process.
      task_index: its index in the job.
      sync: whether all workers make the same number of steps, as `tf.train.SyncReplicasOptimizer` needs.
      start_timeout_secs: seconds to wait for the chief to initialize the variables, and for a parameter server that
        does not answer, also in the middle of the run.
      silence_secs: seconds without a sign of life after which a task counts as gone. At the end, the chief and the
        parameter servers do not wait for it any longer. With `staged(share="dynamic")`, the other workers get what it
        had not consumed.
      save_copies: whether a checkpoint is written from copies, which are made on the parameter servers while all
        workers stand still. The servers then need memory for the variables twice. Without copies, the workers stand
        still until the checkpoint is written.
      allow_missing: whether a run may end when a worker is gone and part of its share is unread. By default the chief
        saves its last checkpoint, and then raises ClusterError. True makes that a warning. With
        `staged(share="dynamic")` the others consume these records, so it is always a warning.

    Raises:
      ClusterError: the cluster is described wrongly.
      TypeError, ValueError: an argument is invalid.

    >>> hosts = {"ps": ["10.0.0.1:2222"], "worker": ["10.0.0.2:2222", "10.0.0.3:2222"]}
    >>> cluster = Cluster(hosts, "worker", 1)
    >>> cluster.num_workers, cluster.worker_index, cluster.is_chief
    (2, 1, False)
    >>> Cluster().is_chief
    True
    """

    def __init__(
        self,
        jobs: Any = None,
        job_name: str | None = None,
        task_index: int | None = None,
        *,
        sync: bool = False,
        start_timeout_secs: float = _START_SECS,
        silence_secs: float = _SILENCE_SECS,
        save_copies: bool = True,
        allow_missing: bool = False,
    ) -> None:
        caller = "Cluster"
        self.sync = flag(caller, "sync", sync)
        self.start_timeout_secs = seconds(caller, "start_timeout_secs", start_timeout_secs)
        self._silence_secs = seconds(caller, "silence_secs", silence_secs)
        self.save_copies = flag(caller, "save_copies", save_copies)
        self._allow_missing = flag(caller, "allow_missing", allow_missing)
        if jobs is None:
            for name, value in (("job_name", job_name), ("task_index", task_index)):
                if value is not None:
                    raise ClusterError(f"{caller} got {name}={shown(value)}, but no jobs. Pass the addresses, too.")
            self.layout = Layout({}, None)
        else:
            self.layout = Layout.checked(caller, _as_dict(jobs), job_name, 0 if task_index is None else task_index)
        self._server: Any = None
        self._member: Member | None = None
        # The workers that are gone, as messages name them.
        self.missed: dict[Any, str] = {}
        self._lock = threading.RLock()

    @classmethod
    def from_environment(cls, **options: Any) -> Cluster:
        """Return the cluster that the environment variable TF_CONFIG describes; without it, a cluster of one.

        Kubernetes' TFJob, Cloud ML and `staging-tf1 launch` set TF_CONFIG. It is described with
        `tf.distribute.cluster_resolver.TFConfigClusterResolver`.

        Args:
          **options: as in the constructor. `sync` is True by default if STAGING_TF1_SYNC is set to 1.

        Raises:
          ClusterError: TF_CONFIG or STAGING_TF1_SYNC is invalid; the message says what is expected.
        """
        if "sync" not in options:
            options["sync"] = _sync_by_default()
        return cls._of(Layout.from_tf_config(os.environ.get("TF_CONFIG")), options)

    @classmethod
    def from_resolver(cls, resolver: Any, **options: Any) -> Cluster:
        """Return the cluster of a `tf.distribute.cluster_resolver.ClusterResolver`, such as that for Slurm.

        Some resolvers, such as that for Kubernetes, know the cluster but not which task this process is. Set their
        `task_type` and `task_id`.

        Raises:
          ClusterError: the resolver gives no cluster, no task, or an invalid one.
        """
        caller = f"Cluster.from_resolver({type(resolver).__name__})"
        if not callable(getattr(resolver, "cluster_spec", None)):
            refuse(caller, "resolver", resolver, "a tf.distribute.cluster_resolver.ClusterResolver")
        spec = resolver.cluster_spec()
        jobs = _as_dict(spec) if spec else {}
        if not jobs and resolver.task_type is None:
            return cls._of(Layout({}, None), options)
        if not resolver.task_type:
            raise ClusterError(
                f"{caller}: got task type {resolver.task_type!r}, so nothing says which task this process is. Set "
                f"task_type and task_id of the resolver."
            )
        return cls._of(Layout.checked(caller, jobs, resolver.task_type, resolver.task_id or 0), options)

    @classmethod
    def _of(cls, layout: Layout, options: Mapping[str, Any]) -> Cluster:
        cluster = cls(**options)
        cluster.layout = layout
        return cluster

    @property
    def job(self) -> str | None:
        """The job of this process; None in a cluster of one."""
        return None if self.layout.task is None else self.layout.task.job

    @property
    def index(self) -> int:
        """The index of this process in its job."""
        return 0 if self.layout.task is None else self.layout.task.index

    @property
    def is_distributed(self) -> bool:
        """Whether there are other tasks. False in a cluster of one, and for an evaluator."""
        return self.layout.is_distributed

    @property
    def is_chief(self) -> bool:
        """Whether this process initializes, restores and saves. True in a cluster of one."""
        return self.layout.is_chief

    @property
    def num_workers(self) -> int:
        """How many tasks train, the chief included."""
        return self.layout.num_workers

    @property
    def worker_index(self) -> int | None:
        """The number of this task among those that train, 0 for the chief; None on a parameter server."""
        return self.layout.worker_index

    @property
    def target(self) -> str:
        """The `master` of sessions; "" in a cluster of one.

        The first use starts this task's server and waits for the parameter servers.

        Raises:
          ClusterError: the port is taken, another process claims the task, or a parameter server does not answer.
        """
        if not self.is_distributed:
            return ""
        self.member.start()
        return str(self._started().target)

    def serves(self) -> bool:
        """Serve, on a parameter server, until all workers have finished, and return True. Return False elsewhere.

        SIGTERM ends it when the chief has left, which may save the model first, or after `silence_secs`. A second one
        ends it at once.

        Raises:
          ClusterError: as `target`.
        """
        if self.job != "ps":
            return False
        logging.info("%s serves at %s", self.layout.task, self.layout.address(self._task))
        self._started()
        self.member.start()
        try:
            with outlasting_chief(self.member):
                await_end(self.member)
        finally:
            self.close()
        return True

    def device_scope(self) -> AbstractContextManager[Any]:
        """Return a scope that places variables on the parameter servers, and everything else on this task.

        As `tf.device(tf.train.replica_device_setter(...))`. In a cluster of one, it does nothing.
        """
        if not self.is_distributed:
            return nullcontext()
        spec = tf.train.ClusterSpec(self.layout.addresses())
        scope: AbstractContextManager[Any] = tf.device(
            tf.train.replica_device_setter(worker_device=self._task.device, cluster=spec)
        )
        return scope

    def session_config(self, config: Any = None) -> Any:
        """Return `config`, or a new `tf.ConfigProto`, with device filters: the parameter servers and this task.

        A session that connects to all tasks waits for workers that are gone
        (https://github.com/tensorflow/tensorflow/issues/21745).
        """
        copy = tf.ConfigProto()
        instance("Cluster.session_config()", "config", config, tf.ConfigProto | None, "a tf.ConfigProto")
        if config is not None:
            copy.CopyFrom(config)
        if self.is_distributed and not copy.device_filters:
            copy.device_filters.extend(["/job:ps", self._task.device])
        return copy

    def finish(self) -> None:
        """Tell the other tasks that this worker has ended. The chief first waits until all workers have.

        The others wait until the chief has ended, too, and so has saved its last checkpoint. `StagingSession` and
        `StagingHook` call it. A program with a plain session calls it after its loop.

        Raises:
          ClusterError: on the chief, a worker is gone and has not consumed its records. On another worker, the chief is
            gone, or begins again because a parameter server has lost the model.
        """
        if not self.is_distributed or self._member is None or self.job == "ps":
            return
        self.member.give_back()
        self.wait_for_workers()
        try:
            self.member.finish()
            if not self.is_chief:
                self.member.await_last_save()
        finally:
            self.close()
        error = self.missing_error()
        if error is not None:
            raise error

    def wait_for_workers(self) -> None:
        """Wait, on the chief, until all other workers have finished; a warning names those that are gone.

        So the last checkpoint holds everybody's position.

        Raises:
          ClusterError: the first parameter server has restarted, and lost the model.
        """
        await_workers(self, lambda: None)

    def close(self) -> None:
        """Stop the thread that gives signs of life. A later use starts it again."""
        member = self._member
        if member is not None:
            # Not under the lock, which one of its threads may want before it ends.
            member.stop()

    def __enter__(self) -> Cluster:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()

    def __str__(self) -> str:
        if not self.is_distributed:
            return "Cluster of one"
        return f"Cluster ({self._task} of {self.num_workers} worker(s) and {len(self.layout.servers)} ps)"

    # For this package.

    def stay(self) -> None:
        """Wait, on a worker that has finished and is not the chief, until the chief has saved the last checkpoint.

        Raises:
          ClusterError: as `finish`.
        """
        if self.is_distributed and not self.is_chief:
            self.member.give_back()
            self.member.finish()
            self.member.await_last_save()

    def missing_error(self) -> ClusterError | None:
        """Return what the chief raises at the end if a worker is gone that may not be missing."""
        if not self.missed or self.may_miss:
            return None
        return ClusterError(
            f"{self._task} has ended without {', '.join(self.missed.values())}. {_MISSING}. Start the cluster again, "
            f"or allow that with Cluster(allow_missing=True)."
        )

    @property
    def may_miss(self) -> bool:
        """Whether the run may end without a worker that is gone."""
        return self._allow_missing or bool(self.member.shared_inputs)

    @property
    def member(self) -> Member:
        """This task's part in the runs."""
        with self._lock:
            if self._member is None:
                server = self.layout.servers[0]
                member = Member(
                    self.layout,
                    Ledger(f"grpc://{self.layout.address(server)}", server.device),
                    self._silence_secs,
                    self.start_timeout_secs,
                    sync=self.sync,
                )
                if self._task != server:
                    self._started()
                    member.await_servers()
                self._member = member
            return self._member

    @property
    def member_task(self) -> str:
        """The name of this task, such as "worker 1"."""
        return str(self._task)

    @property
    def own_device(self) -> str:
        """The task of this process, as a device name; "" in a cluster of one."""
        return self._task.device if self.is_distributed else ""

    @property
    def shared_device(self) -> str:
        """The CPU of the first parameter server, which holds what all workers share."""
        return f"{self.layout.servers[0].device}/device:CPU:0"

    @property
    def _task(self) -> Any:
        assert self.layout.task is not None
        return self.layout.task

    def _started(self) -> Any:
        """Return this task's server; the first call starts it."""
        with self._lock:
            if self._server is None:
                self._server = start_server(self.layout)
                check_claim(self.layout, self._server)
            return self._server


def await_workers(cluster: Cluster, check: Callable[[], None]) -> None:
    """As `Cluster.wait_for_workers`. `check` is called now and then, and raises if the model is lost."""
    if not cluster.is_distributed or not cluster.is_chief:
        return
    # The others may wait for the batches that this worker has been given and not consumed.
    cluster.member.give_back()
    signs = cluster.member.signs
    missing = {task: signs.described(task) for task in cluster.member.await_workers(check)}
    new = [named for task, named in missing.items() if task not in cluster.missed]
    cluster.missed = missing
    if new and cluster.may_miss:
        named = ", ".join(new)
        consequence = _GIVEN if cluster.member.shared_inputs else _MISSING
        warn(f"{cluster.member_task} ends without {named}. {consequence}.", StagingWarning)


def check_not_left_behind(cluster: Cluster) -> None:
    """Raise ClusterError if a parameter server has been silent for too long; wait if this process stood still.

    A MonitoredSession that nobody has told otherwise would create session after session, or wait once more.
    """
    cluster.member.check_servers()
    if cluster.member.patience().reason:
        cluster.member.await_servers()


def _sync_by_default() -> bool:
    value = os.environ.get(_SYNC_VARIABLE, "")
    if value not in ("", "0", "1"):
        raise ClusterError(f"{_SYNC_VARIABLE} is {shown(value)}, expected 1 for sync=True, or 0.")
    return value == "1"


def _as_dict(jobs: Any) -> Any:
    """Return the jobs of a `tf.train.ClusterSpec` as a dict of dicts; anything else as it is."""
    if not isinstance(jobs, tf.train.ClusterSpec):
        return jobs
    return {job: {index: jobs.task_address(job, index) for index in jobs.task_indices(job)} for job in jobs.jobs}
