"""`CustomRunner`: the classic recipe of feed threads, placeholders and a queue."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from staging_tf1._tf import deterministic_ops, tf
from staging_tf1.arguments import (
    AUTOTUNE,
    INT64_MAX,
    MOST_QUEUED,
    MOST_THREADS,
    NAMED_AUTOTUNE,
    choice,
    having,
    only_known,
    op_name,
    whole,
)
from staging_tf1.cluster.cluster import Cluster
from staging_tf1.define.parallel import check_in_processes, check_processes, check_threads, num_feed_threads
from staging_tf1.define.shares import SHARES, check_cluster, common_batches, divided, tower_range_of
from staging_tf1.define.specs import as_type_spec, can_be_split
from staging_tf1.errors import SpecError
from staging_tf1.feed.picture import html_of
from staging_tf1.feed.pipeline import Pipeline, Producer
from staging_tf1.feed.queue_runner import register, runner_of
from staging_tf1.feed.source_errors import errors_only, skip_rule
from staging_tf1.feed.threads import check_nice
from staging_tf1.graph.feed_queue import FeedQueue, QueueOptions
from staging_tf1.graph.guards import building
from staging_tf1.graph.token_area import on
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
        functions or sources, one per thread. The first dimension of a batch counts records. Several threads share one
        source: each batch goes to one thread.
      batch_size: records that `get_inputs` takes by default. None takes the batches as the source makes them.
      queue: "shuffle" is a `tf.RandomShuffleQueue` of records. "fifo" is a `tf.FIFOQueue`: of whole batches if
        `batch_size` is None, else of records. Whole batches are faster, because `enqueue_many` splits and rebuilds
        every batch.
      capacity: elements that the queue holds, up to 2**24: whole batches or records.
      min_after_dequeue: records that stay in a shuffle queue. More of them shuffle better but take memory.
      num_threads: feed threads, up to 1,024, or `tf.data.AUTOTUNE`, as in `staged`. With "fifo", the batches keep the
        source's order. AUTOTUNE is refused with a seeded shuffle queue.
      num_processes: as in `staged`, for one source.
      nice: as in `staged`.
      seed: seed of the shuffle queue. With a seed here or in the graph, and a single thread, the order is reproducible:
        a dequeue waits until the queue is filled, so the order does not depend on timing. Required with deterministic
        ops.
      ignored_exception_types: as in `staged`.
      max_ignored: as in `staged`.
      cluster: the `Cluster` whose workers share the source: each reads a shard of it. The queue is on this worker.
      share: as in `staged`.
      name: name for ops, threads and messages.

    Attributes:
      queue: the TensorFlow queue.
      placeholders: the tensors that the threads feed, in the structure of a batch.

    Raises:
      TypeError, ValueError: an argument is invalid, or the capacity would never let a batch through.
      SpecError: the batches cannot be queued as records, or several generators yield different components.
      BuildError: called in a loop, a function or a finalized graph.

    >>> import numpy as np
    >>> with tf.Graph().as_default():
    ...     runner = CustomRunner(lambda: iter([np.arange(3), np.arange(3, 5)]), batch_size=4, queue="fifo")
    ...     x = runner.get_inputs()
    ...     with tf.Session() as sess:
    ...         coord = tf.train.Coordinator()
    ...         threads = runner.start_threads(sess, coord)
    ...         [sess.run(x).tolist(), sess.run(x).tolist()]
    ...         coord.request_stop()
    ...         coord.join(threads)
    [[0, 1, 2, 3], [4]]
    """

    @only_known
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
        self._what = "CustomRunner" if name is None else f"CustomRunner '{name}'"
        with building("CustomRunner") as site:
            choice(self._what, "queue", queue, ("shuffle", "fifo"))
            cluster = check_cluster(self._what, cluster)
            tower_range = tower_range_of(cluster, choice(self._what, "share", share, SHARES), 1)
            num_threads = check_threads(self._what, num_threads, MOST_THREADS)
            num_processes = check_processes(self._what, num_processes, num_threads)
            nice = check_nice(nice, self._what)
            rule = skip_rule(ignored_exception_types, max_ignored, self._what)
            batch_size = self._whole("batch_size", batch_size, 1, MOST_QUEUED, "records")
            capacity = self._whole("capacity", capacity, 1, MOST_QUEUED, "elements of the queue")
            min_after_dequeue = self._whole("min_after_dequeue", min_after_dequeue, 0, MOST_QUEUED, "records")
            seed = self._whole("seed", seed, -INT64_MAX - 1, INT64_MAX)
            with errors_only(self._what):
                given = self._sources(source, num_threads)
                if num_processes:
                    self._check_in_processes(given, num_processes)
                sources = [divided(source, tower_range, self._what, saves_seed=False)[0] for source in given]
                self._spec = self._common_spec(sources)
                limit = common_batches(given[0], tower_range, self._what)
            self._source_batch = sources[0].batch_size if isinstance(sources[0], Source) else None
            self._endless = all(isinstance(source, Source) and source.num_batches is None for source in sources)
            whole_batches = queue == "fifo" and batch_size is None
            if not whole_batches:
                self._check_records()
            seeded = seed is not None or tf.get_default_graph().seed is not None
            if queue == "shuffle" and deterministic_ops() and not seeded:
                raise ValueError(
                    f"{self._what} got queue='shuffle' without a seed, but deterministic ops are enabled. Pass seed=0, "
                    f"or call tf.set_random_seed(0) first."
                )
            if queue == "shuffle" and num_threads == AUTOTUNE and seeded:
                raise ValueError(
                    f"{self._what} got num_threads={NAMED_AUTOTUNE} with a seeded shuffle queue, whose order "
                    f"can only be repeated with one thread. Use num_threads=1, or queue='fifo' with a source that "
                    f"shuffles (shuffle=True)."
                )
            self._batch_size = batch_size or self._source_batch
            capacity, self._floor = self._sizes(capacity, min_after_dequeue, queue, whole_batches)
            with tf.name_scope(name or "custom_runner") as scope:
                self.name = scope.rstrip("/")
            threads = num_feed_threads(num_processes, num_threads, sources[0])
            options = QueueOptions(
                shuffle=queue == "shuffle",
                whole_batches=whole_batches,
                min_after_dequeue=self._floor,
                seed=seed,
                # With several feed threads, their timing would still decide the order.
                reproducible=queue == "shuffle" and len(sources) == threads == 1 and seeded,
            )
            components = tf.nest.flatten(self._type_specs(), expand_composites=True)
            own_device = None if cluster is None else cluster.own_device
            with tf.control_dependencies(None), tf.name_scope(scope), on(own_device):
                self._queue = FeedQueue(self.name, components, capacity, options)
            self._whole_batches = whole_batches
            self.queue = self._queue.queue
            self.placeholders = self._packed(self._queue.placeholders)
            producer = Producer(
                self.name,
                None,
                self._spec,
                threads,
                nice,
                in_order=queue == "fifo",
                skip_rule=rule,
                limit=limit,
                autotune=num_threads == AUTOTUNE,
                num_processes=num_processes,
            )
            self._pipeline = Pipeline(
                self.name, site, (self._queue,), self._producers(producer, sources), cluster=cluster
            )
            register(self._pipeline)

    @only_known
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
        size = self._whole("batch_size", batch_size, 1, MOST_QUEUED, "records") or self._batch_size
        if self._whole_batches:
            if batch_size is not None and size != self._source_batch:
                raise ValueError(
                    f"{self._what}: get_inputs() got batch_size={size}, but its queue holds whole batches as the "
                    f"source makes them. Give the constructor batch_size={size} to queue single records."
                )
        elif size is None:
            raise ValueError(
                f"{self._what}: get_inputs() needs a batch_size, because neither the constructor nor the source has "
                f"one. Write get_inputs(batch_size=...)."
            )
        else:
            self._check_room(size)
        outputs = self._queue.get(size, partial=not self._endless)
        return self._packed(outputs)

    @only_known
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
        what = f"{self._what}: start_threads()"
        having(what, "sess", sess, ("graph", "run", "make_callable"), "a tf.Session")
        if coord is not None:
            having(what, "coord", coord, ("register_thread", "request_stop"), "a tf.train.Coordinator")
        return runner_of(sess.graph, self._pipeline).create_threads(sess, coord, daemon=True, start=True)

    def _repr_html_(self) -> str:
        return html_of([self._pipeline])

    def _packed(self, tensors: Sequence[Any]) -> Any:
        """Pack tensors into the structure of a batch."""
        return tf.nest.pack_sequence_as(self._type_specs(), list(tensors), expand_composites=True)

    def _type_specs(self) -> Any:
        return map_structure(as_type_spec, self._spec)

    @staticmethod
    def _producers(one: Producer, sources: Sequence[Source | StreamSource]) -> tuple[Producer, ...]:
        """Return `one` with its source, or one producer per source, each with one thread."""
        if len(sources) == 1:
            return (replace(one, source=sources[0]),)
        return tuple(
            replace(one, name=f"{one.name}/{i}", source=source, num_threads=1) for i, source in enumerate(sources)
        )

    def _whole(self, argument: str, value: Any, least: int, most: int, meaning: str = "") -> int | None:
        """Check a whole number, unless it is None."""
        return None if value is None else whole(self._what, argument, value, least, most, meaning)

    def _sources(self, source: Any, num_threads: int) -> list[Source | StreamSource]:
        if not (isinstance(source, (list, tuple)) and source and all(map(_is_input, source))):
            return [source_from(self._what, "source", source)]
        if num_threads not in (1, len(source)):
            number = NAMED_AUTOTUNE if num_threads == AUTOTUNE else num_threads
            raise ValueError(
                f"{self._what} got {len(source)} generator functions and num_threads={number}. Each generator "
                f"has its own thread: leave num_threads out."
            )
        return [source_from(self._what, "source", one) for one in source]

    def _check_in_processes(self, sources: Sequence[Source | StreamSource], num_processes: int) -> None:
        if len(sources) > 1:
            raise ValueError(
                f"{self._what} got {len(sources)} sources and num_processes={num_processes}, expected one source. Join "
                f"them: staging_tf1.sources.concatenate or mix."
            )
        check_in_processes(self._what, sources)

    def _common_spec(self, sources: Sequence[Source | StreamSource]) -> Any:
        specs = [
            check_spec(self._what, source, source.spec if isinstance(source, Source) else source.resolve_spec())
            for source in sources
        ]
        for number, spec in enumerate(specs[1:], start=1):
            if flatten_with_paths(spec) != flatten_with_paths(specs[0]):
                raise SpecError(
                    f"{self._what}: generator {number} yields {spec}, generator 0 yields {specs[0]}. All generators "
                    f"of one queue must yield the same components."
                )
        return specs[0]

    def _check_records(self) -> None:
        for path, leaf in flatten_with_paths(self._spec):
            if is_composite_spec(leaf):
                raise SpecError(
                    f"{self._what}: {component_name(path)} is {leaf}, which a queue of single records cannot hold. "
                    f"Queue whole batches: queue='fifo' without batch_size."
                )
            if leaf.shape is None or not leaf.shape or None in leaf.shape[1:]:
                raise SpecError(
                    f"{self._what}: component '{path}' is {describe(leaf.dtype, leaf.shape)}, but a queue of single "
                    f"records needs a first dimension that counts records, followed by a known shape. Pad the records, "
                    f"declare the spec, or queue whole batches: queue='fifo' without batch_size."
                )
            if not can_be_split(leaf.dtype):
                raise SpecError(
                    f"{self._what}: {component_name(path)} is {describe(leaf.dtype, leaf.shape)}, but TensorFlow's "
                    f"queues cannot split batches of that dtype into records. Queue whole batches: queue='fifo' "
                    f"without batch_size."
                )

    def _sizes(self, capacity: int | None, floor: int | None, queue: str, whole_batches: bool) -> tuple[int, int]:
        if floor is not None and queue != "shuffle":
            raise ValueError(f"{self._what} got min_after_dequeue={floor} with queue='fifo', which does not shuffle.")
        records = max(self._batch_size or 0, self._source_batch or 0) or 128
        if floor is None:
            # Ten batches, as TensorFlow's guide to reading data advised.
            floor = 0
            if queue == "shuffle":
                floor = max(0, min(10 * records, (capacity or MOST_QUEUED) - 3 * records))
        if capacity is None:
            capacity = _BATCHES_AHEAD if whole_batches else min(floor + 3 * records, MOST_QUEUED)
        return capacity, floor

    def _check_room(self, taken: int) -> None:
        given = self._source_batch or 1
        # With a hand-shake, the queue is filled before each dequeue, until the next batch does not fit.
        handshake = self._queue.handshake
        spare = given - 1 if handshake is not None else 0
        needed = max(self._floor + taken + spare, given)
        if handshake is not None:
            handshake.needed = max(handshake.needed, self._floor + taken)
        if needed > self._queue.capacity:
            parts = [f"min_after_dequeue={self._floor}", f"batch_size={taken}"] + [f"{spare} to fill up"] * bool(spare)
            raise ValueError(
                f"{self._what}: capacity={self._queue.capacity} never lets a batch through; expected at least "
                f"{needed} ({' + '.join(parts)}). Raise capacity, or lower min_after_dequeue."
            )


def _is_input(given: Any) -> bool:
    """Whether an item of a list is an input, not a batch."""
    return callable(given) or isinstance(given, (Source, StreamSource))
