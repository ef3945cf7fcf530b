"""How the workers of a cluster, and the towers of each, share an input."""

from __future__ import annotations

from typing import Any

from staging_tf1._tf import tf
from staging_tf1.arguments import instance, shown
from staging_tf1.cluster.cluster import Cluster
from staging_tf1.errors import ClusterError, LeftoverWarning, warn
from staging_tf1.graph.position import DYNAMIC, TowerRange
from staging_tf1.sources import Source, StreamSource

# How the workers share an input. "static": each reads a shard. "own": each has its own input. "dynamic": the chief
# hands out batches.
SHARES = ("static", "own", DYNAMIC)


def tower_range_of(cluster: Cluster | None, share: str, towers: int) -> TowerRange:
    """Return the towers of this process, and how they share the input."""
    if share == DYNAMIC:
        # Also without a cluster, so that the checkpoint is the same.
        return TowerRange(0, 1, 1, dynamic=True)
    if cluster is None:
        return TowerRange(0, towers, towers)
    first, all_towers = (cluster.worker_index or 0) * towers, cluster.num_workers * towers
    if share == "own":
        return TowerRange(first, towers, all_towers, own_inputs=cluster.num_workers)
    return TowerRange(first, towers, all_towers, equal=cluster.sync)


def check_cluster(what: str, cluster: Any) -> Cluster | None:
    """Return the cluster; None for none, and for a cluster of one.

    Raises:
      TypeError: it is no `Cluster`.
      ClusterError: this process is a parameter server.
    """
    if cluster is None:
        return None
    own: Cluster = instance(what, "cluster", cluster, Cluster, "a staging.Cluster")
    if own.job == "ps":
        raise ClusterError(
            f"{what} was called on {own.member_task}, a parameter server, which only holds variables. Call "
            f"cluster.serves() before you build the model, and exit if it returns True."
        )
    return own if own.is_distributed else None


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


def check_dynamic(what: str, cluster: Cluster | None, towers: int, *, lockstep: bool) -> None:
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


def check_divisible(what: str, values: str, here: TowerRange) -> None:
    """Raise ClusterError for an input that cannot be divided among the workers."""
    if here.dynamic:
        raise ClusterError(
            f"{what} got share='dynamic' and {values}, which can only be read in order: the chief could not hand out "
            f"the batches. Pass a random-access source (staging.sources), or divide it yourself and use share='own'."
        )
    if here.shards > here.towers:
        raise ClusterError(
            f"{what} got {values}, which can only be read in order: each of the {here.shards // here.towers} workers "
            f"would read all of it. Pass a random-access source (staging.sources), or divide it yourself, for example "
            f"with dataset.shard(cluster.num_workers, cluster.worker_index), and say so with share='own'."
        )


def divided(
    source: Source | StreamSource, here: TowerRange, what: str, *, saves_seed: bool
) -> list[Source | StreamSource]:
    """Return what each tower of this process reads: a shard of a source, or the same stream.

    Args:
      source: the input of all workers and towers.
      here: the towers of this process.
      what: the caller, for messages.
      saves_seed: whether the workers get the chief's seed, and a restored run that of the checkpoint.

    Raises:
      ClusterError: a stream cannot be divided.
      ValueError: a tower would get nothing; or workers would draw different seeds.
    """
    if not isinstance(source, Source):
        check_divisible(what, f"a {type(source).__name__}", here)
        return [source] * here.towers
    in_cluster = here.own_inputs or here.shards > here.towers
    # The checkpoint has one seed, which is not that of a worker's own source.
    if source.seed_was_drawn and in_cluster and (here.own_inputs or not saves_seed):
        raise ValueError(
            f"{what} got a {type(source).__name__} without a seed in a cluster: each worker, and each restart of one, "
            f"would draw another seed, and records would be repeated or left out. Pass seed= to the source."
        )
    if here.shards == 1:
        return [source]
    got = f"{what} got {here.towers} devices"
    if here.shards > here.towers:
        got += f" on {here.shards // here.towers} workers"
    _check_enough(source, here.shards, got)
    try:
        shards: list[Source | StreamSource] = [source.shard(shard, here.shards) for shard in here.own_shards]
    except ValueError as error:
        raise ValueError(f"{got}, but its source cannot be split into {here.shards} shards: {error}") from error
    if len({id(shard) for shard in shards}) < here.towers:
        raise ValueError(
            f"{what}: {type(source).__name__}.shard() returned the same source for two towers, so both would get its "
            f"records. Return a new source for each shard; staging_tf1.testing.assert_shards_partition checks it."
        )
    return shards


def common_batches(source: Source | StreamSource, here: TowerRange, what: str) -> int | None:
    """Return how many batches each shard may have, so that all have the same number; None if there is no limit.

    Warns of the batches that are left over.
    """
    if not here.equal or not isinstance(source, Source) or source.num_batches is None:
        return None
    counts = [source.shard(shard, here.shards).num_batches or 0 for shard in range(here.shards)]
    least, total = min(counts), sum(counts)
    if total > least * here.shards and not here.first:
        warn(
            f"{what}: in synchronous training each of the {here.shards} workers or towers takes {least} batches; "
            f"{total - least * here.shards} of {total} are left over. To leave out none, choose a batch_size that "
            f"divides the records evenly.",
            LeftoverWarning,
        )
    return least


def _check_enough(source: Source, shards: int, got: str) -> None:
    batches = source.num_records is None
    most = source.num_batches if batches else source.num_records
    if most is None or most >= shards:
        return
    unit = "batch(es)" if batches else "record(s)"
    raise ValueError(
        f"{got}, but a source of only {most} {unit}: {shards - most} tower(s) would get none. Give it at most {most} "
        f"device(s)."
    )


def fingerprint_of(fingerprint: dict[str, int | str], here: TowerRange) -> dict[str, int | str]:
    """Return what the checkpoint keeps of the source that the workers share, or of their own sources."""
    if not here.own_inputs:
        return fingerprint
    # The sources of the workers may differ in the rest.
    kept = {key: value for key, value in fingerprint.items() if key in ("source", "batch_size", "dealt")}
    return {**kept, "share": "own", "workers": here.own_inputs}
