"""Which batches went to steps that failed."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from typing import Any

from staging_tf1.graph.meter import Meter
from staging_tf1.graph.sink import Sink

# A pipeline's name and the number of the tower.
Gate = tuple[str, int]


class Account:
    """Compares the gets that the meters count with those of the steps that succeeded; the rest went to failures."""

    def __init__(self, session: Any, sinks: Mapping[Gate, Sink]) -> None:
        self._session = session
        self._sinks = dict(sinks)
        self._succeeded: Counter[frozenset[Gate]] = Counter()
        self._counted = dict.fromkeys(sinks, 0)
        # The numbers of the batches, in the order of their delivery.
        self.failed: dict[Gate, list[int]] = {gate: [] for gate in sinks}

    def succeeded(self, needed: frozenset[Gate]) -> None:
        """Notes a step that took from `needed`."""
        self._succeeded[needed] += 1

    def failed_by_sink(self) -> dict[str, list[int]]:
        """The numbers of the failed batches, by the name of the sink."""
        return {self._sinks[gate].name: numbers for gate, numbers in self.failed.items()}

    def settle(self) -> None:
        """Finds out what the step that has just failed took."""
        meters = {gate: sink.meter.value for gate, sink in self._sinks.items()}
        for gate, sums in self._session.run(meters).items():
            taken = Meter.reading(sums).batches
            expected = self._counted[gate] + sum(n for needed, n in self._succeeded.items() if gate in needed)
            self.failed[gate].extend(range(expected, taken))
            self._counted[gate] = taken
        self._succeeded.clear()
