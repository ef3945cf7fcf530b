"""`measured_costs`: how long the ops of an input take, measured in a session of its own."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence
from typing import Any

from staging_tf1._tf import run_unwrapped, tf
from staging_tf1.auto import kinds
from staging_tf1.auto.costs import Costs
from staging_tf1.auto.reading import GraphReader
from staging_tf1.errors import AutoStageError
from staging_tf1.graph.dependencies import ancestors

_WHAT = "auto_stage(measure=True)"
# The first run also makes the kernels.
_RUNS = 3
# A queue that a thread of the program fills stays empty here.
_TIMEOUT_SECS = 10.0


def measured_costs(reader: GraphReader, ops: Sequence[Any]) -> Costs:
    """Run the input three times and return what each op took.

    The session is its own and reads its own data: no batch of the program is lost, and nothing is added to the graph.

    Args:
      reader: of the graph.
      ops: the ops that could run ahead.

    Raises:
      AutoStageError: they cannot be run without an effect on the program, or they fail.
    """
    _check(reader, ops)
    graph = reader.index.graph
    config = tf.ConfigProto(allow_soft_placement=True)
    # Ops that are merged have no times of their own. -1 is L0: no optimizer.
    config.graph_options.rewrite_options.disable_meta_optimizer = True
    config.graph_options.optimizer_options.opt_level = -1
    with tf.Session(graph=graph, config=config) as session:
        coord = tf.train.Coordinator()
        try:
            for init in _initializers(reader, ops):
                run_unwrapped(session, init)
            threads = tf.train.start_queue_runners(session, coord, start=True) if _dequeues(ops) else []
            traces = list(_traces(session, [op for op in ops if graph.is_fetchable(op)]))
        except tf.errors.OpError as error:
            raise AutoStageError(f"{_WHAT}: the input could not be run: {error.message}. Leave measure out.") from error
        finally:
            coord.request_stop()
        session.close()
        coord.join(threads, stop_grace_period_secs=_TIMEOUT_SECS, ignore_live_threads=True)
    return _costs(traces)


def _check(reader: GraphReader, ops: Sequence[Any]) -> None:
    for op in ops:
        if op.type in kinds.PYTHON:
            raise AutoStageError(
                f"{_WHAT} would call the Python function of '{op.name}', which may give each batch once. Leave measure "
                f"out."
            )
        if reader.is_source(op):
            name = reader.handle_of(op).node_def.attr["shared_name"].s
            if name:
                raise AutoStageError(
                    f"{_WHAT}: '{op.name}' takes from {tf.compat.as_str(name)!r}, a shared name, so others would lose "
                    f"what it takes. Leave measure out."
                )


def _dequeues(ops: Sequence[Any]) -> bool:
    return any(kinds.DEQUEUES.match(op.type) or op.type.startswith("ReaderRead") for op in ops)


def _initializers(reader: GraphReader, ops: Sequence[Any]) -> list[list[Any]]:
    """Return the ops that make the input ready: the counts of epochs, tables, and the iterators."""
    graph, index = reader.index.graph, reader.index
    local = [variable.initializer for variable in graph.get_collection(tf.GraphKeys.LOCAL_VARIABLES)]
    iterators = []
    for op in filter(reader.is_source, ops):
        users = [] if op.type in kinds.PYTHON else index.after[index.number_of[reader.handle_of(op).name]]
        makers = [index.ops[user] for user in users if index.kinds[user] in kinds.INITIALIZERS]
        for maker in makers[:1]:
            if any(op.type in kinds.PLACEHOLDERS for op in ancestors([maker])):
                raise AutoStageError(f"{_WHAT}: '{maker.name}' must be fed. Leave measure out.")
            iterators.append(maker)
    return [local, list(graph.get_collection(tf.GraphKeys.TABLE_INITIALIZERS)), iterators]


def _traces(session: Any, targets: Sequence[Any]) -> Iterable[Any]:
    options = tf.RunOptions(trace_level=tf.RunOptions.FULL_TRACE, timeout_in_ms=int(1000 * _TIMEOUT_SECS))
    for number in range(_RUNS):
        metadata = tf.RunMetadata()
        try:
            session.run(targets, options=options, run_metadata=metadata)
        except tf.errors.OutOfRangeError:
            if number:
                # There are fewer batches than runs.
                return
            raise
        yield metadata.step_stats


def _costs(traces: Sequence[Any]) -> Costs:
    times: dict[str, int] = {}
    sizes: dict[str, int] = {}
    for trace in traces[1:] or traces:
        of_run: dict[str, int] = defaultdict(int)
        for device in trace.dev_stats:
            for node in device.node_stats:
                # Those of all rounds of a loop.
                of_run[node.node_name] += max(0, node.op_end_rel_nanos - node.op_start_rel_nanos)
                for output in node.output:
                    held = output.tensor_description.allocation_description.requested_bytes
                    sizes[f"{node.node_name}:{output.slot}"] = int(held)
        for name, nanos in of_run.items():
            times[name] = min(nanos, times.get(name, nanos))
    return Costs(times, sizes)
