"""Three ways to bring batches into a graph: by hand as in TensorFlow 1, staged, and in lockstep."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import staging_tf1 as staging
from staging_tf1.data import LabelledImages
from staging_tf1.recipes.settings import Settings, WorkflowError

__all__ = ["WORKFLOWS", "Feeding", "check_workflow", "examples_of"]


@dataclass(frozen=True)
class Feeding:
    """The tensors and the put op that a workflow passes to the training loop."""

    # The tensors of one batch.
    images: Any
    labels: Any
    # The put of the staging area and the number of warm-up puts, for a loop that runs them by hand; None and 0 if the
    # session runs them.
    put: Any | None = None
    warm_up: int = 0
    # The total number of batches. A loop that puts by hand must know it, because its last steps must not put.
    num_batches: int = 0


def classic(data: LabelledImages, settings: Settings, cluster: staging.Cluster) -> Feeding:
    """Use feed threads, a RandomShuffleQueue, and a staging area whose put runs in the training loop."""
    source = _source(data, settings, shuffle=False)
    runner = staging.CustomRunner(
        source,
        num_threads=settings.threads,
        num_processes=settings.processes,
        seed=settings.seed,
        cluster=cluster,
        name="classic",
    )
    batch = runner.get_inputs(settings.batch_size)
    area = staging.StagingArea.from_tensors(batch, capacity=settings.capacity)
    put, got = area.put(batch), area.get()
    num_batches = math.ceil(examples_of(data, settings, cluster) / settings.batch_size)
    # One slot stays free, because the put of a step may run before its get.
    warm_up = min(settings.capacity - 1, num_batches)
    return Feeding(got["image"], got["label"], put, warm_up, num_batches)


def staged(data: LabelledImages, settings: Settings, cluster: staging.Cluster) -> Feeding:
    """Use `staged()`: the same in one call, and every record is delivered exactly once."""
    source = _source(data, settings, shuffle=True)
    batch = staging.staged(
        source,
        capacity=settings.capacity,
        num_threads=settings.threads,
        num_processes=settings.processes,
        cluster=cluster,
        name="staged",
    )
    return Feeding(batch["image"], batch["label"])


def lockstep(data: LabelledImages, settings: Settings, cluster: staging.Cluster) -> Feeding:
    """Use `staged(lockstep=True)`: without threads, the run that takes a batch puts the next one."""
    source = _source(data, settings, shuffle=True)
    batch = staging.staged(source, capacity=settings.capacity, lockstep=True, cluster=cluster, name="lockstep")
    return Feeding(batch["image"], batch["label"])


WORKFLOWS: dict[str, Callable[[LabelledImages, Settings, staging.Cluster], Feeding]] = {
    "classic": classic,
    "staged": staged,
    "lockstep": lockstep,
}


def check_workflow(settings: Settings, cluster: staging.Cluster) -> None:
    """Raise WorkflowError if the workflow does not support the cluster."""
    if settings.workflow == "classic" and cluster.sync and cluster.is_distributed:
        raise WorkflowError(
            "--workflow classic does not train in sync (STAGING_TF1_SYNC=1): only staged() counts the steps of all "
            "workers, so that none runs ahead. Use --workflow staged or lockstep, or train without sync."
        )


def examples_of(data: LabelledImages, settings: Settings, cluster: staging.Cluster) -> int:
    """Return how many examples this worker trains on, over all epochs: it gets every n-th of n workers."""
    own = range(cluster.worker_index or 0, len(data.x_train), cluster.num_workers)
    return len(own) * settings.epochs


def _source(data: LabelledImages, settings: Settings, *, shuffle: bool) -> Any:
    return staging.sources.ArraySource(
        {"image": data.x_train, "label": data.y_train},
        batch_size=settings.batch_size,
        shuffle=shuffle,
        seed=settings.seed,
        epochs=settings.epochs,
    )
