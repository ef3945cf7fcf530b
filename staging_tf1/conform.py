"""Whether a batch is what its spec declares."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from staging_tf1.arrays import as_array, describe, kind_of
from staging_tf1.errors import SpecError
from staging_tf1.spec import ArraySpec, component_name, flatten, flatten_up_to, is_structure

__all__ = ["Conformer", "conform", "fits"]


class Conformer:
    """`conform` for the many batches of one spec.

    A batch of arrays in a flat structure that is just as declared costs a look at each dtype and shape; everything
    else, a fault above all, goes the long way.

    >>> check = Conformer({"x": ArraySpec((None,), np.int32)})
    >>> check({"x": [1, 2]}, "batch 3")[0].dtype
    dtype('int32')
    """

    def __init__(self, spec: Any) -> None:
        self._spec = spec
        leaves = map(_as_array_spec, flatten(spec))
        self._leaves = [(leaf.dtype, leaf.shape, leaf.dtype == object) for leaf in leaves]
        self._keys = sorted(spec) if type(spec) is dict and not any(map(is_structure, spec.values())) else None
        self._is_flat = type(spec) in (tuple, list) and not any(map(is_structure, spec))

    def __call__(self, batch: Any, owner: str) -> list[np.ndarray[Any, Any]]:
        """The batch's arrays in `tf.nest` order; raises what `conform` raises."""
        arrays = self._in_order(batch)
        if arrays is not None and all(map(self._is_as_declared, arrays, self._leaves)):
            return arrays
        return conform(self._spec, batch, owner)

    def _in_order(self, batch: Any) -> list[Any] | None:
        if type(batch) is np.ndarray:
            return [batch] if not is_structure(self._spec) else None
        if self._keys is not None and type(batch) is dict and len(batch) == len(self._keys):
            return [batch.get(key) for key in self._keys]
        if self._is_flat and type(batch) is type(self._spec) and len(batch) == len(self._leaves):
            return list(batch)
        return None

    @staticmethod
    def _is_as_declared(value: Any, leaf: tuple[np.dtype[Any], tuple[int | None, ...] | None, bool]) -> bool:
        dtype, shape, objects = leaf
        # An array of objects has to be looked through.
        return type(value) is np.ndarray and not objects and value.dtype == dtype and fits(value.shape, shape)


def conform(spec: Any, batch: Any, owner: str = "batch") -> list[np.ndarray[Any, Any]]:
    """The batch's arrays in `tf.nest` order, checked against `spec`: the one place where a batch is converted.

    Python numbers and lists become arrays of the declared dtype. An array of another is refused: a cast costs a copy.
    Of the declared dtype in the other byte order it is converted. `staging_tf1.arrays` lists what else is converted,
    and what is refused.

    Args:
      spec: a nest of `ArraySpec`, `tf.TensorSpec` or anything with `dtype` and `shape`.
      batch: a nest of arrays or of what makes arrays.
      owner: whose batch it is, for messages: "generator 'digits': batch 3".

    Raises:
      SpecError: other components, another dtype or another shape than declared.

    >>> conform(ArraySpec((None,), np.int32), [1, 2, 3])[0].dtype
    dtype('int32')
    """
    return [
        _conform_leaf(leaf, value, path, owner)
        for leaf, (path, value) in zip(flatten(spec), flatten_up_to(spec, batch, owner))
    ]


def _conform_leaf(leaf: Any, value: Any, path: str, owner: str) -> np.ndarray[Any, Any]:
    wanted = _as_array_spec(leaf)
    if isinstance(value, Mapping):
        raise SpecError(
            f"{owner}: {component_name(path)} got {kind_of(value)}, declared {describe(wanted.dtype, wanted.shape)}."
        )
    if not (type(value) is np.ndarray and value.dtype == wanted.dtype != object):
        value = as_array(value, wanted.dtype, f"{owner}: {component_name(path)}")
    if value.dtype != wanted.dtype:
        raise SpecError(
            f"{owner}: {component_name(path)} got {describe(value.dtype, value.shape)}, declared "
            f"{describe(wanted.dtype, wanted.shape)}. {_cast_cure(value.dtype, wanted.dtype)}"
        )
    if not fits(value.shape, wanted.shape):
        raise SpecError(
            f"{owner}: {component_name(path)} got {describe(value.dtype, value.shape)}, declared "
            f"{describe(wanted.dtype, wanted.shape)}. Declare None for a dimension that changes from batch "
            "to batch, or shape None if the rank does."
        )
    array: np.ndarray[Any, Any] = value
    return array


def _cast_cure(got: np.dtype[Any], wanted: np.dtype[Any]) -> str:
    if wanted.hasobject:
        return f"Make strings of it, or declare {got.name}."
    if got.hasobject:
        return "Make numbers of the strings, or declare a string."
    known = f"np.{wanted.name}" if wanted.kind in "iufc" and hasattr(np, wanted.name) else repr(wanted.name)
    return f"Cast it: array.astype({known}), or declare {got.name}."


def _as_array_spec(leaf: Any) -> ArraySpec:
    return leaf if isinstance(leaf, ArraySpec) else ArraySpec(leaf.shape, leaf.dtype)


def fits(shape: tuple[int, ...], wanted: tuple[int | None, ...] | None) -> bool:
    """Whether an array of `shape` satisfies the declared shape `wanted`."""
    if wanted is None or shape == wanted:
        return True
    return len(shape) == len(wanted) and all(w is None or w == s for s, w in zip(shape, wanted))
