"""The specs of what is staged: those of the values, with the shapes of `spec=` and the dtypes of `cast=`.

All of them are known before any op is made, so a refused call adds nothing to the graph.
"""

from __future__ import annotations

import dataclasses
import math
import numbers
from collections.abc import Mapping
from typing import Any

import numpy as np

from staging_tf1._tf import tf
from staging_tf1.arguments import shown
from staging_tf1.errors import SpecError
from staging_tf1.sources import Source, StreamSource
from staging_tf1.spec import ArraySpec, describe, flatten, flatten_with_paths, map_structure, pack
from staging_tf1.spec.arrays import as_numpy_dtype
from staging_tf1.spec.composite import composite_spec, is_composite_spec
from staging_tf1.spec.ragged import RaggedSpec
from staging_tf1.spec.sparse import SparseSpec

# A missing component in the table of conflicts.
_ABSENT = "-"


def of_tensors(values: Any) -> Any:
    """Return the specs of a nest of tensors, variables and values that convert to tensors."""
    return map_structure(_of_value, values)


def of_source(source: Source | StreamSource, spec: Any) -> Any:
    """Return the specs of a source's batches as the graph sees them: parsed, if the graph parses them."""
    if source.features is None:
        return map_structure(as_type_spec, spec)
    with tf.Graph().as_default():  # not the caller's: parse_example makes ops
        serialized = tf.placeholder(tf.string, flatten(spec)[0].shape)
        return map_structure(_of_value, tf.io.parse_example(serialized, source.features))


def as_type_spec(leaf: Any) -> Any:
    dtype = as_tf_dtype(leaf.dtype)
    if isinstance(leaf, SparseSpec):
        return tf.SparseTensorSpec(leaf.shape, dtype)
    if isinstance(leaf, RaggedSpec):
        return tf.RaggedTensorSpec(leaf.shape, dtype, leaf.ragged_rank, as_tf_dtype(leaf.row_splits_dtype))
    return tf.TensorSpec(leaf.shape, dtype)


def as_tf_dtype(dtype: Any) -> Any:
    """Convert a numpy dtype to TensorFlow's; `object` is strings.

    Raises:
      SpecError: the installed TensorFlow lacks the dtype.
    """
    wanted = as_numpy_dtype(dtype)
    if wanted.hasobject:
        return tf.string
    try:
        return tf.as_dtype(wanted)
    except TypeError:
        raise SpecError(
            f"TensorFlow {tf.__version__} has no tensors of dtype {wanted}. Declare another dtype and convert the "
            "component to it, for example array.astype(np.float32)."
        ) from None


def can_be_split(dtype: np.dtype[Any]) -> bool:
    """Whether the kernels of `enqueue_many` support the dtype: of ml_dtypes only bfloat16, no qint16 and no quint16."""
    if dtype.names is not None:
        return dtype.itemsize != 2
    return dtype.type.__module__ != "ml_dtypes" or dtype.name == "bfloat16"


def element_bytes(components: Any, batch_size: int | None) -> int | None:
    """Return the bytes of one element; None if the specs do not determine it.

    Args:
      components: a nest of specs.
      batch_size: the maximum of an open first dimension; None if unknown.
    """
    sizes = [_bytes(leaf, batch_size) for leaf in tf.nest.flatten(components)]
    return None if None in sizes else sum(size for size in sizes if size is not None)


def narrowed(spec: Any, declared: Any) -> Any:
    """Return a source's spec with the sizes that `declared` adds to its sparse and ragged components.

    No op can check these sizes, so the check of each batch does. Conflicts are left to `with_declared`.
    """
    if declared is None or not any(map(is_composite_spec, flatten(spec))):
        return spec
    wanted = dict(flatten_with_paths(declared))
    return pack(spec, [_narrowed(leaf, wanted.get(path)) for path, leaf in flatten_with_paths(spec)])


def _narrowed(leaf: Any, declared: Any) -> Any:
    want = composite_spec(declared) if is_composite_spec(leaf) else None
    if want is None or None in (leaf.shape, want.shape) or len(leaf.shape) != len(want.shape or ()):
        return leaf
    sizes = zip(leaf.shape, want.shape or ())
    return dataclasses.replace(leaf, shape=tuple(wanted if size is None else size for size, wanted in sizes))


def is_dense(spec: Any) -> bool:
    return isinstance(spec, tf.TensorSpec)


def _bytes(spec: Any, batch_size: int | None) -> int | None:
    if not is_dense(spec) or spec.shape.rank is None or spec.dtype in (tf.string, tf.resource, tf.variant):
        return None
    dims = spec.shape.as_list()
    if dims and dims[0] is None:
        dims[0] = batch_size
    return None if None in dims else math.prod(dims) * int(spec.dtype.size)


def castable(dtype: Any) -> bool:
    return bool(dtype.is_floating or dtype.is_integer or dtype.is_bool or dtype.is_complex)


def _of_value(leaf: Any) -> Any:
    if isinstance(leaf, tf.Variable):
        return tf.TensorSpec(leaf.shape, leaf.dtype.base_dtype)
    if not tf.is_tensor(leaf):
        if tf.nest.is_nested(leaf):  # an attrs class
            return tf.nest.map_structure(_of_value, leaf)
        with tf.Graph().as_default():
            leaf = tf.convert_to_tensor(leaf)
    if isinstance(leaf, tf.Tensor):
        return tf.TensorSpec(leaf.shape, leaf.dtype.base_dtype)
    return tf.type_spec_from_value(leaf)


def with_declared(components: Any, spec: Any, caller: str) -> Any:
    """Return the specs of the values, with the shapes that `spec` declares.

    Args:
      components: a nest of specs, those of the values.
      spec: a nest of `tf.TensorSpec`, `ArraySpec`, `tf.SparseTensorSpec` or `tf.RaggedTensorSpec`; None declares
        nothing.
      caller: the call, as messages name it.

    Raises:
      TypeError: `spec` holds something else.
      SpecError: the values do not fit `spec`; a table lists all components.
    """
    if spec is None:
        return components
    got = dict(flatten_with_paths(components))
    declared = {path: _checked(leaf, path, caller) for path, leaf in flatten_with_paths(spec)}
    rows = [
        (path or "(the only one)", _shown(got.get(path)), _shown(declared.get(path)), _conflict(got, declared, path))
        for path in [*got, *(path for path in declared if path not in got)]
    ]
    if any(row[-1] for row in rows):
        raise SpecError(
            f"{caller} got values that do not match spec=:\n{_table(rows)}\n"
            f"Declare the values as they are, or convert them first (map, tf.cast); staged(cast=) stages a component "
            f"in another dtype."
        )
    return pack(components, [_merged(leaf, declared[path]) for path, leaf in got.items()])


def _checked(leaf: Any, path: str, caller: str) -> Any:
    if isinstance(leaf, (ArraySpec, RaggedSpec, SparseSpec)):
        return as_type_spec(leaf)
    if not isinstance(leaf, tf.TypeSpec):
        raise TypeError(
            f"{caller} got spec= with {shown(leaf)}{f' as component {path!r}' if path else ''}, expected a nest of "
            f"tf.TensorSpec, such as tf.TensorSpec([None, 784], tf.float32)."
        )
    return leaf


def _conflict(got: dict[str, Any], declared: dict[str, Any], path: str) -> str:
    if path not in declared:
        return "not declared"
    if path not in got:
        return "missing"
    have, want = got[path], declared[path]
    if type(have) is not type(want):
        return "kind"
    words = []
    if getattr(have, "dtype", None) != getattr(want, "dtype", None):
        words.append("dtype")
    if hasattr(have, "shape") and not tf.TensorShape(have.shape).is_compatible_with(want.shape):
        words.append("shape")
    if not words and not is_dense(have) and not want.is_compatible_with(have):
        words.append("kind")
    return " and ".join(words)


def _merged(have: Any, want: Any) -> Any:
    return tf.TensorSpec(have.shape.merge_with(want.shape), have.dtype) if is_dense(have) else have


def _shown(spec: Any) -> str:
    if spec is None:
        return _ABSENT
    if not hasattr(spec, "dtype") or not hasattr(spec, "shape"):
        return type(spec).__name__
    kind = "" if is_dense(spec) else f"{type(spec).__name__.removesuffix('Spec')} "
    return kind + describe(spec.dtype, spec.shape)


def _table(rows: list[tuple[str, str, str, str]]) -> str:
    lines = [("component", "got", "declared", "conflict"), *rows]
    widths = [max(len(line[column]) for line in lines) for column in range(4)]
    return "\n".join(
        "  " + "  ".join(cell.ljust(width) for cell, width in zip(line, widths)).rstrip() for line in lines
    )


def with_casts(components: Any, cast: Any, caller: str) -> Any:
    """Return the specs with the dtypes that `cast` names.

    Args:
      components: a nest of specs.
      cast: a dtype for all components, or a dict from component paths to dtypes; None changes nothing.
      caller: the call, as messages name it.

    Raises:
      TypeError: `cast` has something that is not a dtype, or a dtype that nothing can be cast to.
      SpecError: `cast` names an unknown component, or one that cannot be cast.
    """
    if cast is None:
        return components
    specs = dict(flatten_with_paths(components))
    if isinstance(cast, Mapping):
        dtypes = {path: _dtype(dtype, f"cast={{{path!r}: {shown(dtype)}}}", caller) for path, dtype in cast.items()}
    else:
        dtypes = dict.fromkeys(specs, _dtype(cast, f"cast={shown(cast)}", caller))
    for path, dtype in dtypes.items():
        if path not in specs:
            raise SpecError(f"{caller}: cast= names unknown component {shown(path)}. {_listed(specs)}")
        specs[path] = _cast_spec(specs[path], dtype, f"{caller}: component {path!r}")
    return pack(components, specs.values())


def _dtype(dtype: Any, shown: str, caller: str) -> Any:
    expected = "expected a dtype of numbers, such as tf.float16"
    try:
        # tf.as_dtype also takes enum numbers: True and 1 are float32.
        if dtype is None or isinstance(dtype, (numbers.Number, np.generic, np.ndarray)):
            raise TypeError
        converted = tf.as_dtype(dtype).base_dtype
    except Exception:
        raise TypeError(f"{caller} got {shown}, {expected}.") from None
    if not castable(converted):
        raise TypeError(f"{caller} got {shown}, {expected}.")
    return converted


def _listed(specs: Mapping[str, Any]) -> str:
    if list(specs) == [""]:
        return "There is one component, and it has no name: give its dtype alone, as in cast=tf.float16."
    return f"The components are {', '.join(map(repr, specs))}."


def _cast_spec(spec: Any, dtype: Any, component: str) -> Any:
    had = getattr(spec, "dtype", None)
    if had is None or not castable(had):
        raise SpecError(
            f"{component} is {'not a tensor' if had is None else f'of dtype {had.name}'} and cannot be cast to "
            f"{dtype.name}. Name only components that hold numbers in cast=."
        )
    if is_dense(spec):
        return tf.TensorSpec(spec.shape, dtype)
    if isinstance(spec, tf.SparseTensorSpec):
        return tf.SparseTensorSpec(spec.shape, dtype)
    if isinstance(spec, tf.RaggedTensorSpec):
        return tf.RaggedTensorSpec(spec.shape, dtype, spec.ragged_rank, spec.row_splits_dtype)
    raise SpecError(f"{component} is a {type(spec).__name__}, which cannot be cast. Leave it out of cast=.")
