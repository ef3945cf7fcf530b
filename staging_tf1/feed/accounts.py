"""`counts_of`: what the graph says of its sinks; `Accounts`: which of these batches went to failed steps."""

from __future__ import annotations

import threading
from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple

from staging_tf1._tf import run_unwrapped, tf
from staging_tf1.feed.batch_reader import BatchReader
from staging_tf1.feed.chain import Handler, Look, Run, Stage
from staging_tf1.feed.pipeline import Pipeline
from staging_tf1.feed.source_errors import add_note
from staging_tf1.graph.sink import GetFigures, Sink
from staging_tf1.sources import Source


class Count(NamedTuple):
    gets: GetFigures
    # Elements that can be taken.
    ready: int
    # Free slots, and elements that are staged, also without a token. 0 for a `FeedQueue`.
    free: int = 0
    held: int = 0

    @property
    def taken(self) -> int:
        return self.gets.batches


def read_counts(sinks: Iterable[Sink], session: Any) -> dict[Sink, Count]:
    """Return the counts of `sinks`. Costs one run.

    Raises:
      tf.errors.OpError, RuntimeError: one of them is not started in `session`, or the session is gone.
    """
    sinks = list(sinks)
    wanted = [
        (sink.stats.value, sink.size, *(() if sink.repair is None else (sink.repair.free, sink.repair.held)))
        for sink in sinks
    ]
    values = run_unwrapped(session, wanted) if wanted else ()
    return {sink: Count(sink.stats.figures(sums), *map(int, more)) for sink, (sums, *more) in zip(sinks, values)}


def counts_of(sinks: Iterable[Sink], session: Any) -> dict[Sink, Count]:
    """Return the counts of those of `sinks` that are started in `session`; none if it is gone."""
    sinks = list(sinks)
    try:
        return read_counts(sinks, session)
    except (tf.errors.OpError, RuntimeError):
        each = [counts_of([sink], session) for sink in sinks] if len(sinks) > 1 else []
        return {sink: count for counts in each for sink, count in counts.items()}


class Accounts(Handler):
    """Finds the batches of failed steps: the gets that the graph counted, less those of the successful steps.

    The graph counts gets, and does not say which step made one. So where a failed step was not alone, it is known how
    many batches failed, and not which.

    Attributes:
      numbers: for each sink, the numbers of the failed batches in the order of delivery, as far as they are known.
      unknown: for each sink, how many batches failed besides those.
      last_is_torn: whether the last step has failed, but taken a batch. The positions are then ahead of the model.
    """

    def __init__(self, session: Any) -> None:
        self._session = session
        self.numbers: defaultdict[Sink, list[int]] = defaultdict(list)
        self.unknown: Counter[Sink] = Counter()
        self._counted: Counter[Sink] = Counter()
        # The steps under way, and how many have succeeded in each thread, by the sinks that they take from. Without a
        # lock: each thread writes its own entries. The puts of a pipeline that is staged behind another one also take
        # from that one's sink, and are no steps.
        self._under_way: dict[Run, None] = {}
        self._succeeded: dict[frozenset[Sink], dict[int, int]] = {}
        # How many have failed since their sink was settled.
        self._suspects: Counter[Sink] = Counter()
        # The sinks whose last step was under way together with others, or after a failed one before it was settled.
        self._together: set[Sink] = set()
        self._lock = threading.Lock()
        # What reads the batches of each sink whose batches have numbers; and how many batches of it had been taken
        # when its pipeline was started again.
        self._readers: dict[Sink, BatchReader] = {}
        self.taken_before: dict[Sink, int] = {}
        # The sinks of the last step, if it has succeeded, and its thread; the last step that has failed.
        self._last: tuple[frozenset[Sink], int] = frozenset(), 0
        self._last_failed: Run | None = None
        self.last_is_torn = False

    def stage(self, look: Look) -> Stage | None:
        return Stage(self.before, self.after, self.failed) if look.sinks else None

    def before(self, run: Run) -> None:
        # First: of two steps that begin at once, at least one sees the other.
        self._under_way[run] = None
        if len(self._under_way) > 1 or self._suspects or self._together:
            self._look_around(run)

    def _look_around(self, run: Run) -> None:
        """Settle what had failed while other steps were under way, and note whether `run` is alone."""
        with self._lock:
            del self._under_way[run]
            if self._suspects:
                self._settle()
            for sink in run.plan.sinks:
                if self._is_in_use(sink) or sink in self._suspects:
                    self._together.add(sink)
                else:
                    self._together.discard(sink)
            self._under_way[run] = None

    def _is_in_use(self, sink: Sink) -> bool:
        return any(sink in run.plan.sinks for run in list(self._under_way))

    def after(self, run: Run) -> None:
        sinks, thread = run.plan.sinks, threading.get_ident()
        succeeded = self._succeeded.setdefault(sinks, {})
        succeeded[thread] = succeeded.get(thread, 0) + 1
        # After it is counted: between the two, a settlement would take it for a failed one.
        del self._under_way[run]
        self._last = sinks, thread
        self.last_is_torn = False

    def failed(self, run: Run, error: BaseException) -> None:
        """Suspect that a step has taken batches."""
        with self._lock:
            self._suspects.update(run.plan.sinks)
            del self._under_way[run]
            self._last, self._last_failed = (frozenset(), 0), run

    def read_by(self, pipeline: Pipeline, readers: Sequence[BatchReader]) -> None:
        """Note what reads the areas of a pipeline from now on, if its batches have numbers."""
        if pipeline.stages and isinstance(pipeline.plan.inputs[0].source, Source):
            self._readers |= zip(pipeline.sinks, readers, strict=True)

    def numbers_in_source(self, sink: Sink, taken: Iterable[int]) -> list[int]:
        """Return the numbers, in their source, of batches that steps have taken; none without a random-access source.

        Args:
          sink: what they were taken from.
          taken: how many batches were taken from it before each of these.
        """
        reader = self._readers.get(sink)
        if reader is None:
            return []
        numbers = [reader.number_of(count - self.taken_before.get(sink, 0)) for count in taken]
        return [number for number in numbers if number is not None]

    @property
    def is_settled(self) -> bool:
        """Whether the batches of all failed steps have been counted."""
        return not self._suspects

    def expected(self, sink: Sink) -> int:
        """Return how many batches steps have taken from `sink`, if none of them has failed since `settle`."""
        return self._counted[sink] + self._successes(sink)

    def _successes(self, sink: Sink) -> int:
        by_thread = [threads for sinks, threads in list(self._succeeded.items()) if sink in sinks]
        return sum(number for threads in by_thread for number in list(threads.values()))

    def count_failed(self, sink: Sink) -> int:
        return len(self.numbers.get(sink, ())) + self.unknown[sink]

    def settle(self, others: Iterable[Sink] = ()) -> dict[Sink, Count]:
        """Count the batches of the steps that failed since the last call. Return the counts of sinks.

        These are the sinks of the failed steps, and `others`.

        Nothing is found of a sink while a step is running that may have taken from it, too: the next call does.
        """
        with self._lock:
            return self._settle(others)

    def _settle(self, others: Iterable[Sink] = ()) -> dict[Sink, Count]:
        due = {sink for sink in self._suspects if not self._is_in_use(sink)}
        counts = counts_of({*due, *others}, self._session)
        for sink in due:
            # Otherwise the session is gone.
            if sink in counts:
                taken = counts[sink].taken
                failed = max(0, min(taken - self.expected(sink), self._suspects[sink]))
                if sink in self._together:
                    self.unknown[sink] += failed
                else:
                    self.numbers[sink].extend(range(taken - failed, taken))
                self._counted[sink] = taken - self._successes(sink)
            del self._suspects[sink]
        return counts

    def taken_last(self, sink: Sink) -> list[int]:
        """Return how many batches had been taken before the last one; empty if that is unknown, or none was taken."""
        expected = self.expected(sink) if sink not in self._suspects else 0
        return [expected - 1] if expected else []

    def note_last_step(self, error: BaseException) -> None:
        """Add the batches of the last step, if it has succeeded, to an error that its thread raised after it."""
        with self._lock:
            sinks, thread = self._last
            if thread == threading.get_ident():
                sinks = frozenset(sink for sink in sinks if not self._is_in_use(sink) and sink not in self._together)
                for sink in sinks:
                    self._note_batches(error, "the step had", sink, self.taken_last(sink))

    def _note_batches(self, error: BaseException, what: str, sink: Sink, taken: list[int]) -> None:
        for number in self.numbers_in_source(sink, taken):
            add_note(error, f"{what} {self._readers[sink].shown(number)}")

    def settle_after(self, run: Run, error: BaseException, others: Iterable[Sink]) -> dict[Sink, Count]:
        """The same after a run that has failed with `error`."""
        sinks = run.plan.sinks
        with self._lock:
            known = {sink: len(self.numbers[sink]) for sink in sinks}
            before = {sink: self.count_failed(sink) for sink in sinks}
            counts = self._settle(others)
            took = [self.count_failed(sink) > before[sink] for sink in sinks]
            if self._last_failed is run:
                for sink in sinks:
                    self._note_batches(error, "the failed step had", sink, self.numbers[sink][known[sink] :])
        # A signal interrupts a step only while it waits for a pipeline: if it took from all, it had succeeded.
        self.last_is_torn = any(took) and (isinstance(error, Exception) or not all(took))
        return counts
