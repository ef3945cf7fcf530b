"""The inputs of `staged()`: for each tower, tensors to compute, a dataset to iterate or a source to read."""

from __future__ import annotations

import re
from contextlib import nullcontext
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from staging_tf1._tf import Dataset, tf
from staging_tf1.define import specs
from staging_tf1.define.shares import check_divisible, common_batches, divided, fingerprint_of
from staging_tf1.errors import SpecError
from staging_tf1.feed.source_errors import errors_only
from staging_tf1.graph.data_service import service_of
from staging_tf1.graph.position import Position, TowerRange
from staging_tf1.graph.sink import Tensors
from staging_tf1.sources import GeneratorSource, Source, StreamSource
from staging_tf1.sources.coerce import check_spec, source_from
from staging_tf1.sources.reshard import BY_BATCHES, DATA_SERVICE
from staging_tf1.spec import component_name, flatten, flatten_with_paths, map_structure, pack, refuse_endless
from staging_tf1.spec.arrays import as_array, describe


@dataclass(frozen=True)
class TowerInput:
    """One tower's input. This class is for tensors that the graph computes; subclasses are for datasets and sources."""

    values: Any
    # A nest of tf.TypeSpec: the specs of `values`.
    given: Any
    # The same after `spec=` and `cast=`: the specs of what is staged.
    components: Any
    # Bytes of one element; None if the number varies or is unknown.
    element_bytes: int | None
    # Whether the towers read one input in rotation.
    in_rotation: bool
    # Read by feed threads; None if the graph computes the values.
    source: Source | StreamSource | None = None
    # A nest of ArraySpec, RaggedSpec and SparseSpec; None without a source.
    spec: Any = None
    # Of the input of all towers, for checkpoints; None if the input cannot start at a given batch.
    fingerprint: dict[str, int | str] | None = None
    # Whether each batch carries the state of its stream.
    keeps_state: bool = False
    # Whether a restored run must compute and drop what earlier runs consumed.
    fast_forwards: bool = False
    # How many batches of the source to read; None is all.
    limit: int | None = None
    # "the tf.data service at HOST:PORT" if batches come from one, in a new order each time; empty if none do.
    service: str = ""

    def tensors(self, position: Position | None) -> Tensors:
        """Make the tensors of one batch. Called once, while the graph is open.

        Args:
          position: the position of the pipeline, if it has one.
        """
        # Batches of a source come from the host, whatever the device scope of the caller.
        with tf.device("/device:CPU:0") if self.source is not None else nullcontext():
            tensors = self._build(position)
            return tensors if self.components is self.given else self._fitted(tensors)

    def _fitted(self, tensors: Tensors) -> Tensors:
        leaves = zip(flatten_with_paths(tensors.structure), flatten(self.given), flatten(self.components), strict=True)
        structure = pack(tensors.structure, [_fit(leaf, had, want, path) for (path, leaf), had, want in leaves])
        return tensors._replace(flat=_flat(structure), structure=structure)

    @property
    def computes_in_step(self) -> bool:
        """Whether the step itself computes the values: one batch per step."""
        return type(self) is TowerInput

    @property
    def init(self) -> Any | None:
        """The op to run once per session, or None. Read it after `tensors` was called."""
        return None

    def _build(self, position: Position | None) -> Tensors:
        return Tensors(_flat(self.values), self.values, [])


@dataclass(frozen=True)
class _DatasetInput(TowerInput):
    # One iterator for all towers. With an iterator each, towers would see a shuffled dataset in different orders, and
    # their shards would overlap.
    iterators: list[Any] = field(default_factory=list)

    @property
    def init(self) -> Any | None:
        return self.iterators[0].initializer

    def _build(self, position: Position | None) -> Tensors:
        if not self.iterators:
            # The position is read when the iterator is initialized, after a restore. If elements may be bad, `skip`
            # cannot be used: it starts counting again after a bad element, and so skips good ones.
            rest = self.values
            if position is not None and not self.fast_forwards:
                rest = rest.skip(position.first_of_all())
            self.iterators.append(tf.data.make_initializable_iterator(rest))
        element = self.iterators[0].get_next()
        return Tensors(_flat(element), element, [])


@dataclass(frozen=True)
class _SourceInput(TowerInput):
    def _build(self, position: Position | None) -> Tensors:
        assert self.source is not None
        type_specs = map_structure(specs.as_type_spec, self.spec)
        names = [leaf.name for leaf in flatten(self.spec)]
        fed = pack(self.spec, [_placeholders(spec, name) for spec, name in zip(flatten(type_specs), names)])
        placeholders = _flat(fed)
        label = [tf.placeholder(tf.string, [], name="state")] if self.keeps_state else []
        if self.source.features is None:
            return Tensors(placeholders, fed, placeholders + label, *label)
        parsed = tf.io.parse_example(placeholders[0], self.source.features)
        return Tensors(_flat(parsed), parsed, placeholders + label, *label)


def inputs_for(values: Any, declared: Any, here: TowerRange, what: str, *, skips: bool = False) -> list[TowerInput]:
    """Return one input for each tower. Make no op.

    Args:
      values: the argument of `staged()`.
      declared: its argument `spec`. With one, a generator is not read to find its spec.
      here: the towers of this process.
      what: the caller, for messages.
      skips: whether bad batches are skipped.

    Raises:
      TypeError, SpecError, ValueError: `values` cannot be staged.
      ClusterError: they cannot be divided among the workers of a cluster.
    """
    if isinstance(values, Dataset):
        check_divisible(what, "a tf.data.Dataset", here)
        return [_dataset_input(values, here, skips)] * here.towers
    if _is_nest_of_tensors(values, what):
        if here.dynamic:
            check_divisible(what, "tensors", here)
        return [_tensors_input(values, here.towers)] * here.towers
    with errors_only(what):
        return _source_inputs(source_from(what, "values", values), declared, here, what)


def fitted(given: TowerInput, spec: Any, cast: Any, what: str) -> TowerInput:
    """Return the input with the shapes that `spec` declares and the dtypes that `cast` names. Make no op.

    Raises:
      TypeError, SpecError: the values do not fit `spec`, or cannot be cast.
    """
    components = specs.with_casts(specs.with_declared(given.components, spec, what), cast, what)
    if components is given.components:
        return given
    batch_size = given.source.batch_size if isinstance(given.source, Source) else None
    return replace(given, components=components, element_bytes=specs.element_bytes(components, batch_size))


def _fit(leaf: Any, had: Any, wanted: Any, path: str) -> Any:
    """Convert one component to the shape and dtype of `wanted`."""
    if specs.is_dense(wanted) and str(had.shape) != str(wanted.shape):
        leaf = tf.ensure_shape(leaf, wanted.shape, name=_op_name("declared", path))
    if getattr(had, "dtype", None) != getattr(wanted, "dtype", None):
        leaf = tf.cast(leaf, wanted.dtype, name=_op_name("cast", path))
    return leaf


def _flat(values: Any) -> list[Any]:
    return [tf.convert_to_tensor(tensor) for tensor in tf.nest.flatten(values, expand_composites=True)]


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
                f"{what} got a {type(values).__name__} without tensors as values. Wrap arrays in a source: "
                f"staging.sources.ArraySource(arrays, batch_size=...)."
            )
        return False
    for path, leaf in flatten_with_paths(values):
        if leaf is None:
            raise TypeError(f"{what} got None as component '{path}'. Leave it out, or pass a tensor.")
        if isinstance(leaf, np.ndarray):  # a constant among tensors: TensorFlow would drop its mask
            as_array(leaf, None, f"{what}: {component_name(path)}")
    for tensor in leaves:
        _check_graph(tensor, what)
    return True


def _check_graph(tensor: Any, what: str) -> None:
    if not tf.is_tensor(tensor):
        return
    home = getattr(tensor, "graph", None)
    if home is None:
        raise SpecError(
            f"{what} got an eager tensor, {describe(tensor.dtype, tensor.shape)}, which belongs to no graph. Build it "
            "within `with graph.as_default():`, or pass its value: tensor.numpy()."
        )
    if home is not tf.get_default_graph():
        raise SpecError(
            f"{what} got tensor '{tensor.name}', which belongs to a different graph than the default one. Build both "
            f"within the same `with graph.as_default():`."
        )


def _tensors_input(values: Any, towers: int) -> TowerInput:
    given = specs.of_tensors(values)
    flat = specs.of_tensors(tf.nest.flatten(values, expand_composites=True))
    return TowerInput(values, given, given, specs.element_bytes(flat, None), in_rotation=towers > 1)


def _dataset_input(dataset: Any, here: TowerRange, skips: bool) -> TowerInput:
    given = specs.of_dataset(dataset)
    service = service_of(dataset)
    return _DatasetInput(
        dataset,
        given,
        given,
        specs.element_bytes(given, None),
        in_rotation=here.towers > 1,
        # Without BY_BATCHES a position cannot be mapped: batch 3 of one pass has nothing to do with that of another.
        fingerprint=fingerprint_of(
            {"source": DATA_SERVICE} if service else {"source": "tf.data.Dataset", **BY_BATCHES}, here
        ),
        fast_forwards=skips,
        service=service,
    )


def _source_inputs(source: Source | StreamSource, declared: Any, here: TowerRange, what: str) -> list[TowerInput]:
    if isinstance(source, Source):
        whole = fingerprint_of(source.fingerprint(), here)
        shards = divided(source, here, what, saves_seed=True)
        checked = [specs.narrowed(check_spec(what, shard, shard.spec), declared) for shard in shards]
        limit = common_batches(source, here, what)
        inputs = [_source_input(shard, spec, whole, in_rotation=False) for shard, spec in zip(shards, checked)]
        return [replace(tower_input, limit=limit) for tower_input in inputs]
    check_divisible(what, f"a {type(source).__name__}", here)
    if isinstance(source, GeneratorSource) and source.spec is None and declared is not None:
        source = source.with_spec(declared)
    spec = specs.narrowed(check_spec(what, source, source.resolve_spec()), declared)
    dealt = fingerprint_of({**source.fingerprint(), **BY_BATCHES}, here) if source.can_resume else None
    # Towers in rotation would all have to save the state of the last one, and workers of a cluster one each. They read
    # up to their position instead.
    alone = here.towers == 1 and not here.own_inputs
    return [_source_input(source, spec, dealt, in_rotation=here.towers > 1, keeps_state=alone)] * here.towers


def _source_input(
    source: Source | StreamSource,
    spec: Any,
    fingerprint: dict[str, int | str] | None,
    *,
    in_rotation: bool,
    keeps_state: bool = False,
) -> TowerInput:
    given = specs.of_source(source, spec)
    return _SourceInput(
        None,
        given,
        given,
        source.bytes_per_batch if isinstance(source, Source) and source.features is None else None,
        in_rotation,
        source,
        spec,
        fingerprint,
        keeps_state=keeps_state and isinstance(source, StreamSource) and source.keeps_state,
    )


def _placeholders(type_spec: Any, name: str | None) -> Any:
    """Make a tensor to feed; a sparse or ragged one is made of several."""
    parts = tf.nest.flatten(type_spec, expand_composites=True)
    names = [_op_name(name or "batch", *([str(i)] if len(parts) > 1 else [])) for i in range(len(parts))]
    fed = [tf.placeholder(part.dtype, part.shape, name=name) for part, name in zip(parts, names)]
    return tf.nest.pack_sequence_as(type_spec, fed, expand_composites=True)


def _op_name(*parts: str) -> str:
    """Make an op name from a component's path."""
    return re.sub(r"[^A-Za-z0-9_]+", "_", "_".join(filter(None, parts))).strip("_") or "batch"
