"""Specs of batches: dtypes, shapes and structure, without TensorFlow.

Structures are those of `tf.nest`: dicts (keys in sorted order), tuples, lists and namedtuples, arbitrarily nested.
Everything else is a leaf: an array, or a sparse or ragged value, even if that is a namedtuple.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any

import numpy as np

from staging_tf1.errors import SpecError
from staging_tf1.spec.arrays import as_array, as_numpy_dtype, as_shape, describe, is_plain_list, kind_of
from staging_tf1.spec.composite import as_composite, composite_spec, is_composite, is_composite_spec
from staging_tf1.spec.ragged import RaggedSpec
from staging_tf1.spec.sparse import SparseSpec

__all__ = [
    "ArraySpec",
    "RaggedSpec",
    "SparseSpec",
    "bytes_per_batch",
    "describe",
    "flatten",
    "flatten_up_to",
    "flatten_with_paths",
    "infer_spec",
    "map_structure",
    "pack",
]


@dataclasses.dataclass(frozen=True)
class ArraySpec:
    """Dtype, shape and name of one component, like a `tf.TensorSpec`.

    Attributes:
      shape: one entry per dimension, None where it varies. None if the rank varies.
      dtype: a numpy dtype in native byte order. `object` stands for byte strings (`tf.string`).
      name: the name of the component, or None.

    >>> ArraySpec((None, 784), np.float32, "image")
    ArraySpec(float32 [?, 784], name='image')
    """

    shape: tuple[int | None, ...] | None
    dtype: np.dtype[Any]
    name: str | None = None

    def __post_init__(self) -> None:
        object.__setattr__(self, "dtype", as_numpy_dtype(self.dtype))
        object.__setattr__(self, "shape", as_shape(self.shape))

    def __repr__(self) -> str:
        named = "" if self.name is None else f", name={self.name!r}"
        return f"ArraySpec({describe(self.dtype, self.shape)}{named})"


def is_namedtuple(value: object) -> bool:
    """Whether `value` is a namedtuple."""
    return isinstance(value, tuple) and hasattr(value, "_fields")


def is_structure(value: object) -> bool:
    """Whether `value` is a dict, tuple, list or namedtuple of components."""
    if isinstance(value, tuple):
        return type(value) is tuple or not is_composite(value)
    return isinstance(value, list) or _is_mapping(value)


def _is_mapping(value: object) -> bool:
    # Concrete types first: isinstance with an abstract class is slow, and this runs for every leaf of every batch.
    return isinstance(value, dict) or (not isinstance(value, np.ndarray) and isinstance(value, Mapping))


def flatten_with_paths(structure: Any) -> list[tuple[str, Any]]:
    """Return the leaves in `tf.nest` order, each with its path.

    Raises SpecError if two leaves have the same path.

    >>> flatten_with_paths({"obs": {"pixels": 1}, "action": (2, 3)})
    [('action[0]', 2), ('action[1]', 3), ('obs.pixels', 1)]
    """
    leaves = flatten_up_to(structure, structure)
    _check_paths([path for path, _ in leaves])
    return leaves


def _check_paths(paths: list[str]) -> None:
    if len(set(paths)) < len(paths):
        twice = next(path for path in paths if paths.count(path) > 1)
        raise SpecError(f"two components have the path {twice!r}, their name in messages and cast=. Rename a key.")


def _children(structure: Any) -> Iterable[tuple[str | int, Any]]:
    if _is_mapping(structure):
        return ((str(key), structure[key]) for key in _sorted_keys(structure))
    if is_namedtuple(structure):
        return zip(structure._fields, structure)
    return enumerate(structure)


def _sorted_keys(mapping: Mapping[Any, Any]) -> list[Any]:
    try:
        return sorted(mapping)
    except TypeError:
        raise SpecError(
            f"the keys of a dict of components must be sortable, so they must have one type; got {list(mapping)}. "
            "Use strings."
        ) from None


def _join(path: str, key: str | int) -> str:
    if isinstance(key, int):
        return f"{path}[{key}]"
    return f"{path}.{key}" if path else key


def flatten(structure: Any) -> list[Any]:
    """Return the leaves in `tf.nest` order: dicts by sorted key, the rest in order."""
    if not is_structure(structure):
        return [structure]
    children = [structure[key] for key in _sorted_keys(structure)] if _is_mapping(structure) else structure
    if not any(map(is_structure, children)):  # the common case: a flat batch
        return list(children)
    return [leaf for child in children for leaf in flatten(child)]


def pack(structure: Any, leaves: Iterable[Any]) -> Any:
    """Build a structure like `structure` from other leaves, given in `tf.nest` order.

    >>> pack({"b": None, "a": (None, None)}, [1, 2, 3])
    {'b': 3, 'a': (1, 2)}
    """
    remaining = iter(leaves)
    packed = _pack(structure, remaining)
    if next(remaining, _END) is not _END:
        raise SpecError(f"got more leaves than the {len(flatten(structure))} of the structure")
    return packed


_END = object()


def _pack(structure: Any, leaves: Iterator[Any]) -> Any:
    if not is_structure(structure):
        leaf = next(leaves, _END)
        if leaf is _END:
            raise SpecError("got fewer leaves than the structure has")
        return leaf
    if _is_mapping(structure):
        packed = {key: _pack(structure[key], leaves) for key in _sorted_keys(structure)}
        in_order = {key: packed[key] for key in structure}
        return in_order if type(structure) is dict else _rebuild_mapping(structure, in_order)
    children = [_pack(child, leaves) for child in structure]
    if is_namedtuple(structure):
        return type(structure)(*children)
    return tuple(children) if isinstance(structure, tuple) else children


def _rebuild_mapping(like: Mapping[Any, Any], items: dict[Any, Any]) -> Any:
    try:
        return type(like)(items)  # type: ignore[call-arg]
    except TypeError:  # a defaultdict, whose first argument is its factory
        return items


def map_structure(function: Callable[[Any], Any], structure: Any) -> Any:
    """Build the same structure with `function(leaf)` for each leaf."""
    return pack(structure, [function(leaf) for leaf in flatten(structure)])


def flatten_up_to(spec: Any, value: Any, owner: str = "batch") -> list[tuple[str, Any]]:
    """Flatten `value` down to the leaves of `spec`: pairs of path and leaf in `tf.nest` order.

    Where the spec has a leaf, the whole value is a leaf, even a list of numbers. Tuples and lists are interchangeable.
    Raises SpecError if the components differ. `owner` is for messages: "generator 'digits': batch 3".
    """
    return list(_walk_up_to(spec, value, "", owner))


def _walk_up_to(spec: Any, value: Any, path: str, owner: str) -> Iterator[tuple[str, Any]]:
    if not is_structure(spec):
        yield path, value
    elif isinstance(spec, Mapping):
        _check_keys(spec, value, path, owner)
        for key in _sorted_keys(spec):
            yield from _walk_up_to(spec[key], value[key], _join(path, str(key)), owner)
    else:
        _check_length(spec, value, path, owner)
        for (key, child), element in zip(_children(spec), value):
            yield from _walk_up_to(child, element, _join(path, key), owner)


def _check_keys(spec: Mapping[Any, Any], value: Any, path: str, owner: str) -> None:
    if isinstance(value, Mapping) and value.keys() == spec.keys():
        return
    where = f"{owner}: {component_name(path)}"
    expected = _listed_keys(_sorted_keys(spec))
    if not isinstance(value, Mapping):
        raise SpecError(f"{where} got {kind_of(value)}, expected a dict with the {expected}.")
    odd = {
        "lacks the": [key for key in _sorted_keys(spec) if key not in value],
        "has the unknown": [key for key in value if key not in spec],
    }
    parts = [f"{verb} {_listed_keys(keys)}" for verb, keys in odd.items() if keys]
    raise SpecError(f"{where} {' and '.join(parts)}; expected the {expected}.")


def _listed_keys(keys: list[Any]) -> str:
    return f"key{'s' if len(keys) != 1 else ''} {', '.join(map(repr, keys))}"


def _check_length(spec: Any, value: Any, path: str, owner: str) -> None:
    where = f"{owner}: {component_name(path)}"
    expected = f"a {type(spec).__name__} of {_counted(spec)}"
    if isinstance(value, Mapping) or not is_structure(value):
        raise SpecError(f"{where} got {kind_of(value)}, expected {expected}.")
    got, declared = (getattr(nest, "_fields", ()) for nest in (value, spec))
    if got and declared and got != declared:
        raise SpecError(f"{where} got the fields {', '.join(got)}, expected {', '.join(declared)}, in this order.")
    if len(value) != len(spec):
        raise SpecError(f"{where} got {_counted(value)}, expected {expected}.")


def _counted(components: Any) -> str:
    return f"{len(components)} component{'s' if len(components) != 1 else ''}"


def component_name(path: str) -> str:
    """Name the component at `path`, for messages."""
    if not path:
        return "the batch"
    return f"component {path}" if path.startswith("[") else f"component '{path}'"


def infer_spec(batch: Any, owner: str = "the first batch") -> Any:
    """Infer a spec from one batch: its structure, dtypes and shapes, with the first dimension left open.

    As in `tf.data`, a list of plain numbers or strings is one array. A list that holds arrays is a structure. Of a
    sparse component only the rank is inferred. Raises SpecError if a leaf cannot be converted to an array.

    >>> infer_spec({"image": np.zeros((32, 784), np.float32), "label": [1, 2, 3]})
    {'image': ArraySpec(float32 [?, 784], name='image'), 'label': ArraySpec(int64 [?], name='label')}
    """
    return spec_of(batch, owner, component_spec)


def component_spec(value: Any, name: str | None, where: str) -> Any:
    """Return the spec of one component of a batch, with the first dimension left open."""
    if is_composite(value):
        return as_composite(value)._checked(where)._spec(name)
    array = as_array(value, None, where)
    return ArraySpec((None, *array.shape[1:]) if array.ndim else (), array.dtype, name)


def spec_of(values: Any, owner: str, leaf_spec: Callable[[Any, str | None, str], Any]) -> Any:
    """Return the spec of a nest of values, with `leaf_spec(value, name, where)` for each."""
    paths = component_paths(values)
    named = flatten_up_to(paths, values, owner)
    return pack(paths, [leaf_spec(value, path or None, f"{owner}: {component_name(path)}") for path, value in named])


def as_leaf_spec(leaf: Any, name: str | None = None) -> Any:
    """Return the spec of one component, from one of TensorFlow or of this package. `name` is for one without a name."""
    name = getattr(leaf, "name", None) or name
    if isinstance(leaf, ArraySpec):
        return leaf if leaf.name == name else dataclasses.replace(leaf, name=name)
    return composite_spec(leaf, name) or ArraySpec(leaf.shape, leaf.dtype, name)


def with_batch_dim(spec: Any, batch_dim: int | None) -> Any:
    """Return a spec with another first dimension.

    >>> with_batch_dim({"x": ArraySpec((None, 3), np.float32)}, 8)
    {'x': ArraySpec(float32 [8, 3])}
    """
    return map_structure(lambda leaf: dataclasses.replace(leaf, shape=(batch_dim, *(leaf.shape or ())[1:])), spec)


def named_by_path(spec: Any) -> Any:
    """Return a spec whose components have their paths as names.

    >>> named_by_path(({"x": ArraySpec((None,), np.float32)},))
    ({'x': ArraySpec(float32 [?], name='[0].x')},)
    """
    return pack(spec, [dataclasses.replace(leaf, name=path) for path, leaf in flatten_with_paths(spec)])


def bytes_per_batch(spec: Any, batch_size: int) -> int | None:
    """Count the bytes of a batch of `batch_size` records. None for strings, unknown dimensions, and sparse components.

    >>> bytes_per_batch(ArraySpec((None, 784), np.float32), 32)
    100352
    """
    total = 0
    for leaf in flatten(spec):
        if leaf.shape is None or leaf.dtype.hasobject or None in leaf.shape[1:] or is_composite_spec(leaf):
            return None
        first = (batch_size if leaf.shape[0] is None else leaf.shape[0],) if leaf.shape else ()
        total += math.prod(first + leaf.shape[1:]) * leaf.dtype.itemsize
    return total


def component_paths(value: Any) -> Any:
    """Build the structure of `value` with each component (or list of plain values) replaced by its path.

    >>> component_paths(({"x": [1, 2]}, 3))
    ({'x': '[0].x'}, '[1]')
    """
    paths = _component_paths(value, "")
    _check_paths(flatten(paths))
    return paths


def _component_paths(value: Any, path: str) -> Any:
    if not is_structure(value) or is_plain_list(value):
        return path
    children = {key: _component_paths(child, _join(path, key)) for key, child in _children(value)}
    if _is_mapping(value):
        return {key: children[str(key)] for key in value}
    return type(value)(*children.values()) if is_namedtuple(value) else type(value)(children.values())
