"""How the workers of a cluster, and the towers of each, share an input."""

from __future__ import annotations

from typing import Any, NamedTuple

from staging_tf1._tf import tf
from staging_tf1.arguments import refuse, shown
from staging_tf1.cluster.cluster import Cluster
from staging_tf1.errors import ClusterError, LeftoverWarning, warn
from staging_tf1.graph.position import DYNAMIC
from staging_tf1.sources import Source, StreamSource

# How the workers share an input. "static": each reads a shard. "own": each has its own input. "dynamic": the chief
# hands out batches.
SHARES = ("static", "own", DYNAMIC)


class Parts(NamedTuple):
    """Which parts of the input this process gets, one for each of its towers."""

    first: int
    # Its towers.
    towers: int
    # The parts of all workers. As many as `towers` outside a cluster, and with share="own".
    all: int
    # How many workers have an input of their own; 0 if they share one, or there is no cluster.
    own_inputs: int = 0
    # Whether all parts must have the same number of batches.
    equal: bool = False
    # Whether the chief hands out the batches of one common order. There is one part then, for all.
    dealt: bool = False

    @property
    def own(self) -> range:
        """The numbers of the parts of this process."""
        return range(self.first, self.first + self.towers)


def parts_of(cluster: Cluster | None, share: str, towers: int) -> Parts:
    """Return the parts that the towers of this process get."""
    if share == DYNAMIC:
        # Also without a cluster, so that the checkpoint is the same.
        return Parts(0, 1, 1, dealt=True)
    if cluster is None:
        return Parts(0, towers, towers)
    if share == "own":
        return Parts(0, towers, towers, cluster.num_workers)
    return Parts((cluster.worker_index or 0) * towers, towers, cluster.num_workers * towers, equal=cluster.sync)


def check_cluster(what: str, cluster: Any) -> Cluster | None:
    """Return the cluster; None for none, and for a cluster of one.

    Raises:
      TypeError: it is no `Cluster`.
      ClusterError: this process is a parameter server.
    """
    if cluster is None:
        return None
    if not isinstance(cluster, Cluster):
        refuse(what, "cluster", cluster, "a staging.Cluster")
    if cluster.job == "ps":
        raise ClusterError(
            f"{what} was called on {cluster.member_task}, a parameter server, which only holds variables. Call "
            f"cluster.serves() before you build the model, and exit if it returns True."
        )
    return cluster if cluster.is_distributed else None


def check_own_device(what: str, device: str | None, cluster: Cluster | None) -> None:
    """Raise ValueError if `device` is on another task: an area feeds the worker on whose task it is."""
    if device is None or cluster is None:
        return
    spec, own = tf.DeviceSpec.from_string(device), tf.DeviceSpec.from_string(cluster.own_device)
    if (spec.job, spec.task) not in ((None, None), (own.job, own.task)):
        raise ValueError(
            f"{what} got device {shown(device)} with cluster=, expected a device of {cluster.member_task}. Leave job "
            f"and task out."
        )


def check_dealt(what: str, cluster: Cluster | None, towers: int, *, lockstep: bool) -> None:
    """Check what share="dynamic" does not support.

    Raises:
      ValueError: several devices, or lockstep.
      ClusterError: all workers make the same number of steps.
    """
    if towers > 1:
        raise ValueError(
            f"{what} got share='dynamic' and {towers} devices, expected one. Run one worker for each device, or use "
            f"share='static'."
        )
    if lockstep:
        raise ValueError(
            f"{what} got share='dynamic' and lockstep=True, which has no thread that could wait for batches. Drop one."
        )
    if cluster is not None and cluster.sync:
        raise ClusterError(
            f"{what} got share='dynamic' and a cluster with sync=True: its workers make the same number of steps, "
            f"but a slow worker gets fewer batches. Use share='static'."
        )


def check_divisible(what: str, values: str, parts: Parts) -> None:
    """Raise ClusterError for an input that cannot be divided among the workers."""
    if parts.dealt:
        raise ClusterError(
            f"{what} got share='dynamic' and {values}, which can only be read in order: the chief could not hand out "
            f"the batches. Pass a random-access source (staging.sources), or divide it yourself and use share='own'."
        )
    if parts.all > parts.towers:
        raise ClusterError(
            f"{what} got {values}, which can only be read in order: each of the {parts.all // parts.towers} workers "
            f"would read all of it. Pass a random-access source (staging.sources), or divide it yourself, for example "
            f"with dataset.shard(cluster.num_workers, cluster.worker_index), and say so with share='own'."
        )


def divided(source: Source | StreamSource, parts: Parts, what: str, *, saves_seed: bool) -> list[Source | StreamSource]:
    """Return what each tower of this process reads: a shard of a source, or the same stream.

    Args:
      source: the input of all workers and towers.
      parts: which parts of it this process gets.
      what: the caller, for messages.
      saves_seed: whether the workers get the chief's seed, and a restored run that of the checkpoint.

    Raises:
      ClusterError: a stream cannot be divided.
      ValueError: a tower would get nothing; or workers would draw different seeds.
    """
    if not isinstance(source, Source):
        check_divisible(what, f"a {type(source).__name__}", parts)
        return [source] * parts.towers
    in_cluster = parts.own_inputs or parts.all > parts.towers
    # The checkpoint has one seed, which is not that of a worker's own source.
    if source.seed_was_drawn and in_cluster and (parts.own_inputs or not saves_seed):
        raise ValueError(
            f"{what} got a {type(source).__name__} without a seed in a cluster: each worker, and each restart of one, "
            f"would draw another seed, and records would be repeated or left out. Pass seed= to the source."
        )
    if parts.all == 1:
        return [source]
    _check_enough(source, parts, what)
    try:
        shards: list[Source | StreamSource] = [source.shard(part, parts.all) for part in parts.own]
    except ValueError as error:
        workers = f" on {parts.all // parts.towers} workers" if parts.all > parts.towers else ""
        raise ValueError(
            f"{what} got {parts.towers} devices{workers}, but its source cannot be split into {parts.all} shards: "
            f"{error}"
        ) from error
    if len({id(shard) for shard in shards}) < parts.towers:
        raise ValueError(
            f"{what}: {type(source).__name__}.shard() returned the same source for two towers, so both would get its "
            f"records. Return a new source for each shard; staging_tf1.testing.assert_shards_partition checks it."
        )
    return shards


def common_batches(source: Source | StreamSource, parts: Parts, what: str) -> int | None:
    """Return how many batches each part may have, so that all have the same number; None if there is no limit.

    Warns of the batches that are left over.
    """
    if not parts.equal or not isinstance(source, Source) or source.num_batches is None:
        return None
    counts = [source.shard(part, parts.all).num_batches or 0 for part in range(parts.all)]
    least, total = min(counts), sum(counts)
    if total > least * parts.all and not parts.first:
        warn(
            f"{what}: in synchronous training each of the {parts.all} workers or towers takes {least} batches; "
            f"{total - least * parts.all} of {total} are left over. To leave out none, choose a batch_size that "
            f"divides the records evenly.",
            LeftoverWarning,
        )
    return least


def _check_enough(source: Source, parts: Parts, what: str) -> None:
    batches = source.num_records is None
    most = source.num_batches if batches else source.num_records
    if most is None or most >= parts.all:
        return
    unit = "batch(es)" if batches else "record(s)"
    workers = f" on {parts.all // parts.towers} workers" if parts.all > parts.towers else ""
    raise ValueError(
        f"{what} got {parts.towers} devices{workers}, but a source of only {most} {unit}: {parts.all - most} tower(s) "
        f"would get none. Give it at most {most} device(s)."
    )


def fingerprint_of(fingerprint: dict[str, int | str], parts: Parts) -> dict[str, int | str]:
    """Return what the checkpoint keeps of the source that the workers share, or of their own sources."""
    if not parts.own_inputs:
        return fingerprint
    # The sources of the workers may differ in the rest.
    kept = {key: value for key, value in fingerprint.items() if key in ("source", "batch_size", "dealt")}
    return {**kept, "share": "own", "workers": parts.own_inputs}
