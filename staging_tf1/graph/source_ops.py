"""Looks up the graph: what a fetch depends on, and where the end of data can enter."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from typing import Any

from staging_tf1._tf import tf

# Ops that answer OutOfRangeError when there is no more.
_ENDING_OPS = frozenset(
    f"{name}{version}"
    for name in ("QueueDequeue", "QueueDequeueMany", "QueueDequeueUpTo", "ReaderRead", "ReaderReadUpTo")
    for version in ("", "V2")
) | {"IteratorGetNext", "IteratorGetNextSync"}
# A Python function ends the data by raising StopIteration; one that has inputs only transforms them.
_PYTHON_OPS = frozenset({"PyFunc", "PyFuncStateless", "EagerPyFunc"})
_GIVEN_OPS = frozenset({"Const", "Placeholder", "PlaceholderWithDefault"})


def ancestors(elements: Sequence[Any], fed: Collection[str] = ()) -> Iterator[Any]:
    """The ops that `elements` (tensors or ops) depend on, their own included; not behind tensors named in `fed`."""
    pending = [x if isinstance(x, tf.Operation) else x.op for x in elements if x.name not in fed]
    seen: set[str] = set()
    while pending:
        op = pending.pop()
        if op.name in seen:
            continue
        seen.add(op.name)
        yield op
        pending.extend(tensor.op for tensor in op.inputs if tensor.name not in fed)
        pending.extend(op.control_inputs)


def cut_before(put: Any, values: Sequence[Any]) -> list[Any]:
    """The tensors to run first and then to feed, so that `put` cannot meet the end of the data any more.

    As near to the data as possible, so that what the graph computes behind them stays in the step; empty for values
    that never end.
    """
    ending = [op for op in ancestors(values) if can_end(op)]
    if not ending:
        return []
    cut = [output for op in ending for output in op.outputs]
    # A control edge past the cut would run the op again, and drop what it gives.
    clean = not any(can_end(op) for op in ancestors([put], {tensor.name for tensor in cut}))
    if clean and all(map(_is_feedable, cut)):
        return cut
    return [value for value in values if any(can_end(op) for op in ancestors([value]))]


def _is_feedable(tensor: Any) -> bool:
    return tensor.dtype.base_dtype not in (tf.resource, tf.variant) and bool(tensor.graph.is_feedable(tensor))


def can_end(op: Any) -> bool:
    """Whether `op` answers OutOfRangeError when there are no more data."""
    if op.type in _PYTHON_OPS:
        return all(tensor.op.type in _GIVEN_OPS for tensor in op.inputs)
    return op.type in _ENDING_OPS
