"""What a pipeline has done so far, in figures and in one line."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from staging_tf1.feed.feed import Feed
from staging_tf1.feed.thread_state import ThreadState
from staging_tf1.graph.meter import Meter, Reading
from staging_tf1.graph.sink import Sink
from staging_tf1.lifecycle.account import Account
from staging_tf1.lifecycle.held import full_bytes, kind_of
from staging_tf1.lifecycle.verdict import verdict


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
      ignored: batches that were skipped because of an exception among `ignored_exception_types`.
      loop_secs: seconds from the start of the first run to the end of the last one.
      full_bytes: bytes that the area or queue holds when it is full: the memory held at most, but for the batch that
        each feed thread has in hand; 0 if it is not known.
      kind: how it is fed: "source", "stream" (a source that one thread at a time can read), "graph", or "lockstep".
      threads: feed threads.
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
    ignored: int = 0
    loop_secs: float = 0.0
    full_bytes: int = 0
    kind: str = "source"
    threads: int = 0

    @property
    def waited_share(self) -> float:
        """The share of the loop's time that steps waited for this pipeline, from 0 to 1."""
        return min(1.0, self.wait_secs / self.loop_secs) if self.loop_secs > 0 else 0.0

    @property
    def verdict(self) -> str:
        """Whether the loop is bound by its input or by its computation, and a suggestion."""
        return verdict(self.waited_share, self.kind, self.threads)

    def __str__(self) -> str:
        # Of batches that the graph computes, the threads know no bytes.
        moved = f", {_amount(self.bytes)}" if self.bytes else ""
        held = f"; memory held at most {_amount(self.full_bytes)}" if self.full_bytes else ""
        return (
            f"{self.name}: {self.batches} batches{moved}; steps waited {self.wait_secs:.2f} s for input, feed threads "
            f"{self.feeder_wait_secs:.2f} s for room; occupancy {self.occupancy:.1f} of {self.capacity}{held}; "
            f"{self.verdict}"
        )


def _amount(nbytes: int) -> str:
    if nbytes < 2**10:
        return f"{nbytes} bytes"
    return f"{nbytes / 2**10:.1f} KiB" if nbytes < 2**20 else f"{nbytes / 2**20:.1f} MiB"


def stats_of(
    feeds: Sequence[Feed],
    session: Any,
    account: Account | None = None,
    loop_secs: float = 0.0,
    readers: Callable[[Feed], Sequence[ThreadState]] = lambda feed: (),
) -> list[PipelineStats]:
    """One record for each sink of `feeds`, which run in `session`.

    Args:
      feeds: what fills the sinks.
      session: whose figures to take.
      account: knows which batches failed.
      loop_secs: how long the loop has taken so far.
      readers: in lockstep, where the step itself reads: what it has read for each tower of a feed.
    """
    failed = account.failed_by_sink() if account is not None else {}
    sinks = [
        (feed, index, sink)
        for feed in feeds
        for index, sink in enumerate({id(lane.sink): lane.sink for lane in feed.lanes}.values())
    ]
    # One run for all: each other set of fetches costs TensorFlow a search of the whole graph.
    sums = session.run([sink.meter.value for _, _, sink in sinks]) if sinks else []
    return [
        _record(feed, index, sink, Meter.reading(of_sink), session, failed, loop_secs, readers(feed))
        for (feed, index, sink), of_sink in zip(sinks, sums, strict=True)
    ]


def _record(
    feed: Feed,
    index: int,
    sink: Sink,
    reading: Reading,
    session: Any,
    failed: Mapping[str, Sequence[int]],
    loop_secs: float,
    readers: Sequence[ThreadState],
) -> PipelineStats:
    run = feed.run_in(session)
    states = [state for lane in run.lanes if lane.lane.sink is sink for state in lane.states] if run else []
    reader = list(readers[index : index + 1])
    return PipelineStats(
        name=sink.name,
        batches=reading.batches,
        records=sum(state.records for state in states + reader),
        bytes=sum(state.bytes for state in states + reader),
        wait_secs=reading.wait_secs + sum(state.source_secs for state in reader),
        feeder_wait_secs=sum(state.put_secs for state in states + reader),
        source_secs=sum(state.source_secs for state in states + reader),
        occupancy=reading.occupancy,
        capacity=sink.capacity,
        failed_batches=tuple(failed.get(sink.name, ())),
        ignored=sum(state.ignored for state in states + reader),
        loop_secs=loop_secs,
        full_bytes=full_bytes(feed, index, sink, states + reader),
        kind=kind_of(feed),
        threads=len(states),
    )
