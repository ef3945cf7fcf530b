"""Checks batches against their spec, and converts them to arrays."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from staging_tf1.arrays import as_array, describe, kind_of
from staging_tf1.errors import SpecError
from staging_tf1.spec import ArraySpec, component_name, flatten, flatten_up_to, is_structure

__all__ = ["Conformer", "conform", "fits"]


class Conformer:
    """Checks many batches against one spec, like `conform`.

    A flat batch of arrays that matches the spec takes a fast path. All others go through `conform`.

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
        """Return the arrays of the batch in `tf.nest` order. Raises what `conform` raises."""
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
        # The elements of an object array must be checked one by one.
        return type(value) is np.ndarray and not objects and value.dtype == dtype and fits(value.shape, shape)


def conform(spec: Any, batch: Any, owner: str = "batch") -> list[np.ndarray[Any, Any]]:
    """Check a batch against `spec` and return its arrays in `tf.nest` order.

    Batches are converted only here. Python numbers and lists become arrays of the declared dtype. Arrays in non-native
    byte order are converted. Arrays of another dtype are rejected, because a cast costs a copy. `staging_tf1.arrays`
    lists all conversions and rejections. The leaves of `spec` have `dtype` and `shape`. `owner` is for messages:
    "generator 'digits': batch 3". Raises SpecError if the components, a dtype or a shape differ from the spec.

    >>> conform(ArraySpec((None,), np.int32), [1, 2, 3])[0].dtype
    dtype('int32')
    """
    return [
        _conform_leaf(leaf, value, path, owner)
        for leaf, (path, value) in zip(flatten(spec), flatten_up_to(spec, batch, owner))
    ]


def _conform_leaf(leaf: Any, value: Any, path: str, owner: str) -> np.ndarray[Any, Any]:
    declared = _as_array_spec(leaf)
    expected = describe(declared.dtype, declared.shape)
    if isinstance(value, Mapping):
        raise SpecError(f"{owner}: {component_name(path)} got {kind_of(value)}, expected {expected}.")
    if not (type(value) is np.ndarray and value.dtype == declared.dtype != object):
        value = as_array(value, declared.dtype, f"{owner}: {component_name(path)}")
    if value.dtype != declared.dtype:
        raise SpecError(
            f"{owner}: {component_name(path)} got {describe(value.dtype, value.shape)}, expected {expected}. "
            f"{_cast_cure(value.dtype, declared.dtype)}"
        )
    if not fits(value.shape, declared.shape):
        raise SpecError(
            f"{owner}: {component_name(path)} got {describe(value.dtype, value.shape)}, expected {expected}. Declare "
            "None for a dimension that varies between batches, or shape None if the rank varies."
        )
    array: np.ndarray[Any, Any] = value
    return array


def _cast_cure(got: np.dtype[Any], declared: np.dtype[Any]) -> str:
    if declared.hasobject:
        return f"Convert it to strings, or declare {got.name}."
    if got.hasobject:
        return "Convert the strings to numbers, or declare a string."
    name = declared.name
    target = f"np.{name}" if declared.kind in "iufc" and hasattr(np, name) else repr(name)
    return f"Cast it: array.astype({target}), or declare {got.name}."


def _as_array_spec(leaf: Any) -> ArraySpec:
    return leaf if isinstance(leaf, ArraySpec) else ArraySpec(leaf.shape, leaf.dtype)


def fits(shape: tuple[int, ...], declared: tuple[int | None, ...] | None) -> bool:
    """Whether an array of `shape` satisfies the declared shape."""
    if declared is None or shape == declared:
        return True
    return len(shape) == len(declared) and all(d is None or d == s for s, d in zip(shape, declared))
