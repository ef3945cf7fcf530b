"""What a pipeline has done so far, in figures and in one line."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from staging_tf1.feed.feed import Feed
from staging_tf1.graph.meter import Meter
from staging_tf1.lifecycle.account import Account


@dataclass(frozen=True)
class PipelineStats:
    """Figures of one pipeline (an area or a queue) in one session.

    Attributes:
      name: the pipeline's name; with towers one record each, "name/0", "name/1".
      batches: batches that steps have taken.
      records: records that the feed threads have delivered; 0 where the graph computes the batches.
      bytes: bytes that the feed threads have delivered; 0 where the graph computes the batches.
      wait_secs: seconds that the steps waited for a batch, in all.
      feeder_wait_secs: seconds that the feed threads spent in the put, mostly waiting for room, in all.
      source_secs: seconds that the feed threads spent in the source, in all.
      occupancy: mean number of elements that a step found.
      capacity: elements that there is room for.
      failed_batches: the numbers of the batches that steps took which then failed, counted from 0 in the order of
        delivery; empty for a queue.
    """

    name: str
    batches: int
    records: int
    bytes: int
    wait_secs: float
    feeder_wait_secs: float
    source_secs: float
    occupancy: float
    capacity: int
    failed_batches: tuple[int, ...] = ()

    def __str__(self) -> str:
        return (
            f"{self.name}: {self.batches} batches, {self.bytes / 2**20:.1f} MiB; steps waited {self.wait_secs:.2f} s "
            f"for input, feed threads {self.feeder_wait_secs:.2f} s for room; occupancy {self.occupancy:.1f} of "
            f"{self.capacity}"
        )


def stats_of(feed: Feed, session: Any, account: Account) -> list[PipelineStats]:
    """One record for each sink of `feed`; empty if it was not started in `session`."""
    run = feed.run_in(session)
    failed = account.failed_by_sink()
    records = []
    for sink in {id(lane.sink): lane.sink for lane in feed.lanes}.values():
        states = [state for lane in run.lanes if lane.lane.sink is sink for state in lane.states] if run else []
        reading = Meter.reading(session.run(sink.meter.value))
        records.append(
            PipelineStats(
                name=sink.name,
                batches=reading.batches,
                records=sum(state.records for state in states),
                bytes=sum(state.bytes for state in states),
                wait_secs=reading.wait_secs,
                feeder_wait_secs=sum(state.put_secs for state in states),
                source_secs=sum(state.source_secs for state in states),
                occupancy=reading.occupancy,
                capacity=sink.capacity,
                failed_batches=tuple(failed.get(sink.name, ())),
            )
        )
    return records
