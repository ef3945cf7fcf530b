"""Three ways to bring batches into a graph: by hand as TensorFlow 1 did it, staged, and in lockstep."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import staging_tf1 as staging
from staging_tf1.data import LabelledImages
from staging_tf1.recipes.settings import Settings

__all__ = ["WORKFLOWS", "Feeding"]


@dataclass(frozen=True)
class Feeding:
    """What a workflow hands to the training loop."""

    # The tensors of one batch.
    images: Any
    labels: Any
    # The staging area's put, for a loop that runs it by hand, and how many puts fill the area; None and 0
    # where the # session does that.
    put: Any | None = None
    warm_up: int = 0
    # How many batches there will be, which a loop that puts by hand must know: its last steps must not put.
    num_batches: int = 0


def classic(data: LabelledImages, settings: Settings) -> Feeding:
    """Feed threads, a RandomShuffleQueue and a staging area, whose put stands in the training loop."""
    source = _source(data, settings, shuffle=False)
    runner = staging.CustomRunner(source, num_threads=settings.threads, seed=settings.seed, name="classic")
    batch = runner.get_inputs(settings.batch_size)
    area = staging.StagingArea.from_tensors(batch, capacity=settings.capacity)
    put, got = area.put(batch), area.get()
    num_batches = math.ceil(len(data.x_train) * settings.epochs / settings.batch_size)
    # One place stays free: the put of a step runs beside its get, and either may be first.
    warm_up = min(settings.capacity - 1, num_batches)
    return Feeding(got["image"], got["label"], put, warm_up, num_batches)


def staged(data: LabelledImages, settings: Settings) -> Feeding:
    """`staged()`: the same in one call, with every record delivered exactly once."""
    source = _source(data, settings, shuffle=True)
    batch = staging.staged(source, capacity=settings.capacity, num_threads=settings.threads, name="staged")
    return Feeding(batch["image"], batch["label"])


def lockstep(data: LabelledImages, settings: Settings) -> Feeding:
    """`staged(lockstep=True)`: no thread; the run that takes a batch puts the next one."""
    source = _source(data, settings, shuffle=True)
    batch = staging.staged(source, capacity=settings.capacity, lockstep=True, name="lockstep")
    return Feeding(batch["image"], batch["label"])


WORKFLOWS: dict[str, Callable[[LabelledImages, Settings], Feeding]] = {
    "classic": classic,
    "staged": staged,
    "lockstep": lockstep,
}


def _source(data: LabelledImages, settings: Settings, *, shuffle: bool) -> Any:
    return staging.sources.ArraySource(
        {"image": data.x_train, "label": data.y_train},
        batch_size=settings.batch_size,
        shuffle=shuffle,
        seed=settings.seed,
        epochs=settings.epochs,
    )
