"""`Lane`: one source and the sink that it fills, from build time to run time."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from staging_tf1.conform import Conformer
from staging_tf1.feed.skipping import NONE_IGNORED, Ignored
from staging_tf1.graph.position import labelled
from staging_tf1.graph.sink import Sink
from staging_tf1.graph.turns import Turns
from staging_tf1.sources import Source, StreamSource


@dataclass(frozen=True)
class Lane:
    """What one group of threads does. Several lanes may fill one sink: a generator for each thread."""

    # Ends the thread's name: "feed:train:0".
    name: str
    sink: Sink
    # Where batches come from; None where the put op computes them in the graph.
    source: Source | StreamSource | None
    # What a batch must look like, as a nest of ArraySpec; None without a source.
    spec: Any
    num_threads: int
    # By how much the priority of those threads is lowered.
    nice: int = 0
    # Which tower of its pipeline the sink is.
    tower: int = 0
    # Whether batches are delivered in the source's order; a shuffle queue does not care.
    in_order: bool = True
    # Whether the towers share one input, so that they must take from it in rotation.
    rotates: bool = False
    # Whether the graph computes the values from another feed's queue or area, whose end is then this lane's end, too.
    chained: bool = False
    # Which exceptions of the source are skipped.
    ignored: Ignored = NONE_IGNORED
    # Whether the source's state behind each batch is fed with it.
    keeps_state: bool = False
    # Feeder and taker in turn, for an order that can be repeated; only with one thread.
    turns: Turns | None = None

    def arrays(self, number: int, batch: Any) -> list[np.ndarray[Any, Any]]:
        """The arrays of the source's batch `number`, in the order of the sink's placeholders.

        Raises:
          SpecError: the batch is not as declared.
        """
        arrays = self._conformer(batch, f"'{self.name}': batch {number}")
        if not self.keeps_state:
            return arrays
        assert isinstance(self.source, StreamSource)
        return [*arrays, np.array(labelled(number + 1, self.source.state(number + 1)), object)]

    @cached_property
    def _conformer(self) -> Conformer:
        return Conformer(self.spec)
