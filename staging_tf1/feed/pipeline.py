"""`Plan`, `Producer` and `Pipeline`: what one `staged()` or `CustomRunner` asks for, and what was built from it."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np

from staging_tf1._tf import Dataset
from staging_tf1.arguments import AUTOTUNE
from staging_tf1.cluster.cluster import Cluster
from staging_tf1.feed.source_errors import SkipRule
from staging_tf1.feed.supply import Supply
from staging_tf1.graph.area_base import areas_of
from staging_tf1.graph.callsite import CallSite
from staging_tf1.graph.dependencies import ancestors, descendants
from staging_tf1.graph.feed_queue import QueueOptions
from staging_tf1.graph.position import Fingerprint, Position, TowerRange, labelled
from staging_tf1.graph.sink import Sink
from staging_tf1.graph.state import state_of
from staging_tf1.sources import Source, StreamSource
from staging_tf1.sources.blocks import can_be_sliced, has_blocks
from staging_tf1.sources.spans import NO_SPANS, Spans
from staging_tf1.spec import flatten
from staging_tf1.spec.conform import Conformer
from staging_tf1.workers.pool import WorkerPool


class MapOps(NamedTuple):
    """The ops of a `map_fn`. They run before the put, whose placeholders then get their results."""

    # What to feed: a batch of the source, and the seed (int64, [2]), if it is random.
    placeholders: tuple[Any, ...]
    seed: Any | None
    outputs: tuple[Any, ...]


@dataclass(frozen=True)
class Input:
    """Where the batches of one tower come from, or those of one of several generators of a `CustomRunner`."""

    # A nest of tf.TypeSpec: what the source or the graph gives.
    given: Any
    # The same after `spec=` and `cast=`: what is staged.
    components: Any
    # Read by feed threads; None if the graph computes the batches from `values`, a nest of tensors or a dataset.
    source: Source | StreamSource | None = None
    # The spec of a batch of the source, a nest of ArraySpec, RaggedSpec and SparseSpec.
    spec: Any = None
    values: Any = None
    # What `map_fn` does with the batches of the source.
    mapped: Mapped | None = None

    @property
    def is_computed(self) -> bool:
        """Whether ops of the program compute the batches."""
        return self.source is None and not isinstance(self.values, Dataset)


class Mapped(NamedTuple):
    # The input without it.
    before: Input
    # A `tf.function` of one signature: it takes a batch, and the seed, if it is random.
    function: Any
    takes_seed: bool
    # Its name and the line of its definition, for messages.
    name: str
    # For each tensor that it returns, whether it may be memory of a Python function, and is copied.
    copied: tuple[bool, ...]


# By identity: the inputs may hold tensors.
@dataclass(frozen=True, eq=False, kw_only=True)
class Plan:
    """The arguments of one `staged()` or `CustomRunner`, checked. It is complete before any op is made."""

    # The call, as messages name it.
    caller: str
    made_at: CallSite
    # The cluster whose workers share the input; None if this process reads all of it.
    cluster: Cluster | None
    # The towers of this process, and how all towers share the input.
    towers: TowerRange
    # The device of each tower's area; None is the device scope of the call.
    devices: tuple[str | None, ...] = (None,)
    # What holds the batches: a queue, or areas if None.
    queue: QueueOptions | None = None
    # The most elements that the queue or each area holds. It may follow from the inputs, and is then set last.
    capacity: int = 0
    # The most bytes in an area, and in memory that is shared with worker processes; 0 is no limit.
    memory_limit: int = 0
    # For each tower. The number may be AUTOTUNE.
    num_threads: int
    # How many processes make the batches of a tower; 0 if the threads do.
    num_processes: int
    # By how much the priority of the threads is lowered.
    nice: int
    # Whether the steps themselves put, without a feed thread.
    lockstep: bool = False
    # Which exceptions of the source are skipped.
    skip_rule: SkipRule
    # The numbers of the batches that are left out.
    skip: Spans = NO_SPANS
    # "exact", "ignore" or "restart": what to do with a checkpoint that was saved with another source.
    resume: str = "exact"
    # One for each tower, or for each generator of a `CustomRunner`.
    inputs: tuple[Input, ...] = ()
    # That of the input of all towers, for checkpoints; None if the input cannot start at a given batch.
    fingerprint: Fingerprint | None = None
    # Whether each batch is fed with the source's state after it.
    keeps_state: bool = False
    # How many batches of each source to read; None is all.
    limit: int | None = None

    @property
    def in_rotation(self) -> bool:
        """Whether the towers share one input, which they take from in rotation."""
        return len(self.devices) > 1 and not isinstance(self.inputs[0].source, Source)

    @property
    def in_order(self) -> bool:
        """Whether batches are delivered in the source's order. A shuffle queue does not need it."""
        return self.queue is None or not self.queue.shuffle

    @cached_property
    def one_by_one(self) -> str:
        """Why each batch is put by a run of its own; "" if one run may put several."""
        entry, queue = self.inputs[0], self.queue
        reasons = {
            "a queue holds whole batches": queue is not None and queue.whole_batches,
            "feeder and taker alternate": queue is not None and queue.reproducible,
            "the steps put them": self.lockstep,
            "there are several towers": len(self.inputs) > 1,
            "the workers of a cluster share them": self.cluster is not None,
            "worker processes make them": bool(self.num_processes),
            "bad batches are skipped": bool(self.skip_rule.types),
            "some are left out": self.counts_passed,
            "several threads run map_fn": entry.mapped is not None and self.num_threads != 1,
            "map_fn calls Python": entry.mapped is not None and any(entry.mapped.copied),
            "they are not just rows of arrays": not has_blocks(entry.source),
            "they hold strings": any(leaf.dtype == object for leaf in flatten(entry.spec or ())),
            "TensorFlow cannot slice them": not all(map(can_be_sliced, flatten(entry.spec or ()))),
        }
        return next((reason for reason, holds in reasons.items() if holds), "")

    @property
    def by_record(self) -> bool:
        return self.queue is not None and not self.queue.whole_batches

    @property
    def counts_passed(self) -> bool:
        """Whether the position counts batches that no step gets: bad ones, and those that are left out."""
        source = self.inputs[0].source
        # In lockstep a loop may catch the error of a bad batch, and take the next one. A bad batch has no number in a
        # rotation or in the graph, so the position does not count it.
        bad = (bool(self.skip_rule.types) or self.lockstep) and source is not None and not self.in_rotation
        return bad or bool(self.skip) or (isinstance(source, Source) and source.leaves_out)

    @property
    def fast_forwards(self) -> bool:
        """Whether a restored run computes and drops what earlier runs consumed: of a dataset with bad batches."""
        return self.fingerprint is not None and self.inputs[0].source is None and bool(self.skip_rule.types)


@dataclass(frozen=True)
class Producer:
    """One source and the threads that read it."""

    # Threads are named after it: "feed:train:0".
    name: str
    # What to read. A start replaces it if the checkpoint has another seed.
    source: Source | StreamSource | None
    plan: Plan
    num_threads: int
    # That of its input.
    number: int = 0
    # The number of the sink that it fills. Several producers may fill one sink, each with its own generator.
    tower: int = 0
    # Whether the graph computes the batches from another pipeline's queue or area, and so ends with that pipeline.
    chained: bool = False
    # Which batches to read, where workers share them dynamically; None for all from the first one on.
    supply: Supply | None = None
    # The worker processes that make the batches of its source in one session; None if its threads do.
    pool: WorkerPool | None = None

    @property
    def autotune(self) -> bool:
        return self.plan.num_threads == AUTOTUNE

    def arrays(self, number: int, batch: Any) -> list[np.ndarray[Any, Any]]:
        """Return the arrays of the source's batch `number`, flat.

        Raises:
          SpecError: the batch does not fit the spec.
        """
        return self._conformer(batch, f"'{self.name}': batch {number}")

    def records(self, arrays: list[np.ndarray[Any, Any]]) -> int:
        return self._conformer.records(arrays)

    def label(self, number: int) -> np.ndarray[Any, Any]:
        """Return the state of its stream after batch `number`, which is fed last."""
        assert isinstance(self.source, StreamSource)
        return np.array(labelled(number + 1, self.source.state(number + 1)), object)

    @cached_property
    def _conformer(self) -> Conformer:
        return Conformer(self.plan.inputs[self.number].spec, equal_rows=self.plan.by_record)


# By identity: two pipelines are never equal.
@dataclass(frozen=True, eq=False)
class Pipeline:
    """One stream of batches: the producers that make them, and the sinks that steps take them from."""

    plan: Plan
    # Unique in the graph; messages and threads use it.
    name: str
    # One per tower.
    sinks: tuple[Sink, ...]
    producers: tuple[Producer, ...]
    # An op to run once in every session before the sinks are reset: the initializer of a dataset's iterator.
    init: Any | None = None
    # What each batch goes through before it is put, for each producer.
    map_ops: tuple[MapOps | None, ...] = ()
    # What checkpoints hold; None if the input cannot start at a given batch.
    position: Position | None = None

    @property
    def cluster(self) -> Cluster | None:
        """The cluster whose workers share its input; None if this process reads all of it."""
        return self.plan.cluster

    @property
    def lockstep(self) -> bool:
        return self.plan.lockstep

    @property
    def stages(self) -> bool:
        """Whether its sinks are areas, not queues."""
        return self.plan.queue is None

    @property
    def is_computed(self) -> bool:
        return all(entry.is_computed for entry in self.plan.inputs)

    @property
    def has_unknown_length(self) -> bool:
        return not all(isinstance(entry.source, Source) for entry in self.plan.inputs)

    @property
    def position_variables(self) -> list[Any]:
        return [] if self.position is None else list(self.position.variables)

    @property
    def task(self) -> str:
        """The task of this process in its cluster, for messages."""
        return "this process" if self.cluster is None else self.cluster.member_task

    def __str__(self) -> str:
        return f"'{self.name}' (made at {self.plan.made_at})"


def cluster_of(pipelines: Iterable[Pipeline]) -> Cluster | None:
    """Return the cluster whose workers share the batches of a graph's pipelines; None if there is none."""
    return next((pipeline.cluster for pipeline in pipelines if pipeline.cluster is not None), None)


def pipelines_of(graph: Any) -> list[Pipeline]:
    """Return the pipelines that were built in `graph`, oldest first."""
    return list(state_of(graph).pipelines)


def areas_taken(pipelines: Iterable[Pipeline]) -> dict[str, Sink]:
    """Return the sinks of `pipelines` that are areas, by the name of the op that every get depends on."""
    return {sink.get.take.name: sink for pipeline in pipelines for sink in pipeline.sinks if sink.get is not None}


def ops_ahead(pipeline: Pipeline) -> set[Any]:
    """Return the ops that prepare and put the batches of a pipeline, ahead of the steps.

    A step that ran them would need their feeds, or consume elements of the program's own input.
    """
    mapped = [ops for ops in pipeline.map_ops if ops is not None]
    puts = [put for sink in pipeline.sinks for put in (sink.put, sink.put.block) if put is not None]
    fed = [tensor for ops in (*mapped, *puts) for tensor in ops.placeholders]
    # A loop has outputs that no op of the put reads.
    return {*ancestors(sink.put.op for sink in pipeline.sinks), *descendants(fed), *(tensor.op for tensor in fed)}


def placed_in(graph: Any) -> list[Any]:
    """Return what holds batches on a device of its own: the areas of `graph`, and the queues in place of one."""
    sinks = (sink for pipeline in pipelines_of(graph) for sink in pipeline.sinks)
    return [*areas_of(graph), *(sink for sink in sinks if sink.get is not None and sink.area is None)]


def add_pipeline(graph: Any, pipeline: Pipeline) -> None:
    state_of(graph).pipelines.append(pipeline)
