"""Checks the arguments of `staged()` and `CustomRunner` that say who shares an input, and what makes its batches."""

from __future__ import annotations

import os
from collections.abc import Iterable, Sequence
from typing import Any

from staging_tf1._tf import tf
from staging_tf1.arguments import (
    AUTOTUNE,
    MOST_THREADS,
    NAMED_AUTOTUNE,
    as_int,
    in_range,
    instance,
    refuse,
    shown,
    whole,
)
from staging_tf1.cluster.cluster import Cluster
from staging_tf1.errors import ClusterError, StagingWarning, warn
from staging_tf1.feed.pipeline import Plan
from staging_tf1.graph.position import DYNAMIC, TowerRange
from staging_tf1.sources import Source, StreamSource
from staging_tf1.workers.pool import LANES_EACH
from staging_tf1.workers.shipping import check_picklable

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


def check_cluster(caller: str, cluster: Any) -> Cluster | None:
    """Return the cluster; None for none, and for a cluster of one.

    Raises:
      TypeError: it is no `Cluster`.
      ClusterError: this process is a parameter server.
    """
    if cluster is None:
        return None
    own: Cluster = instance(caller, "cluster", cluster, Cluster, "a staging.Cluster")
    if own.job == "ps":
        raise ClusterError(
            f"{caller} was called on {own.member_task}, a parameter server, which only holds variables. Call "
            f"cluster.serves() before you build the model, and exit if it returns True."
        )
    return own if own.is_distributed else None


def check_devices(
    caller: str, device: str | None, devices: Sequence[str] | None, cluster: Cluster | None
) -> tuple[str | None, ...]:
    """Return the device of each tower; None is the device scope of the call.

    Raises:
      TypeError, ValueError: one is no device, or on another task; or both arguments were given.
    """
    if devices is None:
        towers: Sequence[str | None] = [device]
    elif device is not None:
        raise ValueError(
            f"{caller} got both device={shown(device)} and devices={shown(devices)}. Pass one; devices= makes towers."
        )
    else:
        expected = "a list with a device for each tower"
        if isinstance(devices, str) or not isinstance(devices, Sequence):
            refuse(caller, "devices", devices, expected)
        if not 0 < len(devices) <= MOST_THREADS:
            refuse(caller, "devices", devices, expected, ValueError)
        towers = devices
    specs = [_device_spec(caller, tower) for tower in towers]
    if cluster is not None:
        own = tf.DeviceSpec.from_string(cluster.own_device)
        for tower, spec in zip(towers, specs, strict=True):
            # An area feeds the worker on whose task it is.
            if spec is not None and (spec.job, spec.task) not in ((None, None), (own.job, own.task)):
                raise ValueError(
                    f"{caller} got device {shown(tower)} with cluster=, expected a device of {cluster.member_task}. "
                    f"Leave job and task out."
                )
    return tuple(towers)


def _device_spec(caller: str, device: Any) -> Any | None:
    if device is None:
        return None
    if not isinstance(device, str):
        refuse(caller, "device", device, "a string such as '/device:GPU:0'")
    try:
        return tf.DeviceSpec.from_string(device)
    except ValueError as error:
        raise ValueError(f"{caller} got device={shown(device)}, expected a name such as '/device:GPU:0'.") from error


def check_dynamic(plan: Plan) -> None:
    """Check what share="dynamic" does not support.

    Raises:
      ValueError: a queue, several devices, or lockstep.
      ClusterError: all workers make the same number of steps.
    """
    if not plan.towers.dynamic:
        return
    if plan.queue is not None:
        # Each worker would read all of the source.
        raise ValueError(
            f"{plan.caller} got share='dynamic', which hands out batches by their position, and a queue has none. Use "
            f"staged(share='dynamic'), or share='static'."
        )
    if len(plan.devices) > 1:
        raise ValueError(
            f"{plan.caller} got share='dynamic' and {len(plan.devices)} devices, expected one. Run one worker for each "
            f"device, or use share='static'."
        )
    if plan.lockstep:
        raise ValueError(
            f"{plan.caller} got share='dynamic' and lockstep=True, which has no thread that could wait for batches. "
            f"Drop one."
        )
    if plan.cluster is not None and plan.cluster.sync:
        raise ClusterError(
            f"{plan.caller} got share='dynamic' and a cluster with sync=True: its workers make the same number of "
            f"steps, but a slow worker gets fewer batches. Use share='static'."
        )


# Two feed threads wait for each process.
_MOST_PROCESSES = MOST_THREADS // LANES_EACH


def check_threads(caller: str, num_threads: Any, most: int) -> int:
    """Return the number of feed threads, or AUTOTUNE.

    Raises:
      TypeError, ValueError: it is neither a number from 1 to `most` nor AUTOTUNE.
    """
    number = as_int(num_threads)
    if number == AUTOTUNE:
        return AUTOTUNE
    if number is None:
        refuse(caller, "num_threads", num_threads, f"a whole number {in_range(1, most)}, or AUTOTUNE")
    return whole(caller, "num_threads", num_threads, 1, most)


def check_processes(caller: str, num_processes: Any, num_threads: int, towers: int = 1) -> int:
    """Return the number of worker processes for each tower; 0 for none.

    Raises:
      TypeError, ValueError: the number is invalid, or cannot be combined with another argument or used on this system.
    """
    if as_int(num_processes) == AUTOTUNE:
        raise ValueError(
            f"{caller} got num_processes={NAMED_AUTOTUNE}. The processes start once, so their number "
            f"cannot follow the load. Measure with some numbers (docs/performance.md), or use num_threads=AUTOTUNE."
        )
    meaning = "worker processes for each tower; 0 makes the batches in threads"
    number = whole(caller, "num_processes", num_processes, 0, _MOST_PROCESSES // towers, meaning)
    if number and num_threads != 1:
        threads = NAMED_AUTOTUNE if num_threads == AUTOTUNE else num_threads
        raise ValueError(
            f"{caller} got num_threads={threads} and num_processes={number}. Each worker process has feed threads of "
            f"its own. Leave num_threads out."
        )
    if number and not hasattr(os, "memfd_create"):
        raise ValueError(f"{caller} got num_processes={number}, which needs Linux. Use num_threads instead.")
    return number


def check_in_processes(caller: str, sources: Iterable[Any]) -> None:
    """Check that worker processes can read the sources. Warn of random generators that each of them would copy.

    Raises:
      TypeError: they have no random access, or cannot be moved to another process.
    """
    warning = None
    for source in sources:
        if not isinstance(source, Source):
            raise TypeError(
                f"{caller} got num_processes= with {_named(source)}, which can only be read in order: no process could "
                f"make batch 7 without the batches before it. Pass a source with random access, such as ArraySource, "
                f"TFRecordSource or MapSource, or use num_threads= instead."
            )
        warning = check_picklable(caller, source) or warning
    if warning is not None:
        warn(warning, StagingWarning)


def _named(source: Any) -> str:
    if source is None:
        return "values that the graph computes"
    return f"a {type(source).__name__}" if isinstance(source, StreamSource) else f"{source!r}"
