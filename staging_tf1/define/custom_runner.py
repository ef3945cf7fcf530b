"""`CustomRunner`: the classic recipe of feed threads, placeholders and a queue."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from staging_tf1._tf import deterministic_ops, own_frames_hidden, tf
from staging_tf1.arguments import (
    AUTOTUNE,
    INT64_MAX,
    MOST_QUEUED,
    MOST_THREADS,
    NAMED_AUTOTUNE,
    choice,
    having,
    op_name,
    whole,
)
from staging_tf1.cluster.cluster import Cluster
from staging_tf1.define.build import build, num_feed_threads
from staging_tf1.define.checks import (
    SHARES,
    check_cluster,
    check_dynamic,
    check_in_processes,
    check_processes,
    check_threads,
    tower_range_of,
)
from staging_tf1.define.inputs import common_batches, divided
from staging_tf1.define.specs import as_type_spec, can_be_split
from staging_tf1.errors import SpecError, short_traceback
from staging_tf1.feed.feeding import feeding_of
from staging_tf1.feed.pipeline import Input, Plan
from staging_tf1.feed.source_errors import errors_only, skip_rule
from staging_tf1.feed.threads import check_nice
from staging_tf1.graph.feed_queue import FeedQueue, QueueOptions
from staging_tf1.graph.guards import building
from staging_tf1.sources import Source, StreamSource
from staging_tf1.sources.coerce import check_spec, source_from
from staging_tf1.spec import component_name, describe, flatten_with_paths, map_structure
from staging_tf1.spec.composite import is_composite_spec

# Default capacity of a queue of whole batches: enough to bridge a slow batch or two, and little memory.
_BATCHES_AHEAD = 8


class CustomRunner:
    """Feed threads, placeholders and a queue: the recipe that TensorFlow 1 programs wrote by hand.

    The threads read batches from `source` and enqueue them. `get_inputs` returns the tensors that dequeue. The threads
    start with `tf.train.start_queue_runners`, `start_threads` or a session helper. The end of the data closes the
    queue: what is left is delivered, then `tf.errors.OutOfRangeError` is raised.

    Args:
      source: a source of batches (`staging.sources`), an iterable, a generator function, or a list of generator
        functions or sources, one per thread, whose batches may only differ in their number of records. The first
        dimension of a batch counts them. Several threads share one source: each batch goes to one thread.
      batch_size: records that `get_inputs` takes by default. None takes the batches as the source makes them.
      queue: "shuffle" is a `tf.RandomShuffleQueue` of records. "fifo" is a `tf.FIFOQueue`: of whole batches if
        `batch_size` is None, else of records. Whole batches are faster, because `enqueue_many` splits and rebuilds
        every batch.
      capacity: elements that the queue holds, up to 2**24: whole batches or records.
      min_after_dequeue: records that stay in a shuffle queue. More of them shuffle better but take memory.
      num_threads: feed threads, up to 1,024, or `tf.data.AUTOTUNE`, as in `staged`. With "fifo", the batches keep the
        source's order. AUTOTUNE is refused with a seeded shuffle queue.
      num_processes: worker processes that make the batches of one source, in place of its threads; 0 uses threads.
      nice: lowers the priority of the feed threads or worker processes, from 0 to 19 (Linux: see nice(2)).
      seed: seed of the shuffle queue. With a seed here or in the graph, and a single thread, the order is reproducible:
        a dequeue waits until the queue is filled, so the order does not depend on timing. Required with deterministic
        ops.
      ignored_exception_types: types of exceptions of the source whose batch is left out and counted in `stats()`.
      max_ignored: how many of them may be left out, before the next one is raised; None is any number.
      cluster: the `Cluster` whose workers share the source: each reads a shard of it. The queue is on this worker.
      share: "static" gives each worker a shard of the source, "own" the whole one, for data that is already divided.
      name: name for ops, threads and messages.

    Attributes:
      queue: the TensorFlow queue.
      placeholders: the tensors that the threads feed, in the structure of a batch.

    Raises:
      TypeError, ValueError: an argument is invalid, or the capacity would never let a batch through.
      SpecError: the batches cannot be queued as records, or several generators yield different components.
      BuildError: called in a loop, a function or a finalized graph.

    >>> import numpy as np
    >>> batches = [np.arange(3), np.arange(3, 5)]
    >>> with tf.Graph().as_default():
    ...     runner = CustomRunner(lambda: iter(batches), batch_size=4, queue="fifo")
    ...     x = runner.get_inputs()
    ...     with tf.Session() as sess:
    ...         coord = tf.train.Coordinator()
    ...         threads = runner.start_threads(sess, coord)
    ...         [sess.run(x).tolist(), sess.run(x).tolist()]
    ...         coord.request_stop()
    ...         coord.join(threads)
    [[0, 1, 2, 3], [4]]
    """

    @short_traceback
    def __init__(
        self,
        source: Any,
        *,
        batch_size: int | None = None,
        queue: str = "shuffle",
        capacity: int | None = None,
        min_after_dequeue: int | None = None,
        num_threads: int = 1,
        num_processes: int = 0,
        nice: int = 0,
        seed: int | None = None,
        ignored_exception_types: Any = (),
        max_ignored: int | None = None,
        cluster: Cluster | None = None,
        share: str = "static",
        name: str | None = None,
    ) -> None:
        op_name("CustomRunner", name)
        caller = "CustomRunner" if name is None else f"CustomRunner '{name}'"
        with building("CustomRunner") as site:
            shuffle = choice(caller, "queue", queue, ("shuffle", "fifo")) == "shuffle"
            cluster = check_cluster(caller, cluster)
            plan = Plan(
                caller=caller,
                made_at=site,
                cluster=cluster,
                towers=tower_range_of(cluster, choice(caller, "share", share, SHARES), 1),
                num_threads=check_threads(caller, num_threads, MOST_THREADS),
                num_processes=check_processes(caller, num_processes, num_threads),
                nice=check_nice(nice, caller),
                skip_rule=skip_rule(ignored_exception_types, max_ignored, caller),
            )
            batch_size = _whole(caller, "batch_size", batch_size, 1, MOST_QUEUED, "records")
            capacity = _whole(caller, "capacity", capacity, 1, MOST_QUEUED, "elements of the queue")
            least = _whole(caller, "min_after_dequeue", min_after_dequeue, 0, MOST_QUEUED, "records")
            seed = _whole(caller, "seed", seed, -INT64_MAX - 1, INT64_MAX)
            with errors_only(caller):
                plan = _with_sources(plan, source)
            self._batch_size = batch_size or _source_batch(plan)
            plan = _with_queue(plan, shuffle, batch_size, capacity, least, seed)
            check_dynamic(plan)
            self._pipeline = build(plan, name or "custom_runner")
        self.name = self._pipeline.name
        (sink,) = self._pipeline.sinks
        assert isinstance(sink, FeedQueue)
        self._sink, self.queue = sink, sink.queue
        self.placeholders = self._packed(sink.put.placeholders)

    @short_traceback
    def get_inputs(self, batch_size: int | None = None) -> Any:
        """Return the tensors of the next batch, in the structure of the source's batches.

        Args:
          batch_size: records to take; None takes the constructor's `batch_size`.

        Returns:
          Tensors whose first dimension is `batch_size`, or unknown for finite data: its last batch may be smaller.

        Raises:
          ValueError: no batch size is known; the queue holds whole batches of another size; or its capacity would never
            let that many records through.
        """
        plan, options = self._pipeline.plan, self._sink.options
        size = _whole(plan.caller, "batch_size", batch_size, 1, MOST_QUEUED, "records") or self._batch_size
        if options.whole_batches:
            if batch_size is not None and size != _source_batch(plan):
                raise ValueError(
                    f"{plan.caller}: get_inputs() got batch_size={size}, but its queue holds whole batches as the "
                    f"source makes them. Give the constructor batch_size={size} to queue single records."
                )
        elif size is None:
            raise ValueError(
                f"{plan.caller}: get_inputs() needs a batch_size, because neither the constructor nor the source has "
                f"one. Write get_inputs(batch_size=...)."
            )
        else:
            self._check_room(size)
        endless = all(isinstance(entry.source, Source) and entry.source.num_batches is None for entry in plan.inputs)
        with own_frames_hidden():
            return self._packed(self._sink.dequeue(size, partial=not endless))

    @short_traceback
    def start_threads(self, sess: Any, coord: Any | None = None) -> list[threading.Thread]:
        """Start the feed threads in `sess`. A second call for the same session starts none.

        Args:
          sess: a `tf.Session` in which the variables are initialized.
          coord: a `tf.train.Coordinator` that stops and joins the threads and raises their exceptions. Without one,
            close the session to stop them.

        Returns:
          The started threads, which are daemons.

        Raises:
          UninitializedError: variables are uninitialized; the message lists them.
          ForkedError: the process was forked after TensorFlow sessions had run in it.
          TypeError: `sess` is not a session, or `coord` is not a coordinator.
        """
        caller = f"{self._pipeline.plan.caller}: start_threads()"
        having(caller, "sess", sess, ("graph", "run", "make_callable"), "a tf.Session")
        if coord is not None:
            having(caller, "coord", coord, ("register_thread", "request_stop"), "a tf.train.Coordinator")
        return feeding_of(sess).start(self._pipeline, coord)

    def _packed(self, tensors: Sequence[Any]) -> Any:
        """Pack tensors into the structure of a batch."""
        components = self._pipeline.plan.inputs[0].components
        return tf.nest.pack_sequence_as(components, list(tensors), expand_composites=True)

    def _check_room(self, taken: int) -> None:
        plan, handshake, floor = self._pipeline.plan, self._sink.put.handshake, self._sink.options.min_after_dequeue
        given = _source_batch(plan) or 1
        # With a hand-shake, the queue is filled before each dequeue, until the next batch does not fit.
        spare = given - 1 if handshake is not None else 0
        needed = max(floor + taken + spare, given)
        if handshake is not None:
            handshake.needed = max(handshake.needed, floor + taken)
        if needed > plan.capacity:
            parts = [f"min_after_dequeue={floor}", f"batch_size={taken}"] + [f"{spare} to fill up"] * bool(spare)
            raise ValueError(
                f"{plan.caller}: capacity={plan.capacity} never lets a batch through; expected at least "
                f"{needed} ({' + '.join(parts)}). Raise capacity, or lower min_after_dequeue."
            )


def _whole(caller: str, argument: str, value: Any, least: int, most: int, meaning: str = "") -> int | None:
    return None if value is None else whole(caller, argument, value, least, most, meaning)


def _with_sources(plan: Plan, source: Any) -> Plan:
    """Return the plan with the input of each producer: one source, or several that yield the same components."""
    given = _sources(plan, source)
    if len(given) > 1:
        plan = replace(plan, num_threads=1)
    if plan.num_processes:
        if len(given) > 1:
            raise ValueError(
                f"{plan.caller} got {len(given)} sources and num_processes={plan.num_processes}, expected one source. "
                f"Join them: staging_tf1.sources.concatenate or mix."
            )
        check_in_processes(plan.caller, given)
    sources = [divided(plan, whole_source, saves_seed=False)[0] for whole_source in given]
    specs = [
        check_spec(plan.caller, source, source.spec if isinstance(source, Source) else source.resolve_spec())
        for source in sources
    ]
    components = map_structure(as_type_spec, _common_spec(plan, specs))
    inputs = tuple(Input(components, components, source, spec) for source, spec in zip(sources, specs, strict=True))
    return replace(plan, inputs=inputs, limit=common_batches(plan, given[0]))


def _sources(plan: Plan, source: Any) -> list[Source | StreamSource]:
    if not (isinstance(source, (list, tuple)) and source and all(map(_is_input, source))):
        return [source_from(plan.caller, "source", source)]
    if plan.num_threads not in (1, len(source)):
        number = NAMED_AUTOTUNE if plan.num_threads == AUTOTUNE else plan.num_threads
        raise ValueError(
            f"{plan.caller} got {len(source)} generator functions and num_threads={number}. Each generator "
            f"has its own thread: leave num_threads out."
        )
    return [source_from(plan.caller, "source", generator) for generator in source]


def _is_input(given: Any) -> bool:
    """Whether an item of a list is an input, not a batch."""
    return callable(given) or isinstance(given, (Source, StreamSource))


def _common_spec(plan: Plan, specs: Sequence[Any]) -> Any:
    """Return the spec of what all generators yield. Their batches may differ in the number of records."""
    open_specs = [map_structure(_of_any_length, spec) for spec in specs]
    for number, spec in enumerate(specs[1:], start=1):
        if flatten_with_paths(open_specs[number]) != flatten_with_paths(open_specs[0]):
            raise SpecError(
                f"{plan.caller}: generator {number} yields {spec}, generator 0 yields {specs[0]}. All generators "
                f"of one queue must yield the same components."
            )
    same = all(flatten_with_paths(spec) == flatten_with_paths(specs[0]) for spec in specs)
    return specs[0] if same else open_specs[0]


def _of_any_length(leaf: Any) -> Any:
    return replace(leaf, shape=(None, *leaf.shape[1:])) if leaf.shape else leaf


def _source_batch(plan: Plan) -> int | None:
    source = plan.inputs[0].source
    return source.batch_size if isinstance(source, Source) else None


def _check_records(plan: Plan) -> None:
    for path, leaf in flatten_with_paths(plan.inputs[0].spec):
        if is_composite_spec(leaf):
            raise SpecError(
                f"{plan.caller}: {component_name(path)} is {leaf}, which a queue of single records cannot hold. "
                f"Queue whole batches: queue='fifo' without batch_size."
            )
        if leaf.shape is None or not leaf.shape or None in leaf.shape[1:]:
            raise SpecError(
                f"{plan.caller}: component '{path}' is {describe(leaf.dtype, leaf.shape)}, but a queue of single "
                f"records needs a first dimension that counts records, followed by a known shape. Pad the records, "
                f"declare the spec, or queue whole batches: queue='fifo' without batch_size."
            )
        if 0 in leaf.shape[1:]:
            raise SpecError(
                f"{plan.caller}: {component_name(path)} is {describe(leaf.dtype, leaf.shape)}, which a queue of single "
                f"records cannot hold: TensorFlow crashes when it splits rows without values. Queue whole batches: "
                f"queue='fifo' without batch_size."
            )
        if not can_be_split(leaf.dtype):
            raise SpecError(
                f"{plan.caller}: {component_name(path)} is {describe(leaf.dtype, leaf.shape)}, but TensorFlow's "
                f"queues cannot split batches of that dtype into records. Queue whole batches: queue='fifo' "
                f"without batch_size."
            )


def _check_seeded(plan: Plan, seeded: bool) -> None:
    if deterministic_ops() and not seeded:
        raise ValueError(
            f"{plan.caller} got queue='shuffle' without a seed, but deterministic ops are enabled. Pass seed=0, "
            f"or call tf.set_random_seed(0) first."
        )
    if plan.num_threads == AUTOTUNE and seeded:
        raise ValueError(
            f"{plan.caller} got num_threads={NAMED_AUTOTUNE} with a seeded shuffle queue, whose order "
            f"can only be repeated with one thread. Use num_threads=1, or queue='fifo' with a source that "
            f"shuffles (shuffle=True)."
        )


def _with_queue(
    plan: Plan, shuffle: bool, batch_size: int | None, capacity: int | None, least: int | None, seed: int | None
) -> Plan:
    """Return the plan with its queue. The arguments are those of `CustomRunner`; `least` is its min_after_dequeue."""
    whole_batches = not shuffle and batch_size is None
    if not whole_batches:
        _check_records(plan)
    seeded = seed is not None or tf.get_default_graph().seed is not None
    if shuffle:
        _check_seeded(plan, seeded)
    elif least is not None:
        raise ValueError(f"{plan.caller} got min_after_dequeue={least} with queue='fifo', which does not shuffle.")
    records = max(batch_size or 0, _source_batch(plan) or 0) or 128
    if least is None:
        # Ten batches, as TensorFlow's guide to reading data advised.
        least = max(0, min(10 * records, (capacity or MOST_QUEUED) - 3 * records)) if shuffle else 0
    if capacity is None:
        capacity = _BATCHES_AHEAD if whole_batches else min(least + 3 * records, MOST_QUEUED)
    options = QueueOptions(
        shuffle=shuffle,
        whole_batches=whole_batches,
        min_after_dequeue=least,
        seed=seed,
        # With several feed threads, their timing would still decide the order.
        reproducible=shuffle and seeded and len(plan.inputs) == num_feed_threads(plan, 0) == 1,
    )
    return replace(plan, capacity=capacity, queue=options)
