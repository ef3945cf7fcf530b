"""`Tally`: what the steps of one session have taken, and which batches went to failed ones."""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Iterable
from typing import Any

from staging_tf1.feed.batch_reader import batches_taken
from staging_tf1.feed.chain import Handler, Look, Run, Stage
from staging_tf1.feed.counts import Count, counts_of
from staging_tf1.feed.source_errors import add_note
from staging_tf1.graph.sink import Sink


class Tally(Handler):
    """Finds the batches of failed steps: the gets that the graph counted, less those of the successful steps.

    Args:
      session: the session.
      sinks: those that its steps take from.

    Attributes:
      numbers: for each sink, the numbers of the failed batches in the order of delivery.
      last_is_torn: whether the last step has failed, but taken a batch. The positions are then ahead of the model.
    """

    def __init__(self, session: Any, sinks: Iterable[Sink]) -> None:
        self._session = session
        self._succeeded: Counter[frozenset[Sink]] = Counter()
        # How many steps have failed that take from a sink. A put takes from another pipeline's sink where one is staged
        # behind the other, and a callable that was made before the start is not seen.
        self._suspects: Counter[Sink] = Counter()
        self.numbers: dict[Sink, list[int]] = {sink: [] for sink in sinks}
        self._counted = dict.fromkeys(self.numbers, 0)
        self._lock = threading.Lock()
        self._under_way = 0
        self._last: frozenset[Sink] = frozenset()
        self.last_is_torn = False

    def stage(self, look: Look) -> Stage | None:
        """See base class."""
        return Stage(self.before, self.after, self.failed) if look.sinks else None

    def before(self, run: Run) -> None:
        """Count a step as under way."""
        if self._suspects:
            # Other steps were under way when these had failed.
            self.settle()
        with self._lock:
            self._under_way += 1

    def after(self, run: Run) -> None:
        """Count the batches of a step that has succeeded."""
        with self._lock:
            self._under_way -= 1
            self._succeeded[run.plan.sinks] += 1
            self._last = run.plan.sinks
        self.last_is_torn = False

    def failed(self, run: Run, error: BaseException) -> None:
        """Suspect that a step has taken batches."""
        with self._lock:
            self._under_way -= 1
            self._suspects.update(run.plan.sinks)

    @property
    def is_settled(self) -> bool:
        """Whether the batches of all failed steps have been found."""
        return not self._suspects

    def expected(self, sink: Sink) -> int:
        """Return how many batches steps have taken from `sink`, if none of them has failed since `settle`."""
        return self._counted[sink] + sum(count for sinks, count in self._succeeded.items() if sink in sinks)

    def settle(self, others: Iterable[Sink] = ()) -> dict[Sink, Count]:
        """Find the batches of the steps that failed since the last call. Return the counts of their sinks and `others`.

        While a step is running, which has taken some, too, nothing is found: the next call does.
        """
        with self._lock:
            # Pipelines that start with their first step have no counts before it.
            taken_from = {*self._suspects}.union(*self._succeeded) if self._suspects else set()
            counts = counts_of({*taken_from, *others}, self._session)
            if not self._under_way and taken_from:
                for sink in taken_from & counts.keys():
                    taken = counts[sink].taken
                    failed = min(taken - self.expected(sink), self._suspects[sink])
                    self.numbers[sink].extend(range(taken - failed, taken))
                    self._counted[sink] = taken
                self._succeeded.clear()
                self._suspects.clear()
        return counts

    def taken_last(self, sink: Sink) -> list[int]:
        """Return how many batches had been taken before the last one; empty if that is unknown, or none was taken."""
        expected = self.expected(sink) if not self._suspects else 0
        return [expected - 1] if expected else []

    def note_last_step(self, error: BaseException) -> None:
        """Add the batches of the last successful step to an error that was raised after it."""
        with self._lock:
            sinks = self._last if not self._under_way else frozenset()
        for sink in sinks:
            self._note_batches(error, "the step had", sink, self.taken_last(sink))

    def _note_batches(self, error: BaseException, what: str, sink: Sink, taken: list[int]) -> None:
        for text in batches_taken(self._session, sink, taken)[1]:
            add_note(error, f"{what} {text}")

    def settle_after(self, run: Run, error: BaseException, others: Iterable[Sink]) -> dict[Sink, Count]:
        """The same after a run that has failed with `error`."""
        found = [len(self.numbers[sink]) for sink in run.plan.sinks]
        counts = self.settle(others)
        took = [len(self.numbers[sink]) > before for sink, before in zip(run.plan.sinks, found, strict=True)]
        for sink, before in zip(run.plan.sinks, found, strict=True):
            self._note_batches(error, "the failed step had", sink, self.numbers[sink][before:])
        # A signal interrupts a step only while it waits for a pipeline: if it took from all, it had succeeded.
        self.last_is_torn = any(took) and (isinstance(error, Exception) or not all(took))
        return counts
