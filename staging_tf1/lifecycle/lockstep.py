"""`Lockstep`: no feed thread; the run that takes a batch also puts the next one.

The end of the data must not fail the step that takes the last batch. So whatever can end is asked before the step: a
source is read, or the ops at which the data can end are run. Then the step runs, with or without the put.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from staging_tf1._tf import fast_callable, is_uninitialized_iterator, run_unwrapped, tf
from staging_tf1.feed.accounts import Count, counts_of
from staging_tf1.feed.batch_reader import BatchReader, BatchReaders
from staging_tf1.feed.chain import Handler, Look, Run, Stage
from staging_tf1.feed.feeding import Feeding
from staging_tf1.feed.pipeline import Pipeline
from staging_tf1.feed.repair import release_stranded, repair_slots
from staging_tf1.feed.source_errors import refuse_unfed
from staging_tf1.feed.threads import BETWEEN_STEPS, WAITING_FOR_SOURCE, ThreadState
from staging_tf1.graph.sink import Sink


@dataclass
class _Tower:
    sink: Sink
    batches: BatchReader
    # The loop's own thread is the feed thread here.
    state: ThreadState
    # Computes the tensors at which the data can end; None if it never ends.
    compute_ends: Callable[[], Sequence[Any]] | None
    # Elements in the area, as far as is known.
    staged: int = 0
    # The feeds of the next put; None if nothing has been read ahead.
    pending: dict[Any, Any] | None = None
    # Batches that were read too early for this tower: another tower of the same input needed a later one.
    read_for_tower: deque[dict[Any, Any]] = field(default_factory=deque)
    ended: bool = False
    # Gets that the graph had counted when the last run began.
    taken: int = 0
    in_flight: bool = False


class Lockstep:
    """One pipeline in lockstep in one session.

    Args:
      pipeline: the pipeline to step.
      feeding: what runs in the session of the steps.
    """

    def __init__(self, pipeline: Pipeline, feeding: Feeding) -> None:
        self.name = pipeline.name
        self._feeding, self._session, self._pipeline = feeding, feeding.session, pipeline
        session = feeding.session
        self.towers = [
            _Tower(
                sink,
                batches,
                ThreadState(f"lockstep:{batches.producer.name}"),
                fast_callable(session, feeds=(), targets=(), fetches=sink.put.ends) if sink.put.ends else None,
            )
            for sink, batches in zip(pipeline.sinks, self._readers(), strict=True)
        ]

    def _readers(self) -> list[BatchReader]:
        starts = self._feeding.take_prepared(self._pipeline).starts
        readers = BatchReaders(starts, self._pipeline.map_ops, self._session)
        # Counts the batches read from a shared input: the remainder is the next tower.
        self._next_in_rotation = readers.rotation.first
        of_towers = readers.for_steps()
        self._feeding.accounts.read_by(self._pipeline, of_towers)
        return of_towers

    def first_puts(self) -> tuple[list[Any], dict[Any, Any]]:
        """Return the puts of the first batch of each tower, with their feeds. Call `have_put` after running them."""
        puts, feeds = [], {}
        for tower in self.towers:
            try:
                self._read_ahead(tower)
            except tf.errors.FailedPreconditionError as error:
                if not is_uninitialized_iterator(error):
                    raise
                # A later hook may initialize it: the first step puts.
            if tower.pending is not None:
                puts.append(tower.sink.put.op)
                feeds.update(tower.pending)
        return puts, feeds

    def have_put(self) -> None:
        for tower in self.towers:
            if tower.pending is not None:
                tower.pending = None
                tower.staged += 1

    def before(self, needed: Iterable[int]) -> tuple[list[Any], dict[Any, Any]]:
        """Prepare a run that takes from the towers `needed`. Return the puts to add to it, with their feeds.

        Raises:
          tf.errors.OutOfRangeError: one of them has no batch left. Nothing has been taken from the others.
        """
        towers = [self.towers[index] for index in sorted(needed)]
        in_flight = [tower.sink for tower in towers if tower.in_flight]
        if in_flight:
            self._settle(counts_of(in_flight, self._session))
        for tower in towers:
            if not tower.staged:
                self._stage(tower)
        self._check_not_empty(towers)
        puts, feeds = [], {}
        for tower in towers:
            self._read_ahead(tower)
            tower.in_flight = True
            if tower.pending is not None:
                puts.append(tower.sink.put.op)
                feeds.update(tower.pending)
        return puts, feeds

    def after(self, needed: Iterable[int]) -> None:
        for index in needed:
            tower = self.towers[index]
            tower.in_flight = False
            tower.taken += 1
            if tower.pending is None:
                tower.staged -= 1
            tower.pending = None

    def repair(self, counts: Mapping[Sink, Count]) -> None:
        """Restore what a failed step has lost, and find out whether its put and its get were done.

        Args:
          counts: of the sinks, after the step; empty if the session is gone.
        """
        for tower in self.towers:
            release_stranded(tower.sink, counts, self._session, tower.pending or {})
            repair_slots(tower.sink, counts, self._session)
        self._settle(counts)

    def _settle(self, counts: Mapping[Sink, Count]) -> None:
        for tower in self.towers:
            count = counts.get(tower.sink)
            if count is None or not tower.in_flight:
                continue
            # What a put has staged is released by now.
            if count.held - tower.staged + (count.taken - tower.taken) > 0:
                tower.pending = None
            tower.staged, tower.taken, tower.in_flight = count.held, count.taken, False

    def begin_anew(self) -> None:
        """Drop what is staged and read ahead: the program has set the position, or initialized an iterator."""
        for tower, batches in zip(self.towers, self._readers(), strict=True):
            tower.batches, tower.taken = batches, self._feeding.accounts.taken_before[tower.sink]
            tower.staged, tower.pending, tower.ended, tower.in_flight = 0, None, False, False
            tower.read_for_tower.clear()

    def drain(self) -> None:
        """Stop reading. Batches that are staged or read ahead can still be taken."""
        for tower in self.towers:
            # A chained tower ends after the pipeline that it takes from, once it has taken the rest of its queue.
            tower.ended = tower.ended or not tower.batches.producer.chained

    def _stage(self, tower: _Tower) -> None:
        self._read_ahead(tower)
        if tower.pending is not None:
            run_unwrapped(self._session, tower.sink.put.op, tower.pending)
            tower.pending = None
            tower.staged += 1

    def _read_ahead(self, tower: _Tower) -> None:
        if tower.pending is not None:
            return
        while not (tower.read_for_tower or tower.ended):
            self._read(tower)
        if tower.read_for_tower:
            tower.pending = tower.read_for_tower.popleft()

    def _read(self, tower: _Tower) -> None:
        """Read one batch. Towers that share an input read it in rotation, whichever of them needs a batch."""
        shares = tower.batches.producer.plan.in_rotation
        sharing = self.towers if shares else [tower]
        reading = sharing[self._next_in_rotation % len(sharing)]
        reading.state.thread = threading.current_thread()
        reading.state.now(WAITING_FOR_SOURCE)
        try:
            feeds = self._read_source(reading) if reading.batches.reads else self._compute(reading)
            # As in feed threads, a bad batch is skipped within the rotation.
            self._next_in_rotation += shares
            if feeds is not None:
                reading.read_for_tower.append(feeds)
            else:
                for tower in sharing:
                    tower.ended = True
        finally:
            reading.state.source_secs += reading.state.now(BETWEEN_STEPS)

    def _read_source(self, tower: _Tower) -> dict[Any, Any] | None:
        """Return the feeds of the next batch that is not skipped; None at the end."""
        while (batch := tower.batches.next(tower.state)) is not None:
            if batch.prepared is not None:
                tower.state.count(*batch.prepared)
                feeds = dict(zip(tower.sink.put.placeholders, batch.prepared.arrays, strict=True))
                stamp = tower.batches.stamp_of(batch)
                return feeds if tower.sink.put.stamp is None else {**feeds, tower.sink.put.stamp: stamp}
            tower.batches.leave_out(batch, tower.state)
        return None

    def _compute(self, tower: _Tower) -> dict[Any, Any] | None:
        """Return the same for batches that the graph computes: feeds of the tensors at which the data can end."""
        if tower.compute_ends is None:
            return {}
        while True:
            try:
                values = tower.compute_ends()
            except tf.errors.OutOfRangeError:
                return None
            except tower.batches.skipped.types as error:
                refuse_unfed(error, [self._pipeline])
                tower.batches.skip(tower.state, error)
                continue
            # A session returns scalars as Python numbers, but callables take only arrays.
            return {
                tensor: np.asarray(value, tensor.dtype.as_numpy_dtype)
                for tensor, value in zip(tower.sink.put.ends, values, strict=True)
            }

    def _check_not_empty(self, towers: list[_Tower]) -> None:
        empty = [tower.sink.name for tower in towers if not tower.staged]
        if not empty:
            return
        left = [tower.sink.name for tower in towers if tower.staged]
        more = f" Still staged and not taken: {', '.join(left)}. Fetch those towers separately." if left else ""
        raise tf.errors.OutOfRangeError(None, None, f"End of data in lockstep: {', '.join(empty)}.{more}")


class LockstepPuts(Handler):
    """Adds the puts of the pipelines in lockstep to the steps of one session.

    Args:
      pipelines: those in lockstep, each with its towers.
    """

    def __init__(self, pipelines: Mapping[Pipeline, Lockstep]) -> None:
        self._pipelines = pipelines

    def stage(self, look: Look) -> Stage | None:
        taken = [(lockstep, look.towers_of(pipeline)) for pipeline, lockstep in self._pipelines.items()]
        taken = [(lockstep, towers) for lockstep, towers in taken if towers]

        def before(run: Run) -> None:
            for lockstep, towers in taken:
                run.add(*lockstep.before(towers))

        def after(run: Run) -> None:
            for lockstep, towers in taken:
                lockstep.after(towers)

        def failed(run: Run, error: BaseException) -> None:
            # Otherwise the session is gone, and there is nothing to repair.
            with suppress(tf.errors.OpError, RuntimeError):
                for lockstep, _ in taken:
                    lockstep.repair(run.counts)

        return Stage(before, after, failed) if taken else None
