"""Finds the tf.data service in a graph: behind a dataset, and behind the values that an op computes."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from staging_tf1._tf import tf
from staging_tf1.graph.dependencies import ancestors, bodies_of

# The ops that read from the service: DataServiceDataset, DataServiceDatasetV2 to V4.
_READING = "DataServiceDataset"
# The index of their input that is the address of the dispatcher.
_ADDRESS = 2


def service_of(dataset: Any) -> str:
    """Return "the tf.data service at HOST:PORT" if elements of `dataset` come from one; empty if none do.

    Looks at all datasets that `dataset` is made of, and into the functions that make datasets, as in `interleave`. Not
    found: a service behind an iterator that a function of the dataset reads.
    """
    variant = tf.data.experimental.to_variant(dataset)
    # An eager dataset has no graph. TensorFlow refuses it when its iterator is made.
    return "" if getattr(variant, "graph", None) is None else _find([variant.op])


def service_behind(op: Any) -> str:
    """Return the same for the datasets whose iterators `op` depends on. Feedable iterators are not followed."""
    iterators = [iterator for iterator in ancestors([op]) if "Iterator" in iterator.type]
    uses = [use for iterator in iterators for output in iterator.outputs for use in output.consumers()]
    # A one-shot iterator makes its dataset in a function. The others get theirs from a MakeIterator op.
    return _find([*iterators, *(use for use in uses if use.type == "MakeIterator")])


def _find(ops: Iterable[Any]) -> str:
    """Go from `ops` up to the datasets that they are made of. Datasets are variants."""
    pending, seen = list(ops), set()
    while pending:
        op = pending.pop()
        if op in seen:
            continue
        seen.add(op)
        if op.type.startswith(_READING):
            address = tf.get_static_value(op.inputs[_ADDRESS])
            return "a tf.data service" if address is None else f"the tf.data service at {address.item().decode()}"
        if any(node.op.startswith(_READING) for body in bodies_of(op.graph, [op.node_def]) for node in body):
            return "a tf.data service"
        pending.extend(tensor.op for tensor in op.inputs if tensor.dtype.base_dtype == tf.variant)
    return ""
