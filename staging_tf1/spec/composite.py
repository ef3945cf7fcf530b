"""Composites: the sparse and ragged values that a batch may hold, of TensorFlow, scipy and this package.

This module recognizes them by the names and attributes of their classes, without importing their libraries.
"""

from __future__ import annotations

import dataclasses
import functools
from typing import Any

import numpy as np

from staging_tf1.spec.arrays import is_named
from staging_tf1.spec.ragged import RaggedSpec, RaggedValue
from staging_tf1.spec.sparse import SparseSpec, SparseValue

Composite = RaggedValue | SparseValue
CompositeSpec = RaggedSpec | SparseSpec


def is_composite(value: Any) -> bool:
    """Whether `value` is sparse or ragged, such as a `tf.SparseTensorValue`."""
    return bool(_kind_of(value))


def as_composite(value: Any) -> Composite:
    """Return a sparse or ragged value as one of this package. Its arrays are neither converted nor checked."""
    kind = _kind_of(value)
    if kind == "ragged":
        return value if isinstance(value, RaggedValue) else RaggedValue(value.flat_values, value.nested_row_splits)
    if kind == "scipy":
        return _of_scipy(value)
    return value if isinstance(value, SparseValue) else SparseValue(value.indices, value.values, value.dense_shape)


def arrays_of(value: Any) -> list[Any]:
    """Return the arrays of a checked component, in the order in which TensorFlow flattens it."""
    return value._arrays if isinstance(value, (RaggedValue, SparseValue)) else [value]


def is_composite_spec(leaf: Any) -> bool:
    """Whether a leaf of a spec is that of a sparse or ragged component."""
    return isinstance(leaf, (RaggedSpec, SparseSpec))


def composite_spec(leaf: Any, name: str | None = None) -> CompositeSpec | None:
    """Return the spec of a sparse or ragged component, from one of TensorFlow or of this package.

    Returns None for the spec of an array. Raises ValueError for a `tf.RaggedTensorSpec` without ragged dimensions.
    """
    if isinstance(leaf, (RaggedSpec, SparseSpec)):
        return dataclasses.replace(leaf, name=leaf.name or name)
    kind = type(leaf).__name__
    if kind == "SparseTensorSpec":
        return SparseSpec(leaf.shape, leaf.dtype, name)
    if kind == "RaggedTensorSpec":
        return RaggedSpec(leaf.shape, leaf.dtype, leaf.ragged_rank, leaf.row_splits_dtype, name)
    return None


def _kind_of(value: Any) -> str:
    cls: Any = type(value)
    return _kind(cls)


@functools.lru_cache(maxsize=1024)
def _kind(cls: type) -> str:
    """Whether the instances of a class are "ragged", "sparse" or "scipy"; empty for all others."""
    if issubclass(cls, RaggedValue) or (hasattr(cls, "flat_values") and hasattr(cls, "nested_row_splits")):
        return "ragged"
    fields = getattr(cls, "_fields", None)
    if issubclass(cls, tuple):
        return "sparse" if fields == ("indices", "values", "dense_shape") else ""
    if issubclass(cls, SparseValue) or is_named(cls, "tensorflow.SparseTensor"):
        return "sparse"
    is_matrix = is_named(cls, "scipy.spmatrix", "scipy.sparray", "scipy._spbase")
    return "scipy" if is_matrix and hasattr(cls, "tocsr") else ""


def _of_scipy(matrix: Any) -> SparseValue:
    rows = matrix.tocsr()
    if not rows.has_canonical_format:  # scipy adds up repeated values in place
        rows = rows.copy()
        rows.sum_duplicates()
    ordered = rows.tocoo()
    return SparseValue(np.stack([ordered.row, ordered.col], axis=1), ordered.data, np.array(ordered.shape))
