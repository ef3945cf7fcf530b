"""`RemoteSource`: a source whose batches worker processes make, in one session."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from staging_tf1.feed.pipeline import Producer
from staging_tf1.feed.resume import Start
from staging_tf1.feed.threads import Stopped
from staging_tf1.sources import Source
from staging_tf1.workers.pool import PoolOptions, PoolStopped, WorkerPool
from staging_tf1.workers.shipping import Shipment


class RemoteSource(Source):
    """Reads the batches of `source` from worker processes. Batches are new memory, which TensorFlow does not copy.

    Args:
      source: the source.
      pool: its workers.
    """

    gives_away = True

    def __init__(self, source: Source, pool: WorkerPool) -> None:
        self._source, self.pool, self.leaves_out = source, pool, source.leaves_out

    def draw(self, index: int) -> None:
        """Note that batch `index` is delivered next. Memory is given out in that order."""
        self.pool.draw(index)

    def batch(self, index: int) -> Any:
        """See base class.

        Raises:
          Stopped: the pipeline was stopped.
          Exception: what the source raised, or why there is no worker.
        """
        try:
            return self.pool.make(index)
        except PoolStopped:
            raise Stopped from None

    @property
    def spec(self) -> Any:
        """See base class."""
        return self._source.spec

    @property
    def batch_size(self) -> int:
        """See base class."""
        return self._source.batch_size

    @property
    def seed(self) -> int | None:  # type: ignore[override]
        """See base class."""
        return self._source.seed

    @property
    def num_records(self) -> int | None:
        """See base class."""
        return self._source.num_records

    @property
    def batches_per_epoch(self) -> int | None:
        """See base class."""
        return self._source.batches_per_epoch

    @property
    def num_batches(self) -> int | None:
        """See base class."""
        return self._source.num_batches

    def is_left_out(self, index: int) -> bool:
        """See base class."""
        return self._source.is_left_out(index)

    def shard(self, index: int, count: int) -> Source:
        """See base class."""
        return self._source.shard(index, count)

    def fingerprint(self) -> dict[str, int | str]:
        """See base class."""
        return self._source.fingerprint()


def with_workers(starts: Sequence[Start]) -> list[Start]:
    """Return `starts`, with a remote source for each producer that has worker processes. The first batch starts them.

    The sources of one pipeline are shipped together, so workers share the memory that sources share.
    """
    sources = [
        producer.source for producer, _ in starts if producer.plan.num_processes and isinstance(producer.source, Source)
    ]
    shipment, index = Shipment(sources, users=len(sources)), 0
    shipped = []
    for producer, start in starts:
        if producer.plan.num_processes and isinstance(producer.source, Source):
            pool = WorkerPool(_pool_options(producer, producer.source, shipment, index))
            index += 1
            producer = replace(producer, source=RemoteSource(producer.source, pool))
        shipped.append((producer, start))
    return shipped


def pool_of(producer: Producer) -> WorkerPool | None:
    """Return the workers of a producer in its session; None if threads make its batches."""
    return producer.source.pool if isinstance(producer.source, RemoteSource) else None


def _pool_options(producer: Producer, source: Source, shipment: Shipment, index: int) -> PoolOptions:
    return PoolOptions(
        name=producer.name,
        processes=producer.plan.num_processes,
        shipment=shipment,
        source_index=index,
        nice=producer.plan.nice,
        memory_limit=producer.plan.memory_limit,
        batch_bytes=source.bytes_per_batch,
    )
