"""What `staged()` was given, seen as inlets: for each tower a source to read or values to compute."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import numpy as np

from staging_tf1._tf import Dataset, tf
from staging_tf1.arrays import as_array, describe
from staging_tf1.errors import SpecError
from staging_tf1.feed import components
from staging_tf1.feed.casting import with_casts
from staging_tf1.feed.declared_spec import with_declared
from staging_tf1.feed.source_errors import errors_only
from staging_tf1.graph.position import Position
from staging_tf1.sources import GeneratorSource, Source, StreamSource
from staging_tf1.sources.coerce import check_spec, source_from
from staging_tf1.sources.reshard import BY_BATCHES
from staging_tf1.spec import ArraySpec, component_name, flatten, flatten_with_paths, map_structure, pack, refuse_endless


class Values(NamedTuple):
    """The tensors of one tower's batch."""

    flat: list[Any]
    # What to pack the staged tensors in.
    structure: Any
    # What feed threads feed; empty where the graph computes the values.
    placeholders: list[Any]
    # The last of those, for the state that comes with each batch; None where none comes.
    label: Any = None


@dataclass(frozen=True)
class Inlet:
    """One tower's input."""

    # "tensors", "dataset" or "source".
    kind: str
    # Makes the values of one tower; called once, in the graph to build, with its position if it has one.
    values: Callable[[Position | None], Values]
    # Read by feed threads; None where the values are computed in the graph.
    source: Source | StreamSource | None
    # A nest of ArraySpec; None without a source.
    spec: Any
    # Whether the towers read one input in rotation.
    shared: bool
    # Bytes of one element; None if it varies or is unknown.
    element_bytes: int | None
    # A nest of tf.TypeSpec: what `values` makes.
    components: Any
    # What a checkpoint compares, of the input of all towers; None where it cannot go on at a number.
    fingerprint: dict[str, int | str] | None = None
    # Whether each batch brings the state of its stream.
    keeps_state: bool = False
    # Whether a restored run has to compute and drop what earlier ones have consumed.
    drops: bool = False


def inlets_for(
    values: Any, declared: Any, towers: int, what: str, *, skips: bool = False
) -> tuple[list[Inlet], Callable[[], Any]]:
    """One inlet for each tower, and a maker of the op to run once a session (or None).

    `declared` is what the caller says the values are, or None; a generator is then not read to find that out. `skips`
    says that bad batches are skipped.

    Raises:
      TypeError, SpecError, ValueError: `values` is nothing that can be staged; no op has been added then.
    """
    if isinstance(values, Dataset):
        return _from_dataset(values, towers, skips)
    if _is_nest_of_tensors(values, what):
        return _from_tensors(values, towers, what)
    with errors_only(what):
        return _from_source(source_from(what, "values", values), declared, towers, what)


def fitted(inlet: Inlet, spec: Any, cast: Any, what: str) -> Inlet:
    """The inlet with the shapes that `spec` declares and the dtypes that `cast` names.

    Raises:
      TypeError, SpecError: the values are not as declared, or cannot be cast; no op has been added then.
    """
    wanted = with_casts(with_declared(inlet.components, spec, what), cast, what)
    if wanted is inlet.components:
        return inlet

    def make(position: Position | None) -> Values:
        made = inlet.values(position)
        leaves = zip(flatten_with_paths(made.structure), flatten(inlet.components), flatten(wanted), strict=True)
        structure = pack(made.structure, [_fit(leaf, had, want, path) for (path, leaf), had, want in leaves])
        flat = [tf.convert_to_tensor(tensor) for tensor in tf.nest.flatten(structure, expand_composites=True)]
        return made._replace(flat=flat, structure=structure)

    batch_size = inlet.source.batch_size if isinstance(inlet.source, Source) else None
    size = components.element_bytes(wanted, batch_size)
    return replace(inlet, values=make, components=wanted, element_bytes=size)


def _fit(leaf: Any, had: Any, wanted: Any, path: str) -> Any:
    """One component with the shape and the dtype of `wanted`."""
    if components.is_dense(wanted) and str(had.shape) != str(wanted.shape):
        leaf = tf.ensure_shape(leaf, wanted.shape, name=_op_name("declared", path))
    if getattr(had, "dtype", None) != getattr(wanted, "dtype", None):
        leaf = tf.cast(leaf, wanted.dtype, name=_op_name("cast", path))
    return leaf


def _is_nest_of_tensors(values: Any, what: str) -> bool:
    if isinstance(values, (Source, StreamSource)):
        return False
    try:
        leaves = tf.nest.flatten(values, expand_composites=True)
    except RecursionError:
        refuse_endless(values, what)
    tensors = [leaf for leaf in leaves if tf.is_tensor(leaf) or isinstance(leaf, tf.Variable)]
    if not tensors:
        if isinstance(values, (dict, tuple)) or (tf.nest.is_nested(values) and not isinstance(values, list)):
            raise TypeError(
                f"{what} got a {type(values).__name__} as values, which holds no tensor. Wrap arrays in a source: "
                f"staging.sources.ArraySource(arrays, batch_size=...)."
            )
        return False
    for path, leaf in flatten_with_paths(values):
        if leaf is None:
            raise TypeError(f"{what} got None as component '{path}'. Leave it out, or give a tensor.")
        if isinstance(leaf, np.ndarray):  # a constant among tensors: TensorFlow would drop its mask
            as_array(leaf, None, f"{what}: {component_name(path)}")
    return True


def _from_tensors(values: Any, towers: int, what: str) -> tuple[list[Inlet], Callable[[], Any]]:
    graph = tf.get_default_graph()
    flat = tf.nest.flatten(values, expand_composites=True)
    for tensor in flat:
        home = getattr(tensor, "graph", None)
        if tf.is_tensor(tensor) and home is None:
            raise SpecError(
                f"{what} got an eager tensor, {describe(tensor.dtype, tensor.shape)}, which belongs to no graph. "
                "Make it within `with graph.as_default():`, or give its value: tensor.numpy()."
            )
        if tf.is_tensor(tensor) and home is not graph:
            raise SpecError(
                f"tensor '{tensor.name}' belongs to another graph than the one that staged() builds in. "
                f"Build both within the same `with graph.as_default():`."
            )

    given = components.of_tensors(values)

    def make(position: Position | None) -> Values:
        return Values([tf.convert_to_tensor(tensor) for tensor in flat], values, [])

    inlet = Inlet("tensors", make, None, None, shared=towers > 1, element_bytes=_total_bytes(flat), components=given)
    return [inlet] * towers, lambda: None


def _total_bytes(tensors: list[Any]) -> int | None:
    sizes = [_tensor_bytes(tensor) for tensor in tensors]
    return None if None in sizes else sum(size for size in sizes if size is not None)


def _tensor_bytes(tensor: Any) -> int | None:
    dtype = tf.as_dtype(tensor.dtype).base_dtype
    shape = tf.TensorShape(tensor.shape)
    if not shape.is_fully_defined() or dtype in (tf.string, tf.resource, tf.variant):
        return None
    return int(shape.num_elements()) * int(dtype.size)


def _from_dataset(dataset: Any, towers: int, skips: bool) -> tuple[list[Inlet], Callable[[], Any]]:
    # One iterator for all towers: a shuffled dataset that every tower iterated for itself would give them other
    # orders, and shards of those overlap.
    made: list[Any] = []

    def make(position: Position | None) -> Values:
        if not made:
            # Read when the iterator is initialised, which is after a checkpoint has been restored. Not where elements
            # may be bad: `skip` begins to count again behind each of them, and so leaves out good ones.
            rest = dataset if position is None or skips else dataset.skip(position.first_of_all())
            made.append(tf.data.make_initializable_iterator(rest))
        element = made[0].get_next()
        return Values(tf.nest.flatten(element, expand_composites=True), element, [])

    inlet = Inlet(
        "dataset",
        make,
        None,
        None,
        shared=towers > 1,
        element_bytes=_total_bytes(_components(dataset)),
        components=components.of_dataset(dataset),
        fingerprint={"source": "tf.data.Dataset", **BY_BATCHES},
        drops=skips,
    )
    return [inlet] * towers, lambda: made[0].initializer


def _components(dataset: Any) -> list[Any]:
    types = tf.nest.flatten(tf.data.get_output_types(dataset))
    shapes = tf.nest.flatten(tf.data.get_output_shapes(dataset))
    return [tf.TensorSpec(shape, dtype) for dtype, shape in zip(types, shapes, strict=True)]


def _from_source(
    source: Source | StreamSource, declared: Any, towers: int, what: str
) -> tuple[list[Inlet], Callable[[], Any]]:
    if isinstance(source, Source):
        whole = source.fingerprint()
        shards = _dealt_out(source, towers, what) if towers > 1 else [source]
        specs = [check_spec(what, shard, shard.spec) for shard in shards]
        return [_source_inlet(shard, spec, whole, shared=False) for shard, spec in zip(shards, specs)], lambda: None
    if isinstance(source, GeneratorSource) and source.spec is None and declared is not None:
        source = source.with_spec(declared)
    spec = check_spec(what, source, source.resolve_spec())
    dealt = {**source.fingerprint(), **BY_BATCHES} if source.can_resume else None
    return [_source_inlet(source, spec, dealt, shared=towers > 1)] * towers, lambda: None


def _dealt_out(source: Source, towers: int, what: str) -> list[Source]:
    """A shard of the source for each tower.

    Raises:
      ValueError: a tower would get nothing.
    """
    batches = source.num_records is None
    most = source.num_batches if batches else source.num_records
    if most is not None and most < towers:
        unit = "batch(es)" if batches else "record(s)"
        raise ValueError(
            f"{what} got {towers} devices, so {towers} towers, and a source of {most} {unit} to deal out to them: "
            f"{towers - most} tower(s) would get none. Give it at most {most} device(s)."
        )
    try:
        shards = [source.shard(tower, towers) for tower in range(towers)]
    except ValueError as error:
        raise ValueError(
            f"{what} got {towers} devices, and its source cannot be dealt out to so many towers, one shard for each: "
            f"{error}"
        ) from error
    if len({id(shard) for shard in shards}) < towers:
        raise ValueError(
            f"{what}: {type(source).__name__}.shard() gave two towers the same source, so both would get its records. "
            f"Return a source of its own for each shard; staging_tf1.testing.assert_shards_partition proves it."
        )
    return shards


def _source_inlet(
    source: Source | StreamSource, spec: Any, fingerprint: dict[str, int | str] | None, *, shared: bool
) -> Inlet:
    # Of towers in rotation, the last one to take would have to win: they read up to their place instead.
    keeps_state = isinstance(source, StreamSource) and source.keeps_state and not shared

    def make(position: Position | None) -> Values:
        fed = map_structure(_placeholder, spec)
        placeholders = tf.nest.flatten(fed)
        label = [tf.placeholder(tf.string, [], name="state")] if keeps_state else []
        if source.features is None:
            return Values(placeholders, fed, placeholders + label, *label)
        parsed = tf.io.parse_example(placeholders[0], source.features)
        return Values(tf.nest.flatten(parsed, expand_composites=True), parsed, placeholders + label, *label)

    size = source.bytes_per_batch if isinstance(source, Source) and source.features is None else None
    made_of = components.of_source(source, spec)
    return Inlet("source", make, source, spec, shared, size, made_of, fingerprint, keeps_state)


def _placeholder(leaf: ArraySpec) -> Any:
    return tf.placeholder(components.as_tf_dtype(leaf.dtype), leaf.shape, name=_op_name(leaf.name or "batch"))


def _op_name(*parts: str) -> str:
    """A name for an op from a component's path."""
    return re.sub(r"[^A-Za-z0-9_]+", "_", "_".join(filter(None, parts))).strip("_") or "batch"
