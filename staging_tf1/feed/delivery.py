"""`Delivery`: the sinks of one pipeline in one session, and the barrier between its towers."""

from __future__ import annotations

import threading
import warnings
from collections import Counter
from collections.abc import Callable
from typing import Any

from staging_tf1._tf import run_unwrapped, tf
from staging_tf1.errors import LeftoverWarning
from staging_tf1.feed.pipeline import Pipeline
from staging_tf1.feed.sink_run import SinkRun
from staging_tf1.feed.tower_barrier import TowerBarrier


class Delivery:
    """Counts what is put, and releases and closes the towers together.

    Attributes:
      session: where the sinks are.
      sinks: one a tower.
      barrier: between the towers; None for a single one.
    """

    def __init__(self, pipeline: Pipeline, session: Any) -> None:
        producers = Counter(producer.tower for producer in pipeline.producers)
        self.session = session
        self.sinks = tuple(SinkRun(sink, session, producers[tower]) for tower, sink in enumerate(pipeline.sinks))
        self.barrier = TowerBarrier(len(self.sinks)) if len(self.sinks) > 1 else None
        self._name = pipeline.name
        self._stopping = threading.Event()
        self._lock = threading.Lock()

    @property
    def stopping(self) -> bool:
        """Whether nothing is put any more, because of an error or a stop."""
        return self._stopping.is_set()

    def begin_to_stop(self) -> bool:
        """Lets no put and no release begin; False if that was done before."""
        if self._stopping.is_set():
            return False
        self._stopping.set()
        # A release under way ends first; otherwise one tower could be left with more batches than another.
        with self._lock:
            return True

    # Called by the producers.

    def staged_one(self, tower: int) -> None:
        """Counts a staged batch, and releases the round that it completes."""
        self._tell(lambda barrier: barrier.staged_one(tower))

    def producer_ended(self, tower: int) -> None:
        """Closes the sink after its last producer, or leaves that to the barrier."""
        if not self.sinks[tower].producer_ended():
            return
        if self.barrier is None:
            self.sinks[tower].close()
        self._tell(lambda barrier: barrier.end(tower))

    # Called by the steps.

    def ask(self, towers: frozenset[int]) -> None:
        """Notes which towers the next step takes from; some of them only may continue without the others.

        Raises:
          tf.errors.OutOfRangeError: one of several has no batch for a common step any more.
        """
        if towers:
            self._tell(lambda barrier: barrier.ask(len(towers) < len(self.sinks)))
            self._refuse_beyond_the_end(towers)

    def drain(self) -> None:
        """Notes that nothing more will be read."""
        if self.barrier is not None:
            # The towers stay together: a common step that not all have a batch for would take from the others.
            self.barrier.drain()

    def note_taken(self, batches: list[int]) -> None:
        """Notes how many batches were taken from each tower, after a step that failed."""
        if self.barrier is not None:
            self.barrier.note_taken(batches)

    def warn_of_leftovers(self) -> None:
        """Warns of staged batches that no whole round could use."""
        withheld = self.barrier.withheld() if self.barrier is not None else []
        if not (any(withheld) and self.barrier is not None and self.barrier.over):
            return
        left = ", ".join(f"{sink.sink.name}: {count}" for sink, count in zip(self.sinks, withheld, strict=True))
        warnings.warn(
            f"'{self._name}': the towers had unequal numbers of batches, and these were staged but never taken: "
            f"{left}. After the OutOfRangeError of the common step, run each tower's own fetches until it ends.",
            LeftoverWarning,
            stacklevel=2,
        )

    def _refuse_beyond_the_end(self, towers: frozenset[int]) -> None:
        """Raises before a common step that not all of `towers` have a batch for; nothing is taken.

        Where failed steps have taken from some towers and not from others, the one that has ended may have a batch
        left that the others cannot match. The step would take it, and wait for the others forever.
        """
        if self.barrier is None or len(towers) < 2:
            return
        final = towers if self.stopping else towers & self.barrier.final
        if not final:
            return
        ready = run_unwrapped(self.session, {tower: self.sinks[tower].sink.size for tower in final})
        empty = [self.sinks[tower].sink.name for tower in sorted(final) if not ready[tower]]
        if empty:
            raise tf.errors.OutOfRangeError(
                None,
                None,
                f"End of data for common steps: {', '.join(empty)}. Fetch the other towers separately to use their "
                f"remaining batches.",
            )

    def _tell(self, event: Callable[[TowerBarrier], list[tuple[int, int]]]) -> None:
        """Tells the barrier of an event; releases what is due then, and closes what is finished."""
        if self.barrier is None:
            return
        # One at a time: no tower may be closed between the decision to release its last batch and the release. Nothing
        # in here waits for a taker.
        with self._lock:
            if self.stopping:
                return
            # A tower that is closed before the rescue ends the steps that wait for it, and they need no rescue.
            for due in (event, TowerBarrier.rescue):
                for tower, batches in due(self.barrier):
                    self.sinks[tower].release(batches)
                for tower in self.barrier.to_close():
                    self.sinks[tower].close()
