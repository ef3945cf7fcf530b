"""The elements of a `tf.data.Dataset` as arrays, for `sources.cached`.

An eager dataset is iterated eagerly. A dataset of a graph is copied: the nodes behind it go into a graph of their own,
with a session of their own. The user's graph is not changed: it may be finalized, and no later `staged()` or checkpoint
sees new ops. Python functions that the dataset calls belong to this process, so the copy finds them, too. The copy has
no values of the user's sessions, so datasets that read variables or placeholders are refused, with their names.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Sequence
from typing import Any

from staging_tf1._tf import eager_mode, fast_callable, tf
from staging_tf1.errors import SpecError
from staging_tf1.spec import ArraySpec, component_name, flatten_with_paths, map_structure, pack

# The bytes of records that are fetched at once, and the most records.
_BYTES_AT_ONCE, _MOST_AT_ONCE = 4 << 20, 256
# The size that a string counts as. It is unknown, and may be that of an image or a document.
_BYTES_OF_STRING = 512 << 10
# Ops whose values belong to a session, and what they are.
_OF_A_SESSION = {
    "Placeholder": "placeholder",
    "PlaceholderWithDefault": "placeholder",
    "VarHandleOp": "variable",
    "Variable": "variable",
    "VariableV2": "variable",
}


class Elements:
    """The elements of a dataset. The dataset is read when `blocks` is iterated.

    Attributes:
      spec: the spec of an element, a nest of `ArraySpec`.
      count: how many there are; None if that is unknown.
      endless: whether the dataset says that it never ends.

    Raises SpecError if a component is no dense tensor, or the dataset depends on values of a session.
    """

    def __init__(self, dataset: Any, caller: str) -> None:
        self._dataset = dataset
        self.spec = _spec_of(dataset, caller)
        variant = tf.data.experimental.to_variant(dataset)
        self._copy = None if hasattr(variant, "numpy") else _Copy(variant, dataset.element_spec, caller)
        count = self._cardinality()
        self.count = count if count >= 0 else None
        self.endless = count == tf.data.experimental.INFINITE_CARDINALITY

    def _cardinality(self) -> int:
        if self._copy is None:
            with eager_mode():
                return int(self._dataset.cardinality())
        with self._copy.session() as session:
            return int(session.run(self._copy.cardinality))

    def blocks(self, most: int | None) -> Iterator[tuple[Any, bool]]:
        """Yield the elements one by one; or several stacked, if all have the same shape.

        Each comes with whether it is a stack. At most `most` elements are needed; None is all.
        """
        size = self._at_once() if most is None else min(self._at_once(), most)
        stacked = size > 1
        read = self._eagerly if self._copy is None else self._copy.run
        like = map_structure(lambda leaf: None, self.spec)
        for flat in read(lambda dataset: _stacked(dataset, size if stacked else None)):
            yield pack(like, flat), stacked

    def _at_once(self) -> int:
        total = 0
        for _, leaf in flatten_with_paths(self.spec):
            if leaf.shape is None or None in leaf.shape:
                return 1
            size = _BYTES_OF_STRING if leaf.dtype.hasobject else leaf.dtype.itemsize
            for dim in leaf.shape:
                size *= dim or 0
            total += size
        return max(1, min(_MOST_AT_ONCE, _BYTES_AT_ONCE // max(1, total)))

    def _eagerly(self, prepare: Any) -> Iterator[list[Any]]:
        with eager_mode():
            iterator = iter(prepare(self._dataset))
        while True:
            # Not around the yield: the caller's code runs there.
            with eager_mode():
                element = next(iterator, None)
                if element is None:
                    return
                flat = [tensor.numpy() for tensor in tf.nest.flatten(element)]
            yield flat


def _stacked(dataset: Any, size: int | None) -> Any:
    # One element is made while another one is written.
    return dataset.prefetch(2) if size is None else dataset.batch(size).prefetch(2)


def _spec_of(dataset: Any, caller: str) -> Any:
    leaves = []
    element_spec = dataset.element_spec
    for path, leaf in flatten_with_paths(element_spec):
        if not isinstance(leaf, tf.TensorSpec):
            cure = "Make it dense in the pipeline, for example with to_tensor() or tf.sparse.to_dense()."
            kind = type(leaf).__name__.removesuffix("Spec")
            raise SpecError(f"{caller}: {component_name(path)} of the dataset is a {kind}, expected a tensor. {cure}")
        leaves.append(ArraySpec(leaf.shape, leaf.dtype, path or None))
    if not leaves:
        raise SpecError(f"{caller} got a dataset without components, expected at least one tensor.")
    return pack(element_spec, leaves)


class _Copy:
    def __init__(self, variant: Any, element_spec: Any, caller: str) -> None:
        home = variant.graph
        nodes = _behind([variant.op])
        initializers = home.get_collection(tf.GraphKeys.TABLE_INITIALIZERS)
        tables = [op for op in initializers if op.inputs and op.inputs[0].op in nodes]
        nodes |= _behind(tables)
        _refuse_sessions_values(nodes, caller)
        wanted = {op.name for op in nodes}
        definition = home.as_graph_def()
        kept = [node for node in definition.node if node.name in wanted]
        del definition.node[:]
        for node in kept:
            # The devices and neighbours of the user's session may be absent here.
            node.device = ""
            node.attr.pop("_class", None)
        definition.node.extend(kept)
        self._graph, self._element_spec = tf.Graph(), element_spec
        with self._graph.as_default():
            names = [variant.name, *(op.name for op in tables)]
            self._variant, *self._tables = tf.import_graph_def(definition, return_elements=names, name="")
            self.cardinality = self._dataset().cardinality()

    def _dataset(self) -> Any:
        return tf.data.experimental.from_variant(self._variant, self._element_spec)

    def session(self) -> Any:
        """Make a session with its own threads. Other sessions share one pool, whose size the first one decides."""
        config = tf.ConfigProto(use_per_session_threads=True, allow_soft_placement=True, device_count={"GPU": 0})
        return tf.Session(graph=self._graph, config=config)

    def run(self, prepare: Any) -> Iterator[list[Any]]:
        with self._graph.as_default():
            iterator = tf.data.make_initializable_iterator(prepare(self._dataset()))
            fetches = tf.nest.flatten(iterator.get_next())
        with contextlib.closing(self.session()) as session:
            session.run(self._tables)
            session.run(iterator.initializer)
            next_element = fast_callable(session, feeds=[], targets=[], fetches=fetches)
            while True:
                try:
                    flat = next_element()
                except tf.errors.OutOfRangeError:
                    return
                yield flat


def _behind(ops: Sequence[Any]) -> set[Any]:
    reached, todo = set(ops), list(ops)
    while todo:
        op = todo.pop()
        earlier = {*(tensor.op for tensor in op.inputs), *op.control_inputs} - reached
        reached |= earlier
        todo += earlier
    return reached


def _refuse_sessions_values(nodes: set[Any], caller: str) -> None:
    for op in sorted(nodes, key=lambda op: op.name):
        if op.type in _OF_A_SESSION:
            kind = _OF_A_SESSION[op.type]
            raise SpecError(
                f"{caller} got a dataset that reads the {kind} '{op.name}', whose value belongs to a session. Build "
                f"the dataset from the value itself, such as a numpy array."
            )
