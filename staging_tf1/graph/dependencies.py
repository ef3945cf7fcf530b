"""What a run depends on, which ops can end the data, and which tf.data services are behind it: found by walking up."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from functools import lru_cache
from typing import Any

from staging_tf1._tf import function_def, tf
from staging_tf1.graph.state import counted_state_of

# Ops that raise OutOfRangeError at the end of the data.
_ENDING_OPS = frozenset(
    f"{name}{version}"
    for name in ("QueueDequeue", "QueueDequeueMany", "QueueDequeueUpTo", "ReaderRead", "ReaderReadUpTo")
    for version in ("", "V2")
) | {"IteratorGetNext", "IteratorGetNextSync"}
# A Python function ends the data by raising StopIteration; one that has inputs only transforms them.
PYTHON_OPS = frozenset({"PyFunc", "PyFuncStateless", "EagerPyFunc"})
_GIVEN_OPS = frozenset({"Const", "Placeholder", "PlaceholderWithDefault"})
# Ops that run functions of the graph's library: tf.cond, tf.switch_case, tf.while_loop and tf.function make them.
_CHOOSING_OPS = frozenset({"If", "StatelessIf", "Case", "StatelessCase"})
_CALLING_OPS = _CHOOSING_OPS | {"While", "StatelessWhile", "PartitionedCall", "StatefulPartitionedCall"}

# The name of the ops whose outputs the user's model reads. Programs name them: "staged/Identity:0".
OUTPUT = "Identity"


def ancestors(elements: Iterable[Any], fed: Collection[str] = (), *, controls: bool = True) -> Iterator[Any]:
    """The ops of `elements` (tensors or ops) and all that they depend on, up to the tensors named in `fed`.

    Without `controls`, only those are followed whose outputs they use.
    """
    pending = [x if isinstance(x, tf.Operation) else x.op for x in elements if x.name not in fed]
    seen: set[str] = set()
    while pending:
        op = pending.pop()
        if op.name in seen:
            continue
        seen.add(op.name)
        yield op
        pending.extend(tensor.op for tensor in op.inputs if tensor.name not in fed)
        if controls:
            pending.extend(op.control_inputs)


def descendants(tensors: Iterable[Any]) -> Iterator[Any]:
    pending = [op for tensor in tensors for op in tensor.consumers()]
    seen: set[str] = set()
    while pending:
        op = pending.pop()
        if op.name not in seen:
            seen.add(op.name)
            yield op
            pending.extend(consumer for tensor in op.outputs for consumer in tensor.consumers())


def elements_of(graph: Any, fetches: Any) -> list[Any]:
    """The tensors and ops that a nest of fetches, or of names, stands for.

    Raises:
      KeyError, TypeError, ValueError: `fetches` holds something that is not in the graph.
    """
    leaves = [part for leaf in leaves_of(fetches) for part in tf.nest.flatten(leaf, expand_composites=True)]
    return [graph.as_graph_element(leaf) for leaf in leaves]


def leaves_of(fetches: Any) -> Iterator[Any]:
    """The contents of the containers that `Session.run` looks into.

    `tf.nest` would sort the keys of a dict. That fails for keys of several types, and a MonitoredSession's keys are its
    hooks.
    """
    held = held_in(fetches.__class__)
    if held is None:
        yield fetches
    else:
        for _, value in held(fetches):
            yield from leaves_of(value)


@lru_cache(maxsize=1000)
def held_in(kind: type[Any]) -> Callable[[Any], Iterable[tuple[Any, Any]]] | None:
    """A function for the (name, value) pairs of a container of that class; None if `Session.run` does not open it."""
    if issubclass(kind, (list, tuple)):
        return enumerate
    if issubclass(kind, Mapping):
        return lambda fetches: fetches.items()
    if hasattr(kind, "__attrs_attrs__"):
        return lambda fetches: [(field.name, getattr(fetches, field.name)) for field in kind.__attrs_attrs__]
    return None


def ops_of_run(graph: Any, fetches: Any, fed: Iterable[Any], cut: Iterable[Any] = ()) -> dict[str, Any]:
    """The ops, by name, that a run of `fetches` executes when the tensors `fed` and `cut` are fed."""
    names = {element.name for element in elements_of(graph, list(fed))} | {tensor.name for tensor in cut}
    return {op.name: op for op in ancestors(elements_of(graph, fetches), names)}


def can_end(op: Any) -> bool:
    """Whether `op`, or an op in the functions that it calls, raises OutOfRangeError when there is no more data."""
    if op.type in PYTHON_OPS:
        return all(tensor.op.type in _GIVEN_OPS for tensor in op.inputs)
    if op.type not in _CALLING_OPS:
        return op.type in _ENDING_OPS
    return _Functions(op.graph).can_end(op.node_def, [tensor.op.type in _GIVEN_OPS for tensor in op.inputs])


class _Functions:
    """Looks for the end of the data in the functions of a graph, such as the branches of `tf.cond`."""

    def __init__(self, graph: Any) -> None:
        self._graph = graph
        self._known = counted_state_of(graph).functions
        # The calls that have been looked into: a function may call itself.
        self._seen: set[tuple[str, tuple[bool, ...]]] = set()

    def can_end(self, node: Any, given: Sequence[bool]) -> bool:
        """Whether the data can end at `node`; `given` says for each input whether it is given, not computed."""
        if node.op in PYTHON_OPS:
            return all(given)
        if node.op not in _CALLING_OPS:
            return node.op in _ENDING_OPS
        # The first input only chooses a function.
        arguments = tuple(given[1:] if node.op in _CHOOSING_OPS else given)
        return any(self._ends_in(name, arguments) for name in _functions_of(node))

    def _ends_in(self, name: str, arguments: tuple[bool, ...]) -> bool:
        if (name, arguments) in self._seen:
            return False
        self._seen.add((name, arguments))
        function = self.of(name)
        given = dict(zip((argument.name for argument in function.signature.input_arg), arguments, strict=False))
        given |= {node.name: node.op in _GIVEN_OPS for node in function.node_def}
        return any(
            self.can_end(node, [given[name.split(":")[0]] for name in node.input if not name.startswith("^")])
            for node in function.node_def
        )

    def of(self, name: str) -> Any:
        """Return the FunctionDef of `name`."""
        if name not in self._known:
            # This serializes the whole graph, so all functions are kept. A function never changes.
            self._known.update(
                (function.signature.name, function) for function in self._graph.as_graph_def().library.function
            )
        return self._known[name]


def _functions_of(node: Any) -> Iterator[str]:
    """The names of the functions in the attributes of a NodeDef."""
    for value in node.attr.values():
        yield from (function.name for function in [value.func, *value.list.func] if function.name)


def bodies_of(graph: Any, nodes: Iterable[Any]) -> Iterator[list[Any]]:
    """Yield some NodeDefs of a graph as one list, and then those of each function that they call, directly or not."""
    pending = [list(nodes)]
    seen: set[str] = set()
    while pending:
        body = pending.pop()
        yield body
        # A function can also be called like an op: by a node of its name.
        names = dict.fromkeys(name for node in body for name in (*_functions_of(node), node.op) if name not in seen)
        seen.update(names)
        functions = [function_def(graph, name) for name in names]
        pending += [list(function.node_def) for function in functions if function is not None]


def calls_functions(ops: Iterable[Any]) -> bool:
    """Whether one of these ops runs a function of the graph's library."""
    return any(op.type in _CALLING_OPS or function_def(op.graph, op.type) is not None for op in ops)


def calls_python(tensor: Any) -> bool:
    """Whether `tensor` is made of what a Python function returns, and so may be memory that the function still has."""
    bodies = bodies_of(tensor.graph, [op.node_def for op in ancestors([tensor], controls=False)])
    return any(node.op in PYTHON_OPS for body in bodies for node in body)


def cut_before(put: Any, values: Sequence[Any]) -> list[Any]:
    """The tensors to compute first and then feed, so that `put` cannot meet the end of the data.

    They are as close to the data as possible, so that what the graph computes from them stays in the step. The list is
    empty for values that never end.
    """
    ending = [op for op in ancestors(values) if can_end(op)]
    if not ending:
        return []
    cut = [output for op in ending for output in op.outputs]
    # If a control dependency bypasses the cut, the op runs a second time, and its batch is lost.
    clean = not any(can_end(op) for op in ancestors([put], {tensor.name for tensor in cut}))
    # A loop has outputs for all that its body uses, however large and whether anything reads them.
    calls = any(op.type in _CALLING_OPS for op in ending)
    if clean and not calls and all(map(_is_feedable, cut)):
        return cut
    return [value for value in values if any(can_end(op) for op in ancestors([value]))]


def copies_after(ops: Sequence[Any], tensors: Iterable[Any], name: str | None = None) -> list[Any]:
    """Return copies of `tensors` that wait for `ops`.

    Not made by tf.identity: Grappler connects the readers of an identity to its input. A run that feeds one of the
    tensors and reads another would then take an element without the ops that follow it.
    """
    with tf.control_dependencies(list(ops)):
        return [tf.ensure_shape(tensor, tensor.shape, name) for tensor in tensors]


def _is_feedable(tensor: Any) -> bool:
    return tensor.dtype.base_dtype not in (tf.resource, tf.variant) and bool(tensor.graph.is_feedable(tensor))


# Ops that pass a variable on: into a v1 `tf.cond` or `tf.while_loop`.
_PASSING_OPS = frozenset({"Identity", "Switch", "Enter"})


def writers_of(handle: Any) -> Iterator[Any]:
    """The ops that may assign to the resource variable of `handle`."""
    for op in handle.consumers():
        if op.type in _PASSING_OPS:
            for output in op.outputs:
                yield from writers_of(output)
        elif _assigns(op.type) or (op.type in _CALLING_OPS and _assigns_within(op)):
            yield op


def _assigns(kind: str) -> bool:
    return "Assign" in kind or "Scatter" in kind or kind == "DestroyResourceOp"


def _assigns_within(call: Any) -> bool:
    """Whether a function that an op calls assigns to a variable: perhaps to the one that the op passes on."""
    functions, pending, seen = _Functions(call.graph), [call.node_def], set[str]()
    while pending:
        for name in set(_functions_of(pending.pop())) - seen:
            seen.add(name)
            nodes = functions.of(name).node_def
            if any(_assigns(node.op) for node in nodes):
                return True
            pending += nodes
    return False


def iterators_behind(elements: Iterable[Any]) -> frozenset[str]:
    """Return the names of the ops of the initializable iterators that `elements` depend on."""
    return frozenset(op.name for op in ancestors(elements) if op.type in ("Iterator", "IteratorV2"))


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
