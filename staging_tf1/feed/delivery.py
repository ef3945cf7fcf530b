"""`Delivery`: the sinks of one pipeline in one session, and the barrier between its towers."""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Callable, Iterable
from typing import Any

from staging_tf1._tf import run_unwrapped, tf
from staging_tf1.errors import LeftoverWarning, warn
from staging_tf1.feed.pipeline import Pipeline
from staging_tf1.feed.sink_run import SinkRun
from staging_tf1.feed.tower_barrier import TowerBarrier


class Delivery:
    """Counts the staged batches, and releases and closes the towers together.

    Attributes:
      sinks: one per tower.
      barrier: the barrier between the towers; None for one tower.
      stopping: whether puts are prevented, after an error or a stop.
      is_needed: set by the first step that takes from it, where that step requires an initialized iterator.
    """

    def __init__(self, pipeline: Pipeline, session: Any) -> None:
        producers = Counter(producer.tower for producer in pipeline.producers)
        self.session = session
        gate = pipeline.cluster.member.gate if pipeline.cluster is not None else None
        self.sinks = tuple(SinkRun(sink, session, producers[tower], gate) for tower, sink in enumerate(pipeline.sinks))
        self.barrier = TowerBarrier(len(self.sinks)) if len(self.sinks) > 1 else None
        self.pipeline = pipeline
        self.stopping = False
        self.is_needed = threading.Event()
        self._lock = threading.Lock()
        # Notified of each batch that is staged, each end, and the stop.
        self._changed = threading.Condition(self._lock)

    def begin_to_stop(self) -> bool:
        """Prevent further puts and release. Return False if they were already prevented."""
        if self.stopping:
            return False
        self.stopping = True
        # Waits for a running release, which could otherwise leave one tower with more batches than another.
        with self._lock:
            self._changed.notify_all()
            return True

    # Called by the producers.

    def await_round(self, tower: int) -> None:
        """Wait until the other towers have staged as many batches as `tower`, whose next one is bad."""
        barrier = self.barrier
        if barrier is not None:
            with self._changed:
                self._changed.wait_for(lambda: self.stopping or not barrier.lags_behind(tower))

    def staged_one(self, tower: int) -> None:
        """Count a staged batch and release the round that it completes."""
        self._apply(lambda barrier: barrier.staged_one(tower))

    def producer_ended(self, tower: int) -> None:
        """Close the sink after its last producer. With several towers, the barrier decides when."""
        if not self.sinks[tower].producer_ended():
            return
        if self.barrier is None:
            self.sinks[tower].close()
        self._apply(lambda barrier: barrier.end(tower))

    # Called by the steps.

    def expect_towers(self, towers: frozenset[int]) -> None:
        """Tell the barrier which towers the next step takes from. A step for some of the towers may run separately.

        Raises:
          tf.errors.OutOfRangeError: a tower has no batch left for the step.
        """
        if towers:
            self._apply(lambda barrier: barrier.expect(alone=len(towers) < len(self.sinks)))
            self._refuse_beyond_the_end(towers)

    def drain(self) -> None:
        if self.barrier is not None:
            # Whole rounds go on: a common step would take from the towers that have a batch, and lose it.
            self.barrier.drain()

    def note_taken(self, batches: list[int]) -> None:
        """Tell the barrier how many batches were taken from each tower, after a failed step."""
        if self.barrier is not None:
            self.barrier.note_taken(batches)

    def warn_of_leftovers(self) -> None:
        """Warn of staged batches that no whole round could use."""
        withheld = self.barrier.withheld() if self.barrier is not None else []
        if not (any(withheld) and self.barrier is not None and self.barrier.over):
            return
        left = ", ".join(f"{sink.sink.name}: {count}" for sink, count in zip(self.sinks, withheld, strict=True))
        warn(
            f"'{self.pipeline.name}': the towers had unequal numbers of batches, and these were staged but never "
            f"taken: {left}. After the OutOfRangeError of the common step, fetch each tower separately until it ends.",
            LeftoverWarning,
        )

    def _refuse_beyond_the_end(self, towers: frozenset[int]) -> None:
        """Raise OutOfRangeError before a step for which not all of `towers` have a batch. Take nothing.

        After failed steps that took only from some towers, a tower that has ended may have a batch left that the others
        cannot match. A common step would take that batch, and wait for the others forever. A step of one tower would
        find the end itself, but TensorFlow logs a failed run on several devices as "Local rendezvous is aborting".
        """
        if self.barrier is None:
            return
        is_common = len(towers) > 1
        final = towers if self.stopping and is_common else towers & self.barrier.final
        if not final:
            return
        ready = run_unwrapped(self.session, {tower: self.sinks[tower].sink.size for tower in final})
        if all(ready.values()):
            return
        # What a stop has withheld stays so.
        withheld = [0] * len(self.sinks) if self.stopping else self.barrier.withheld()
        empty = [tower for tower in final if not ready[tower]]
        left = [tower for tower in towers if ready.get(tower, 1) or withheld[tower]]
        steps = " for common steps" if is_common else ""
        cure = f" Fetch {self._named(left)} separately to use the remaining batches." if left else ""
        raise tf.errors.OutOfRangeError(None, None, f"End of data{steps}: {self._named(empty)}.{cure}")

    def _named(self, towers: Iterable[int]) -> str:
        return ", ".join(self.sinks[tower].sink.name for tower in sorted(towers))

    def _apply(self, event: Callable[[TowerBarrier], list[tuple[int, int]]]) -> None:
        """Apply an event to the barrier, then release what is due and close what is finished."""
        if self.barrier is None:
            return
        # No tower may be closed between the decision to release its last batch and the release. Nothing in here waits
        # for a taker.
        with self._lock:
            if self.stopping:
                return
            # The event first. If it closes a tower, the steps that wait for it end; only what still waits is rescued.
            for due in (event, TowerBarrier.rescue):
                for tower, batches in due(self.barrier):
                    self.sinks[tower].release(batches)
                for tower in self.barrier.to_close():
                    self.sinks[tower].close()
            self._changed.notify_all()
