"""Pools of worker processes without a session."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from staging_tf1.sources import Source
from staging_tf1.workers.pool import PoolOptions, WorkerPool
from staging_tf1.workers.shipping import Shipment


@contextmanager
def pools(*sources: Source, processes: int = 1, **options: Any) -> Iterator[list[WorkerPool]]:
    """A pool of worker processes for each of `sources`, without a session."""
    shipment = Shipment(sources, len(sources))
    made = [
        WorkerPool(PoolOptions(f"test/{index}", processes, shipment, index, **options)) for index in range(len(sources))
    ]
    try:
        yield made
    finally:
        for pool in made:
            pool.end()
