"""`BatchReader`: reads, checks and converts the batches of one producer, for feed threads and for lockstep."""

from __future__ import annotations

import bisect
import threading
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from staging_tf1._tf import profiled, tf
from staging_tf1.feed.pipeline import MapOps, Producer
from staging_tf1.feed.preparing import Feeds, Preparing
from staging_tf1.feed.readers import (
    BlockSize,
    IndexReader,
    ReadBatch,
    Reader,
    RotationReader,
    StreamReader,
    read_batch,
)
from staging_tf1.feed.source_errors import SkipCounter, errors_only
from staging_tf1.feed.supply import Supply
from staging_tf1.feed.threads import WAITING_FOR_SHARE, WAITING_FOR_SOURCE, Rotation, ThreadState
from staging_tf1.fork import refuse_if_forked
from staging_tf1.sources import RecordSource, Source


class FedBatch(NamedTuple):
    """A batch that was read; or several, with the place and number of the first."""

    # In the order of delivery: without a gap.
    place: int
    # In the source's order.
    number: int
    # None for a batch that is bad or left out, which keeps its place.
    prepared: Feeds | None
    batches: int = 1
    # Why it is bad.
    error: Exception | None = None


class BatchReader:
    """Reads for one producer in one session. Thread-safe.

    Args:
      producer: the producer whose batches to read.
      reader: reads them from the source; None if the graph computes them.
      start: the number of the first batch.
      preparing: makes what is fed out of a batch; None if the graph computes them.
      size: how many batches the reader reads at once; None if it reads one.

    Attributes:
      on_failed_step: called after a failed step, which may have lost a batch.
    """

    def __init__(
        self,
        producer: Producer,
        reader: Reader | None,
        start: int,
        preparing: Preparing | None = None,
        size: BlockSize | None = None,
    ) -> None:
        self._size = size
        self.producer, self.start, self._preparing = producer, start, preparing
        self.on_failed_step: list[Callable[[], None]] = []
        self.skipped = SkipCounter(producer.name, producer.plan.skip_rule)
        self._reader = reader
        # The name of the event of each batch in TensorFlow's profile.
        self._event = f"feed {producer.name}"
        # All batches with smaller numbers were delivered, skipped or left out.
        self._delivered = start
        # How many were delivered; and after how many the numbers have a gap, with the number that follows it.
        self._count = 0
        self._gaps: tuple[list[int], list[int]] = ([0], [start])

    @property
    def reads(self) -> bool:
        """Whether there is a source to read. If not, the graph computes the batches."""
        return self._reader is not None

    @property
    def maps(self) -> bool:
        """Whether batches go through a `map_fn`."""
        return self._preparing is not None and self._preparing.maps

    def next(self, state: ThreadState) -> FedBatch | None:
        """Return the next batch; None at the end. One that is bad has its error, which is due when it would be put.

        Raises:
          tf.errors.AbortedError: with dynamic shares, others have been given this worker's batches. A MonitoredSession
            begins again.
          ClusterError: with dynamic shares, the chief is gone.
        """
        with profiled(self._event) as event:
            batch = self._next(state)
            if event is not None and batch is not None:
                # Its number is not known before.
                event.set_metadata(batch=state.batch)
            return batch

    def _next(self, state: ThreadState) -> FedBatch | None:
        assert self._reader is not None
        with errors_only(f"'{self.producer.name}'"):
            numbered = self._reader.take(lambda error: self.skip(state, error))
        # The source may have forked, and in the child any lock and any run may wait forever.
        refuse_if_forked("A feed thread")
        if numbered is None:
            return None
        state.batch = numbered.number
        return self._fed(numbered, numbered.number - numbered.left_out)

    def _fed(self, numbered: ReadBatch, place: int) -> FedBatch:
        try:
            return FedBatch(place, numbered.number, self._prepared(numbered), numbered.batches)
        except Exception as error:
            return FedBatch(place, numbered.number, None, numbered.batches, error)

    def leave_out(self, batch: FedBatch, state: ThreadState) -> None:
        """Skip a batch that is bad, when all before it were put; raise its error if that is not allowed.

        Raises:
          SourceError: the source raised what a session would take for the end of the data.
          Exception: what the source raised, or why the batch is bad.
        """
        with errors_only(f"'{self.producer.name}'"):
            if isinstance(batch.error, self.skipped.types):
                self.skip(state, batch.error)
            elif batch.error is not None:
                raise batch.error

    def skip(self, state: ThreadState, error: BaseException) -> None:
        self.skipped.skip(error)
        state.ignored += 1

    def stop(self) -> None:
        """End a wait for batches that the chief has not handed out, as at the end of the data."""

    def note_put(self, batch: FedBatch, source_secs: float, put_secs: float) -> None:
        """Note how long a batch, or several, took to read and to put."""
        if self._size is not None:
            self._size.note(batch.batches, source_secs, put_secs)

    def failed_in(self, batch: FedBatch, put: int, error: tf.errors.OpError) -> tf.errors.OpError:
        """Return the error to raise for a block of which only the first `put` batches were put."""
        assert self._preparing is not None
        return self._preparing.failed(batch.number + put, error)

    def stamp_of(self, batch: FedBatch) -> int:
        """Return the stamp of a batch (see `TokenArea`). Call it once for all that is fed, in order of delivery."""
        before, self._delivered = self._delivered, batch.number + batch.batches
        if batch.number != before:
            for known, new in zip(self._gaps, (self._count, batch.number), strict=True):
                known.append(new)
        self._count += batch.batches
        return self._stamp(batch.number, before)

    def number_of(self, delivered: int) -> int | None:
        """Return the number of the batch that was delivered after `delivered` others; None if none was."""
        if not 0 <= delivered < self._count:
            return None
        gap = bisect.bisect_right(self._gaps[0], delivered) - 1
        return self._gaps[1][gap] + delivered - self._gaps[0][gap]

    def _stamp(self, number: int, before: int) -> int:
        return number + 1 - before

    def shown(self, number: int) -> str:
        """Name a batch of a random-access source, and say how to see its records: for messages."""
        plan, towers = self.producer.plan, self.producer.plan.towers
        source, in_use = plan.inputs[self.producer.tower].source, self.producer.source
        assert isinstance(source, Source) and isinstance(in_use, Source)
        shard = f".shard({towers.own_shards[self.producer.tower]}, {towers.shards})" if towers.shards > 1 else ""
        seed = f".with_seed({in_use.seed})" if source.seed_was_drawn else ""
        method = "record_ids" if isinstance(source, RecordSource) else "batch"
        return f"batch {number} of '{self.producer.name}' (its records: source{seed}{shard}.{method}({number}))"

    def _prepared(self, numbered: ReadBatch) -> Feeds:
        assert self._preparing is not None
        if numbered.error is not None:
            raise numbered.error
        if numbered.batches > 1:
            return self._preparing.block(numbered.number, numbered.batch, numbered.batches)
        return self._preparing(numbered.number, numbered.batch)


class SuppliedReader(BatchReader):
    """Reads the batches that a supply names.

    Args:
      producer: with a random-access source.
      supply: names them.
      preparing: makes what is fed out of a batch.
    """

    def __init__(self, producer: Producer, supply: Supply, preparing: Preparing) -> None:
        super().__init__(producer, None, 0, preparing)
        self._supply = supply
        self.on_failed_step.append(supply.step_failed)
        self._naming = threading.Lock()

    @property
    def reads(self) -> bool:
        return True

    def _next(self, state: ThreadState) -> FedBatch | None:
        state.now(WAITING_FOR_SHARE)
        source = self.producer.source
        assert isinstance(source, Source)
        # The supply also lets one thread in at a time.
        with self._naming:
            named = self._supply.next()
            skip = self.producer.plan.skip
            is_left_out = named is not None and (named.batch in skip or source.is_left_out(named.batch))
            if named is not None and not is_left_out and self.producer.pool is not None:
                self.producer.pool.draw(named.batch)
        state.now(WAITING_FOR_SOURCE)
        if named is None:
            return None
        place, state.batch = named
        if is_left_out:
            self._supply.skip(named.batch)
            return FedBatch(place, named.batch, None)
        numbered = read_batch(source, named.batch, self.producer.pool)
        refuse_if_forked("A feed thread")
        return self._fed(numbered, place)

    def leave_out(self, batch: FedBatch, state: ThreadState) -> None:
        super().leave_out(batch, state)
        if batch.error is not None:
            self._supply.skip(batch.number)

    def stop(self) -> None:
        self._supply.stop()

    def _stamp(self, number: int, before: int) -> int:
        return number


class BatchReaders:
    """The readers of one pipeline in one session. Producers with the same stream share one reader of it.

    Args:
      starts: each producer, with the number of its first batch.
      map_ops: those of the `map_fn` of each producer, if there is one.

    Attributes:
      rotation: the order in which the towers take from an input that they share.
    """

    def __init__(self, starts: Sequence[tuple[Producer, int]], map_ops: Sequence[MapOps | None], session: Any) -> None:
        self._starts = [
            (producer, start, Preparing(producer, ops, session))
            for (producer, start), ops in zip(starts, map_ops, strict=True)
        ]
        towers = len({producer.tower for producer, _ in starts})
        self.rotation = Rotation(towers, min(start * towers + producer.tower for producer, start in starts))
        self._streams: dict[int, StreamReader] = {}

    def for_threads(self) -> list[BatchReader]:
        """Make a reader for each producer. Of a shared input, each tower reads its own batches."""
        return [self._for_thread(*starting) for starting in self._starts]

    def _for_thread(self, producer: Producer, start: int, preparing: Preparing) -> BatchReader:
        if producer.supply is not None:
            return SuppliedReader(producer, producer.supply, preparing)
        source, plan, size = producer.source, producer.plan, None
        if isinstance(source, Source) and not plan.one_by_one:
            room = plan.capacity
            if plan.queue is not None:
                # In batches, besides the records that a shuffle queue keeps back.
                room = (room - plan.queue.min_after_dequeue) // source.batch_size
            size = BlockSize(room, source.bytes_per_batch, maps=preparing.maps)
        reader = self._reader(producer, start, size)
        if reader is not None and plan.in_rotation:
            reader = RotationReader(reader, self.rotation, producer.tower, start, preparing, plan.skip_rule)
        return BatchReader(producer, reader, start, preparing, size)

    def for_steps(self) -> list[BatchReader]:
        """Make a reader for each producer. Of a shared input, each tower reads whatever comes next."""
        return [
            BatchReader(producer, self._reader(producer, start), start, preparing)
            for producer, start, preparing in self._starts
        ]

    def _reader(self, producer: Producer, start: int, size: BlockSize | None = None) -> Reader | None:
        source, plan = producer.source, producer.plan
        if source is None:
            return None
        if isinstance(source, Source):
            return IndexReader(source, start, plan.limit, plan.skip, size, producer.pool)
        first = self.rotation.first if plan.in_rotation else start
        return self._streams.setdefault(id(source), StreamReader(source, plan.skip_rule, first))
