"""`FailedBatches`: which batches went to steps that failed."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Any

from staging_tf1._tf import run_unwrapped
from staging_tf1.graph.get_stats import GetStats
from staging_tf1.graph.sink import Sink


class FailedBatches:
    """Finds the batches of failed steps: the gets that the graph counted, less those of the successful steps.

    Attributes:
      numbers: for each sink, the numbers of the failed batches in the order of delivery.
    """

    def __init__(self, session: Any, sinks: Sequence[Sink]) -> None:
        self._session = session
        self._succeeded: Counter[frozenset[Sink]] = Counter()
        # The sinks of the failed steps. A put takes from another pipeline's sink where one is staged behind the other.
        self._suspects: set[Sink] = set()
        self._counted = dict.fromkeys(sinks, 0)
        self.numbers: dict[Sink, list[int]] = {sink: [] for sink in sinks}

    def counts(self, sinks: frozenset[Sink]) -> list[int]:
        """Return how many failed batches have been found, for each of `sinks`."""
        return [len(self.numbers[sink]) for sink in sinks]

    def succeeded(self, sinks: frozenset[Sink]) -> None:
        """Count a successful step that took one batch from each of `sinks`."""
        self._succeeded[sinks] += 1

    def failed(self, sinks: frozenset[Sink]) -> None:
        """Note that a step has failed, which takes from `sinks`."""
        self._suspects |= sinks

    def settle(self) -> None:
        """Find the batches of the steps that failed since the last call. Must be called between two steps."""
        # Pipelines that start with their first step have no counts before it.
        taken_from = list(self._suspects.union(*self._succeeded))
        if not taken_from:
            return
        sums = run_unwrapped(self._session, [sink.stats.value for sink in taken_from])
        for sink, of_sink in zip(taken_from, sums, strict=True):
            taken = GetStats.batches(of_sink)
            expected = self._counted[sink] + sum(n for sinks, n in self._succeeded.items() if sink in sinks)
            if sink in self._suspects:
                self.numbers[sink].extend(range(expected, taken))
            self._counted[sink] = taken
        self._succeeded.clear()
        self._suspects.clear()
