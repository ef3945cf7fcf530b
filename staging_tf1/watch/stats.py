"""The figures of a pipeline, and whether the loop is bound by its input."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

from staging_tf1._tf import run_unwrapped
from staging_tf1.feed.accounts import Accounts, read_counts
from staging_tf1.feed.pipeline import Pipeline
from staging_tf1.feed.threads import ThreadState
from staging_tf1.graph.sink import GetFigures, Sink
from staging_tf1.graph.state import feeding_in
from staging_tf1.sources import Source
from staging_tf1.watch.advice import NOT_MEASURED, NOT_TAKEN, bottleneck, typical_share


@dataclass(frozen=True)
class PipelineStats:
    """Figures of one pipeline (an area or a queue) in one session.

    Attributes:
      name: the pipeline's name; with towers one record each, "name/0", "name/1".
      batches: batches that steps have taken.
      records: records that the feed threads have delivered; 0 where the graph computes the batches.
      bytes: bytes that the feed threads have delivered, a string by its length; 0 where the graph computes the batches.
      wait_secs: seconds that the steps waited for a batch, in all. None with deterministic ops, under which TensorFlow
        does not let a step read the clock.
      feeder_wait_secs: seconds that the feed threads spent in the put, mostly waiting for room, in all.
      source_secs: seconds that the feed threads spent in the source, in all.
      source_cpu_secs: CPU seconds among them, estimated from one batch in eight.
      occupancy: mean number of elements that a step found.
      capacity: elements that there is room for.
      failed: batches that steps took which then failed; 0 for a queue.
      failed_batches: the numbers of these batches, counted from 0 in the order of delivery. If a failed step was under
        way together with others, its batch is unknown, and only `failed` counts it.
      failed_numbers: the same batches by their numbers in the source, or in the tower's shard of it, as
        `source.record_ids` takes them; empty if no random-access source is read.
      last_number: the number, in the same way, of the batch that steps took last; None if unknown.
      ignored: batches that were skipped because of an exception among `ignored_exception_types`.
      loop_secs: seconds from the start of the first run to the end of the last one.
      full_bytes: bytes that the area or queue holds when it is full; 0 if unknown. Each feed thread has one more batch
        in hand, or several that take at most 8 MiB together.
      kind: how it is fed: "source", "stream" (a source that one thread at a time can read), "graph", "seeded" (a
        shuffle queue whose order can be repeated), or "lockstep".
      threads: feed threads that work.
      recent_waited_shares: the share of the time that steps waited, from 0 to 1, in up to 60 measurements of half a
        second or one step, whichever is longer, oldest first. Their median makes the verdict.
      autotune: whether `num_threads=AUTOTUNE` decides their number.
      processes: worker processes that make its batches; 0 if the feed threads do.
      starting: "worker processes 'train:0', 'train:1'" as long as none of them has begun to serve; empty elsewhere.
      shared_bytes: the most memory that it shared with them at a time, in bytes.
      positions: in a cluster, how many batches the steps of each worker have consumed, over all runs; with towers,
        those of each tower, worker by worker. One number for all workers with share="dynamic". Empty elsewhere, and
        without a position.
      one_by_one: why a run puts one batch; "" if fast steps make it put several, as with arrays or a queue of records.
    """

    name: str
    batches: int
    records: int
    bytes: int
    wait_secs: float | None
    feeder_wait_secs: float
    source_secs: float
    occupancy: float
    capacity: int
    failed_batches: tuple[int, ...] = ()
    failed_numbers: tuple[int, ...] = ()
    last_number: int | None = None
    ignored: int = 0
    loop_secs: float = 0.0
    full_bytes: int = 0
    kind: str = "source"
    threads: int = 0
    processes: int = 0
    starting: str = ""
    shared_bytes: int = 0
    positions: tuple[int, ...] = ()
    source_cpu_secs: float = 0.0
    autotune: bool = False
    recent_waited_shares: tuple[float, ...] = ()
    one_by_one: str = ""
    failed: int = 0

    @property
    def waited_share(self) -> float | None:
        """The share of the loop's time that steps waited for this pipeline, from 0 to 1; None without `wait_secs`."""
        if self.wait_secs is None:
            return None
        return min(1.0, self.wait_secs / self.loop_secs) if self.loop_secs > 0 else 0.0

    @property
    def verdict(self) -> str:
        """Whether the loop is bound by its input or by its computation, and a suggestion.

        It goes by the last half minute: the median of `recent_waited_shares`.
        """
        if self.starting:
            return f"input-bound: {self.starting} are still starting"
        of_run = self.waited_share
        if of_run is None:
            return f"bottleneck unknown: {NOT_MEASURED}"
        if not self.batches and not of_run:
            return f"bottleneck unknown: {NOT_TAKEN}"
        kind = "processes" if self.processes else "autotuned" if self.autotune else self.kind
        cores = self.threads * self.source_cpu_secs / self.source_secs if self.source_secs else 0.0
        of_loop = self.source_cpu_secs / self.loop_secs if self.loop_secs else 0.0
        waited_share = typical_share(self.recent_waited_shares, of_run)
        return bottleneck(waited_share, kind, self.processes or self.threads, cores, of_loop)

    def __str__(self) -> str:
        # The threads do not see the bytes of batches that the graph computes.
        moved = f", {_amount(self.bytes)}" if self.bytes else ""
        held = f"; memory held at most {_amount(self.full_bytes)}" if self.full_bytes else ""
        if self.processes:
            held += f"; {self.processes} worker processes shared at most {_amount(self.shared_bytes)}"
        if self.autotune:
            held += f"; AUTOTUNE: {self.threads} feed thread{'s' if self.threads > 1 else ''}"
        waited = "feed threads waited"
        if self.wait_secs is not None:
            waited = f"steps waited {self.wait_secs:.2f} s for input, feed threads"
        if self.failed_numbers:
            held += f"; failed steps had batches {', '.join(map(str, self.failed_numbers))} (source.record_ids)"
        if self.failed > len(self.failed_batches):
            held += f"; failed steps had {self.failed - len(self.failed_batches)} unknown batches"
        return (
            f"{self.name}: {self.batches} batches{moved}; {waited} "
            f"{self.feeder_wait_secs:.2f} s for room; occupancy {self.occupancy:.1f} of {self.capacity}{held}; "
            f"{self.verdict}"
        )


def _amount(nbytes: int) -> str:
    if nbytes < 2**10:
        return f"{nbytes} bytes"
    return f"{nbytes / 2**10:.1f} KiB" if nbytes < 2**20 else f"{nbytes / 2**20:.1f} MiB"


def stats_of(
    pipelines: Sequence[Pipeline],
    session: Any,
    loop_secs: float = 0.0,
    reading: Callable[[Pipeline], Sequence[ThreadState]] = lambda pipeline: (),
    waited: Callable[[Sink], tuple[float, ...]] = lambda sink: (),
) -> list[PipelineStats]:
    """One record for each sink of `pipelines` in `session`.

    Args:
      pipelines: of the session's graph.
      session: whose figures to take.
      loop_secs: how long the loop has taken so far.
      reading: in lockstep, what the steps themselves have read for each tower of a pipeline.
      waited: the measured shares of the time that steps waited for a sink.
    """
    feeding = feeding_in(session)
    sinks = [(pipeline, tower, sink) for pipeline in pipelines for tower, sink in enumerate(pipeline.sinks)]
    shared = {
        pipeline: pipeline.position
        for pipeline in pipelines
        if pipeline.cluster is not None and pipeline.position is not None
    }
    counts = read_counts([sink for _, _, sink in sinks], session)
    batches = run_unwrapped(session, [position.saved[0] for position in shared.values()]) if shared else []
    consumed = [position.consumed(value) for position, value in zip(shared.values(), batches, strict=True)]
    positions = dict(zip(shared, consumed, strict=True))
    stats = []
    for pipeline, tower, sink in sinks:
        run = None if feeding is None else feeding.runs.get(pipeline)
        threads = run.states_of(tower) if run is not None else []
        pools = run.pools_of(tower) if run is not None else []
        steps = list(reading(pipeline)[tower : tower + 1])
        record = _record(pipeline, sink, counts[sink].gets, threads, steps, loop_secs)
        if feeding is not None:
            record = _with_failures(record, sink, counts[sink].taken, feeding.accounts)
        stats.append(
            replace(
                record,
                positions=positions.get(pipeline, ()),
                threads=run.threads_of(tower) if run is not None else 0,
                autotune=any(producer.autotune for producer in pipeline.producers),
                processes=sum(pool.processes for pool in pools),
                starting=", ".join(filter(None, (pool.starting for pool in pools))),
                shared_bytes=sum(pool.memory_bytes for pool in pools),
                recent_waited_shares=waited(sink),
            )
        )
    return stats


def _with_failures(record: PipelineStats, sink: Sink, taken: int, accounts: Accounts) -> PipelineStats:
    numbers = tuple(accounts.numbers.get(sink, ()))
    last = accounts.numbers_in_source(sink, [taken - 1])
    return replace(
        record,
        failed=accounts.count_failed(sink),
        failed_batches=numbers,
        failed_numbers=tuple(accounts.numbers_in_source(sink, numbers)),
        last_number=last[0] if last else None,
    )


def _record(
    pipeline: Pipeline,
    sink: Sink,
    figures: GetFigures,
    threads: list[ThreadState],
    steps: list[ThreadState],
    loop_secs: float,
) -> PipelineStats:
    states = threads + steps
    return PipelineStats(
        name=sink.name,
        batches=figures.batches,
        records=sum(state.records for state in states),
        bytes=sum(state.bytes for state in states),
        wait_secs=None if figures.wait_secs is None else figures.wait_secs + sum(state.source_secs for state in steps),
        feeder_wait_secs=sum(state.put_secs for state in states),
        source_secs=sum(state.source_secs for state in states),
        source_cpu_secs=sum(state.source_secs * state.cores_in_source for state in states),
        occupancy=figures.occupancy,
        capacity=sink.capacity,
        ignored=sum(state.ignored for state in states),
        loop_secs=loop_secs,
        full_bytes=full_bytes(sink, states),
        kind=_kind(pipeline),
        one_by_one=pipeline.plan.one_by_one,
    )


def _kind(pipeline: Pipeline) -> str:
    """How it gets its batches: "source", "stream" (one thread at a time reads it), "graph", "seeded", or "lockstep"."""
    if pipeline.lockstep:
        return "lockstep"
    sources = [producer.source for producer in pipeline.producers]
    if any(source is None for source in sources):
        return "graph"
    if any(sink.put.handshake is not None for sink in pipeline.sinks):
        return "seeded"
    return "source" if all(isinstance(source, Source) for source in sources) else "stream"


def full_bytes(sink: Sink, states: Sequence[ThreadState]) -> int:
    """Bytes in a full area or queue; 0 if unknown.

    Static shapes tell them. Where one is open, or a component is a string, what was delivered does.
    """
    holds_batches = sink.area is not None or sink.put.op.type == "QueueEnqueueV2"
    held = sink.put.placeholders if sink.get is None else sink.get.outputs
    if holds_batches and held and all(_is_known(tensor) for tensor in held):
        return sink.capacity * _bytes_of(held)
    elements = sum(state.batches if holds_batches else state.records for state in states)
    delivered = sum(state.bytes for state in states)
    if not delivered or not elements:
        return 0
    strings = sum(state.string_bytes for state in states)
    # What cast= makes of the numbers: open dimensions are the same before and after.
    fed = _bytes_of(sink.put.placeholders)
    growth = _bytes_of(held) / fed if fed else 1
    return round(sink.capacity * ((delivered - strings) * growth + strings) / elements)


def _is_known(tensor: Any) -> bool:
    compatible = tensor.dtype.base_dtype.is_numpy_compatible
    return bool(tensor.shape.is_fully_defined() and compatible and not _is_string(tensor))


def _is_string(tensor: Any) -> bool:
    return bool(tensor.dtype.base_dtype.name == "string")


def _bytes_of(tensors: Sequence[Any]) -> int:
    """Bytes of all tensors except strings, with open dimensions counted as 1."""
    numbers = [tensor for tensor in tensors if not _is_string(tensor)]
    return sum(int(tensor.dtype.size) * math.prod(dim or 1 for dim in _dims(tensor)) for tensor in numbers)


def _dims(tensor: Any) -> list[int | None]:
    return [] if tensor.shape.rank is None else list(tensor.shape.as_list())
