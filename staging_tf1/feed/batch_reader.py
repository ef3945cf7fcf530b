"""`BatchReader`: reads, checks and converts the batches of one producer, for feed threads and for lockstep."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from staging_tf1._tf import profiled
from staging_tf1.feed.block_size import BlockSize
from staging_tf1.feed.pipeline import MapOps, Producer
from staging_tf1.feed.preparing import Prepared, Preparing
from staging_tf1.feed.readers import (
    BlockReader,
    IndexReader,
    ReadBatch,
    Reader,
    RotationReader,
    StreamReader,
    draw,
    read_batch,
)
from staging_tf1.feed.sequencer import Rotation
from staging_tf1.feed.source_errors import SkipCounter, errors_only
from staging_tf1.feed.supply import Supply
from staging_tf1.feed.threads import WAITING_FOR_SHARE, WAITING_FOR_SOURCE, ThreadState
from staging_tf1.fork import refuse_if_forked
from staging_tf1.sources import RecordSource, Source, StreamSource


class FedBatch(NamedTuple):
    """A batch that was read, and its number in the source's order; or several, with the number of the first."""

    number: int
    # None for a skipped batch, which keeps its number.
    prepared: Prepared | None
    batches: int = 1


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
        # All batches with smaller numbers were delivered or skipped.
        self._delivered = start

    @property
    def reads(self) -> bool:
        """Whether there is a source to read. If not, the graph computes the batches."""
        return self._reader is not None

    def next(self, state: ThreadState) -> FedBatch | None:
        """Return the next batch; None at the end. A skipped batch is counted in `state`.

        Raises:
          SourceError: the source raised what a session would take for the end of the data.
          tf.errors.AbortedError: with dynamic shares, others have been given this worker's batches. A MonitoredSession
            begins again.
          ClusterError: with dynamic shares, the chief is gone.
          Exception: what the source raised, or why the batch is bad.
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
            return FedBatch(numbered.number, self._prepared(numbered, state), numbered.batches)

    def skip(self, state: ThreadState, error: BaseException) -> None:
        """Count a skipped batch; raise `error` if that exceeds the limit."""
        self.skipped.skip(error)
        state.ignored += 1

    def stop(self) -> None:
        """End a wait for batches that the chief has not handed out, as at the end of the data."""

    def note_put(self, batch: FedBatch, source_secs: float, put_secs: float) -> None:
        """Note how long a batch, or several, took to read and to put."""
        if self._size is not None:
            self._size.note(batch.batches, source_secs, put_secs)

    def stamp_of(self, number: int) -> int:
        """Return the stamp of batch `number` (see `TokenArea`). Call it in order of delivery."""
        before, self._delivered = self._delivered, number + 1
        return self._delivered - before

    def _prepared(self, numbered: ReadBatch, state: ThreadState) -> Prepared | None:
        assert self._preparing is not None
        try:
            if numbered.error is not None:
                raise numbered.error
            if numbered.batches > 1:
                return self._preparing.block(numbered.batch, numbered.batches)
            return self._preparing(numbered.number, numbered.batch)
        except self.skipped.types as error:
            self.skip(state, error)
            return None


class SuppliedReader(BatchReader):
    """Reads the batches that a supply names. `FedBatch.number` is their place in the order of delivery.

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
        # The number in the source of each batch that is read and not delivered, by its place.
        self._batches: dict[int, int] = {}

    @property
    def reads(self) -> bool:
        """See base class."""
        return True

    def _next(self, state: ThreadState) -> FedBatch | None:
        state.now(WAITING_FOR_SHARE)
        source, rule = self.producer.source, self.producer.plan.skip_rule
        assert isinstance(source, Source)
        # The supply also lets one thread in at a time.
        with self._naming:
            named = self._supply.next()
            if named is not None:
                draw(source, named.batch)
        state.now(WAITING_FOR_SOURCE)
        if named is None:
            return None
        place, state.batch = named
        with errors_only(f"'{self.producer.name}'"):
            numbered = read_batch(source, rule, named.batch)
            refuse_if_forked("A feed thread")
            prepared = self._prepared(numbered, state)
        if prepared is None:
            self._supply.skip(named.batch)
        else:
            self._batches[place] = named.batch
        return FedBatch(place, prepared)

    def stop(self) -> None:
        """See base class."""
        self._supply.stop()

    def stamp_of(self, number: int) -> int:
        """See base class."""
        return self._batches.pop(number)


class BatchReaders:
    """The readers of one pipeline in one session. Producers with the same stream share one reader of it.

    Args:
      starts: each producer, with the number of its first batch.
      map_ops: those of the `map_fn` of each producer, if there is one.
      session: runs them.

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
        source = producer.source
        if not producer.plan.one_by_one and isinstance(source, RecordSource):
            size = BlockSize(producer.plan.capacity, source.bytes_per_batch)
            return BatchReader(producer, BlockReader(source, size, start, producer.plan.limit), start, preparing, size)
        return BatchReader(producer, self._reader_of_tower(producer, start, preparing), start, preparing)

    def for_steps(self) -> list[BatchReader]:
        """Make a reader for each producer. Of a shared input, each tower reads whatever comes next."""
        return [
            BatchReader(producer, self._reader(producer, start), start, preparing)
            for producer, start, preparing in self._starts
        ]

    def _reader_of_tower(self, producer: Producer, start: int, preparing: Preparing) -> Reader | None:
        reader = self._reader(producer, start)
        if reader is None or not producer.plan.in_rotation:
            return reader
        return RotationReader(reader, self.rotation, producer.tower, start, preparing, producer.plan.skip_rule)

    def _reader(self, producer: Producer, start: int) -> Reader | None:
        if producer.source is None:
            return None
        if isinstance(producer.source, Source):
            return IndexReader(producer.source, producer.plan.skip_rule, start, producer.plan.limit)
        return self._stream(producer, producer.source, self.rotation.first if producer.plan.in_rotation else start)

    def _stream(self, producer: Producer, source: StreamSource, start: int) -> StreamReader:
        return self._streams.setdefault(id(source), StreamReader(source, producer.plan.skip_rule, start))
