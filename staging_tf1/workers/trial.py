"""`Trial`: batches of a source from worker processes, without a session. `staging_tf1.testing` uses it."""

from __future__ import annotations

import sys
from typing import Any, cast

import numpy as np

from staging_tf1.sources.base import Source
from staging_tf1.workers.pool import Job, WorkerPool
from staging_tf1.workers.shipping import SharedShipment

__all__ = ["Trial"]


class Trial:
    """Worker processes for one source. A context manager, which ends them. Thread-safe.

    Attributes:
      has_tensorflow: whether a worker has imported TensorFlow so far.
    """

    def __init__(self, source: Source, processes: int) -> None:
        witness = cast(Source, _Witness(source))
        self._pool = WorkerPool(Job("trial", processes, SharedShipment([witness], users=1)))
        self.has_tensorflow = False

    def __enter__(self) -> Trial:
        return self

    def __exit__(self, *error: object) -> None:
        self._pool.end()

    def batch(self, number: int) -> Any:
        """Return batch `number`, made by a worker. Raises what the source raises, or why no worker can make it."""
        made = self._pool.make(number).batch
        self.has_tensorflow |= bool(made["tensorflow"])
        return made["batch"]


class _Witness:
    """Wraps the source in a worker. `batch` also returns whether TensorFlow is imported there."""

    def __init__(self, source: Source) -> None:
        self._source, self.gives_away = source, source.gives_away

    def batch(self, index: int) -> Any:
        made = self._source.batch(index)
        return {"batch": made, "tensorflow": np.array("tensorflow" in sys.modules)}
