"""`Pipeline`: the record of what one `staged()` or `CustomRunner` built."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import numpy as np

from staging_tf1.cluster.cluster import Cluster
from staging_tf1.feed.source_errors import NONE_SKIPPED, SkipRule
from staging_tf1.feed.supply import Supply
from staging_tf1.graph.callsite import CallSite
from staging_tf1.graph.position import Position, labelled
from staging_tf1.graph.sink import Sink
from staging_tf1.graph.state import state_of
from staging_tf1.sources import Source, StreamSource
from staging_tf1.spec.conform import Conformer


@dataclass(frozen=True)
class Producer:
    """One source and the threads that read it."""

    # Threads are named after it: "feed:train:0".
    name: str
    # None if the graph computes the batches.
    source: Source | StreamSource | None
    # The spec of a batch, a nest of ArraySpec, RaggedSpec and SparseSpec; None without a source.
    spec: Any
    num_threads: int
    # Whether AUTOTUNE decides how many threads work.
    autotune: bool = field(default=False, kw_only=True)
    # By how much the priority of the threads is lowered.
    nice: int = 0
    # The number of the sink that it fills. Several producers may fill one sink, each with its own generator.
    tower: int = 0
    # Whether batches are delivered in the source's order. A shuffle queue does not need it.
    in_order: bool = True
    # Whether the towers share one input, which they take from in rotation.
    in_rotation: bool = False
    # Whether the graph computes the batches from another pipeline's queue or area, and so ends with that pipeline.
    chained: bool = False
    # Which exceptions of the source are skipped.
    skip_rule: SkipRule = NONE_SKIPPED
    # Whether each batch is fed with the source's state after it.
    keeps_state: bool = False
    # How many batches of the source to read; None is all.
    limit: int | None = None
    # How many processes make the batches; 0 if the threads do.
    num_processes: int = 0
    # The most bytes of memory that it shares with these processes; 0 is no limit.
    memory_limit: int = 0
    # Which batches to read, where workers share them dynamically; None for all from the first one on.
    supply: Supply | None = None

    def arrays(self, number: int, batch: Any) -> list[np.ndarray[Any, Any]]:
        """Return the arrays of the source's batch `number`, in the order of the sink's placeholders.

        Raises:
          SpecError: the batch does not fit the spec.
        """
        arrays = self._conformer(batch, f"'{self.name}': batch {number}")
        if not self.keeps_state:
            return arrays
        assert isinstance(self.source, StreamSource)
        return [*arrays, np.array(labelled(number + 1, self.source.state(number + 1)), object)]

    def records(self, arrays: list[np.ndarray[Any, Any]]) -> int | None:
        """Return the number of records in what `arrays` returned; None if the rows of the first array are records."""
        return self._conformer.records(arrays)

    @cached_property
    def _conformer(self) -> Conformer:
        return Conformer(self.spec)


# By identity: two pipelines are never equal.
@dataclass(frozen=True, eq=False)
class Pipeline:
    """One stream of batches: the producers that make them, and the sinks that steps take them from."""

    # Unique in the graph; messages and threads use it.
    name: str
    made_at: CallSite
    # One per tower.
    sinks: tuple[Sink, ...]
    producers: tuple[Producer, ...]
    # Whether the steps themselves put, without a feed thread.
    lockstep: bool = False
    # An op to run once in every session before the sinks are reset: the initializer of a dataset's iterator.
    init: Any | None = None
    # "exact", "ignore" or "restart": what to do with a checkpoint that was saved with another source.
    resume: str = "exact"
    # What checkpoints hold; None if the input cannot start at a given batch.
    position: Position | None = None
    # The cluster whose workers share its input; None if this process reads all of it.
    cluster: Cluster | None = None
    # The tensors of one batch, which a restored run computes and drops for each consumed batch; empty if the input
    # itself starts after those.
    fast_forward: tuple[Any, ...] = ()

    @property
    def stages(self) -> bool:
        """Whether its sinks are areas, not queues."""
        return self.sinks[0].area is not None

    @property
    def outputs(self) -> list[Any]:
        """The tensors that take from its areas."""
        return [tensor for sink in self.sinks for tensor in sink.outputs]

    @property
    def is_computed(self) -> bool:
        """Whether ops of the program compute its batches."""
        return self.init is None and all(producer.source is None for producer in self.producers)

    @property
    def has_unknown_length(self) -> bool:
        """Whether its length is unknown."""
        return not all(isinstance(producer.source, Source) for producer in self.producers)

    @property
    def position_variables(self) -> list[Any]:
        """The variables that hold its position in checkpoints."""
        return [] if self.position is None else list(self.position.variables)

    @property
    def task(self) -> str:
        """The task of this process in its cluster, for messages."""
        return "this process" if self.cluster is None else self.cluster.member_task

    def __str__(self) -> str:
        return f"'{self.name}' (made at {self.made_at})"


def cluster_of(pipelines: Iterable[Pipeline]) -> Cluster | None:
    """Return the cluster whose workers share the batches of a graph's pipelines; None if there is none."""
    return next((pipeline.cluster for pipeline in pipelines if pipeline.cluster is not None), None)


def pipelines_of(graph: Any) -> list[Pipeline]:
    """Return the pipelines that were built in `graph`, oldest first."""
    return list(state_of(graph).pipelines)


def add_pipeline(graph: Any, pipeline: Pipeline) -> None:
    """Add a pipeline to `pipelines_of(graph)`."""
    state_of(graph).pipelines.append(pipeline)
