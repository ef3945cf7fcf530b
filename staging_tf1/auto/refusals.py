"""What `auto_stage()` refuses, with a message that says what to do. Nothing here changes the graph."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from staging_tf1._tf import function_def, has_open_session, tf
from staging_tf1.arguments import shown
from staging_tf1.auto import kinds
from staging_tf1.auto.reading import GraphReader
from staging_tf1.errors import AutoStageError
from staging_tf1.feed.pipeline import pipelines_of

WHAT = "auto_stage()"


def check_graph(graph: Any) -> None:
    """Check the state of the graph.

    Raises:
      AutoStageError: it can no longer be changed, or its input runs ahead already.
    """
    if graph.finalized:
        raise AutoStageError(f"{WHAT} is called after the graph was finalized. Call it before the session is created.")
    if has_open_session(graph):
        raise AutoStageError(
            f"{WHAT}: a session of this graph has run and is open, and TensorFlow ignores changes of what it has run. "
            f"Call auto_stage() before the first run, or close that session."
        )
    pipelines = pipelines_of(graph)
    if pipelines:
        raise AutoStageError(f"{WHAT}: the graph already has the pipeline {pipelines[0]}, whose input runs ahead.")


def check_input(reader: GraphReader) -> None:
    """Check that the input can run ahead.

    Raises:
      AutoStageError: the step has no input that computes, or it runs ahead already, or its state is saved.
    """
    index = reader.index
    for number in sorted(reader.needed):
        if kinds.AREAS.match(index.kinds[number]):
            raise AutoStageError(
                f"{WHAT}: the step uses the graph's own staging area ('{index.ops[number].name}'), so its input "
                f"already runs ahead."
            )
    for number, kind in enumerate(index.kinds):
        if kind in kinds.ITERATOR_STATE:
            raise AutoStageError(
                f"{WHAT}: '{index.ops[number].name}' saves the state of an iterator, which would be ahead of the "
                f"steps. Remove make_saveable_from_iterator() or CheckpointInputPipelineHook, or leave the graph "
                f"unstaged."
            )
    _check_devices(reader)
    if not reader.sources:
        raise AutoStageError(_without_source(reader))


def _check_devices(reader: GraphReader) -> None:
    """Check that the step runs in this process: on a server, areas outlive the session."""
    devices = {reader.index.ops[number].device for number in reader.needed}
    servers = sorted(device for device in devices if tf.DeviceSpec.from_string(device).job not in (None, "localhost"))
    if servers:
        raise AutoStageError(
            f"{WHAT}: the step runs on servers ({', '.join(servers[:3])}), where areas outlive the session. Use "
            f"staged(..., cluster=) with StagingSession."
        )


def _without_source(reader: GraphReader) -> str:
    index = reader.index
    fed = sorted(index.ops[number].name for number in reader.needed if index.kinds[number] in kinds.PLACEHOLDERS)
    if fed:
        return (
            f"{WHAT}: the step's input is fed ({', '.join(fed[:3])}), so there is nothing to compute ahead. Use "
            f"staged() or CustomRunner with the source of the fed arrays."
        )
    taking = sorted(number for number in reader.needed if kinds.TAKING.match(index.kinds[number]))
    if taking:
        op = index.ops[taking[0]]
        reason = reader.blocked.get(reader.node_of(op)) or "what it reads depends on the step"
        return f"{WHAT}: '{op.name}' cannot run ahead: {reason}."
    return f"{WHAT}: the train op depends on no iterator, queue, reader or Python function that gives batches."


def nothing_moves(reader: GraphReader) -> AutoStageError:
    """Return the error for a graph in which no source can run ahead."""
    nodes = sorted(reader.source_nodes)
    reasons = dict.fromkeys(reader.blocked.get(node) or why_stuck(reader, node) for node in nodes)
    return AutoStageError(f"{WHAT}: nothing can run ahead of the step: {'; '.join(reasons)}.")


def why_stuck(reader: GraphReader, node: int) -> str:
    """Return why the node of a source belongs to the step."""
    op = reader.ops_of([node])[0]
    if node in reader.pinned:
        return f"'{op.name}' runs after ops of the step"
    return f"what '{op.name}' returns cannot be carried to the step"


def check_others(reader: GraphReader, sources: Sequence[Any], region: set[str]) -> None:
    """Check that nothing else uses an input that will be read ahead.

    Raises:
      AutoStageError: an op outside of the region reads it, the step fills it, or it may begin again unnoticed.
    """
    index = reader.index
    handles = {reader.handle_of(op).name: op for op in sources if op.type not in kinds.PYTHON}
    for name, source in handles.items():
        for number in index.after[index.number_of[name]]:
            op, kind = index.ops[number], index.kinds[number]
            if op.name in region:
                continue
            if kind in kinds.INITIALIZERS and number in reader.needed:
                raise AutoStageError(
                    f"{WHAT}: '{op.name}' initializes the iterator of '{source.name}' in each step. Run it on its own, "
                    f"before the steps."
                )
            if any(output.dtype == tf.resource for output in op.outputs):
                raise AutoStageError(
                    f"{WHAT}: '{op.name}' passes the input of '{source.name}' on, into a cond or loop. Whether a run "
                    f"reads it or begins it again cannot be told from what it fetches. Initialize and read it outside."
                )
            if kinds.TAKING.match(kind) or kind in kinds.CALLING:
                raise AutoStageError(
                    f"{WHAT}: '{op.name}' reads the same input as '{source.name}', but not for the train op. With "
                    f"batches that are read ahead it would get others. Give it an iterator or queue of its own."
                )
            if kinds.ENQUEUES.match(kind) and number in reader.needed:
                raise AutoStageError(
                    f"{WHAT}: the step fills the queue that it reads ('{op.name}' and '{source.name}'). Fill it in a "
                    f"queue runner."
                )


def kept_tensors(graph: Any, keep: Sequence[Any], region: set[str]) -> list[Any]:
    """Return the tensors of `keep` that would run ahead.

    Raises:
      AutoStageError: one is not of this graph, or cannot be carried.
    """
    kept = []
    for element in keep:
        try:
            tensor = graph.as_graph_element(element, allow_operation=False)
        except (KeyError, TypeError, ValueError) as error:
            raise AutoStageError(
                f"{WHAT} got {shown(element)} in keep, expected tensors of the graph, or their names."
            ) from error
        if tensor.op.name in region:
            if not kinds.can_be_carried(tensor) or not graph.is_fetchable(tensor):
                raise AutoStageError(
                    f"{WHAT}: keep={element!r} is within a loop or cond, or no value, and cannot be kept."
                )
            kept.append(tensor)
    return kept


def gives_what_is_ready(reader: GraphReader, op: Any) -> bool:
    """Whether a source only takes what another thread has computed: a dequeue, or a dataset that ends in a prefetch."""
    if kinds.DEQUEUES.match(op.type):
        return True
    if not kinds.ITERATOR_READS.match(op.type):
        return False
    handle = reader.handle_of(op)
    if handle.type == "OneShotIterator":
        function = function_def(reader.index.graph, handle.node_def.attr["dataset_factory"].func.name)
        return function is not None and _returns_prefetched(function)
    index = reader.index
    users = [index.ops[number] for number in index.after[index.number_of[handle.name]]]
    makers = [op for op in users if op.type in kinds.INITIALIZERS]
    return bool(makers) and all(_is_prefetched(maker.inputs[0].op) for maker in makers)


def _is_prefetched(dataset: Any) -> bool:
    while kinds.DATASET_WRAPPERS.match(dataset.type):
        dataset = dataset.inputs[0].op
    return bool(kinds.PREFETCHES.match(dataset.type))


def _returns_prefetched(function: Any) -> bool:
    """The same of the function that makes the dataset of a one-shot iterator."""
    nodes = {node.name: node for node in function.node_def}
    node = nodes.get(next(iter(function.ret.values())).split(":")[0])
    while node is not None and (kinds.DATASET_WRAPPERS.match(node.op) or node.op == "Identity"):
        node = nodes.get(node.input[0].split(":")[0])
    return node is not None and bool(kinds.PREFETCHES.match(node.op))
