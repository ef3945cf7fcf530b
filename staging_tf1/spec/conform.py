"""Checks batches against their spec, and converts them to arrays."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any

import numpy as np

from staging_tf1.errors import SpecError
from staging_tf1.spec import as_leaf_spec, component_name, flatten, flatten_up_to, is_structure
from staging_tf1.spec.arrays import as_array, describe, fits, kind_of
from staging_tf1.spec.composite import CompositeSpec, arrays_of, as_composite, is_composite, is_composite_spec
from staging_tf1.spec.ragged import RaggedSpec, RaggedValue, ragged_of_rows
from staging_tf1.spec.sparse import SparseSpec

_TF_SPEC = {RaggedSpec: "tf.RaggedTensorSpec", SparseSpec: "tf.SparseTensorSpec"}
_CURES = {
    RaggedSpec: "Pass a list of rows, a tf.compat.v1.ragged.RaggedTensorValue, or sources.RaggedValue.from_rows(rows).",
    SparseSpec: "Pass a tf.compat.v1.SparseTensorValue, or a sources.SparseValue.",
}


class Conformer:
    """Checks many batches against one spec, like `conform`.

    A flat batch of arrays that matches the spec takes a fast path. All others go through `conform`, whose arguments
    these are.

    >>> from staging_tf1.spec import ArraySpec
    >>> check = Conformer({"x": ArraySpec((None,), np.int32)})
    >>> check({"x": [1, 2]}, "batch 3")[0].dtype
    dtype('int32')
    """

    def __init__(self, spec: Any, equal_rows: bool = False) -> None:
        self._spec, self._equal_rows = spec, equal_rows
        leaves = list(map(as_leaf_spec, flatten(spec)))
        # The elements of an object array must be checked one by one, and so must those of a composite.
        self._leaves = [(leaf.dtype, leaf.shape, leaf.dtype == object or is_composite_spec(leaf)) for leaf in leaves]
        self._first = leaves[0] if leaves else None
        self._has_composites = any(map(is_composite_spec, leaves))
        self._keys = sorted(spec) if type(spec) is dict and not any(map(is_structure, spec.values())) else None
        self._is_flat = type(spec) in (tuple, list) and not any(map(is_structure, spec))

    def __call__(self, batch: Any, owner: str) -> list[np.ndarray[Any, Any]]:
        """Return the arrays of the batch in `tf.nest` order. Raises what `conform` raises.

        The arrays of sparse and ragged components are in the order of `tf.nest.flatten(expand_composites=True)`.
        """
        leaves = self.leaves(batch, owner)
        return [array for leaf in leaves for array in arrays_of(leaf)] if self._has_composites else leaves

    def leaves(self, batch: Any, owner: str) -> list[Any]:
        """Return what `conform` returns."""
        arrays = self._in_order(batch)
        if arrays is not None and all(map(self._is_as_declared, arrays, self._leaves)) and self._rows_fit(arrays):
            return arrays
        return conform(self._spec, batch, owner, self._equal_rows)

    def records(self, arrays: list[np.ndarray[Any, Any]]) -> int:
        """Return the number of records in the arrays of a batch: the rows of its first component."""
        if isinstance(self._first, RaggedSpec):
            return len(arrays[1]) - 1
        if isinstance(self._first, SparseSpec):
            return int(arrays[2][0])
        return len(arrays[0]) if arrays and arrays[0].ndim else 1

    def _in_order(self, batch: Any) -> list[Any] | None:
        if type(batch) is np.ndarray:
            return [batch] if not is_structure(self._spec) else None
        if self._keys is not None and type(batch) is dict and len(batch) == len(self._keys):
            return [batch.get(key) for key in self._keys]
        if self._is_flat and type(batch) is type(self._spec) and len(batch) == len(self._leaves):
            return list(batch)
        return None

    def _rows_fit(self, arrays: list[np.ndarray[Any, Any]]) -> bool:
        return not self._equal_rows or len(set(map(len, arrays))) == 1

    @staticmethod
    def _is_as_declared(value: Any, leaf: tuple[np.dtype[Any], tuple[int | None, ...] | None, bool]) -> bool:
        dtype, shape, looks_inside = leaf
        return type(value) is np.ndarray and not looks_inside and value.dtype == dtype and fits(value.shape, shape)


def conform(spec: Any, batch: Any, owner: str = "batch", equal_rows: bool = False) -> list[Any]:
    """Check a batch against `spec` and return its components in `tf.nest` order: arrays, or checked composites.

    Batches are converted only here. Python numbers and lists become arrays of the declared dtype. Arrays in non-native
    byte order are converted. Arrays of another dtype are rejected, because a cast costs a copy. `staging_tf1.arrays`
    lists all conversions and rejections. The leaves of `spec` have `dtype` and `shape`. `owner` is for messages:
    "generator 'digits': batch 3". Raises SpecError if the components, a dtype or a shape differ from the spec. If the
    spec has sparse or ragged components, all components without a fixed number of rows must have equally many; with
    `equal_rows`, all components.

    >>> from staging_tf1.spec import ArraySpec
    >>> conform(ArraySpec((None,), np.int32), [1, 2, 3])[0].dtype
    dtype('int32')
    """
    leaves, named = list(map(as_leaf_spec, flatten(spec))), flatten_up_to(spec, batch, owner)
    parts = [(leaf, value, f"{owner}: {component_name(path)}") for leaf, (path, value) in zip(leaves, named)]
    values = each_component(owner, _conform_leaf, parts)
    if equal_rows or any(map(is_composite_spec, leaves)):
        _check_rows(leaves, values, [path for path, _ in named], owner, equal_rows)
    return values


def _check_rows(leaves: list[Any], values: list[Any], paths: list[str], owner: str, in_all: bool) -> None:
    """Raise if components have different numbers of records. TensorFlow may not notice it in sparse or ragged ones."""
    counted = [
        (path, len(value))
        for leaf, value, path in zip(leaves, values, paths)
        if (in_all or leaf.shape is None or leaf.shape[:1] == (None,)) and getattr(value, "ndim", 1)
    ]
    if len({count for _, count in counted}) > 1:
        listed = ", ".join(f"{component_name(path)} has {count}" for path, count in counted)
        raise SpecError(
            f"{owner}: the components have different numbers of rows: {listed}. Give each one row for each record. If "
            "a first dimension counts something else, declare its size, or deliver the arrays of a sparse component "
            "as separate components and build the tensor in the graph."
        )


def each_component(owner: str, check: Callable[..., Any], parts: Iterable[tuple[Any, ...]]) -> list[Any]:
    """Return what `check` returns for the arguments of each component. Raise one SpecError that names all wrong ones.

    Args:
      owner: how the messages of `check` begin, without the colon.
      check: raises SpecError if its component is wrong.
      parts: its arguments, for each component.
    """
    # No errors, because their tracebacks would hold this frame.
    values: list[Any] = []
    wrong: list[str] = []
    cause = None
    for part in parts:
        try:
            values.append(check(*part))
        except SpecError as error:
            wrong.append(str(error))
            cause = cause or error.__cause__
    if len(wrong) > 1:
        listed = "".join(f"\n  {message.removeprefix(f'{owner}: ')}" for message in wrong)
        wrong = [f"{owner}: {len(wrong)} components do not fit:{listed}"]
    if wrong:
        raise SpecError(wrong[0]) from cause
    return values


def _conform_leaf(declared: Any, value: Any, where: str) -> Any:
    if is_composite_spec(declared):
        return _conform_composite(declared, value, where)
    expected = describe(declared.dtype, declared.shape)
    if isinstance(value, Mapping):
        raise SpecError(f"{where} got {kind_of(value)}, expected {expected}.")
    if is_composite(value):
        got = as_composite(value)._checked(where)._spec(None)
        raise SpecError(
            f"{where} got {got}, expected {expected}. Make it dense, or declare it as a {_TF_SPEC[type(got)]}."
        )
    if not (type(value) is np.ndarray and value.dtype == declared.dtype != object):
        value = as_array(value, declared.dtype, where)
    if value.dtype != declared.dtype:
        raise SpecError(
            f"{where} got {describe(value.dtype, value.shape)}, expected {expected}. "
            f"{_cast_cure(value.dtype, declared.dtype)}"
        )
    if not fits(value.shape, declared.shape):
        raise SpecError(
            f"{where} got {describe(value.dtype, value.shape)}, expected {expected}. Declare "
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


def _conform_composite(declared: CompositeSpec, value: Any, where: str) -> Any:
    if isinstance(value, list) and isinstance(declared, RaggedSpec):
        value = ragged_of_rows(value, declared.ragged_rank, declared.dtype, where)
    if not is_composite(value):
        raise SpecError(f"{where} got {kind_of(value)}, expected {declared}. {_CURES[type(declared)]}")
    composite = as_composite(value)
    if isinstance(composite, RaggedValue) is not isinstance(declared, RaggedSpec):
        got = composite._checked(where)._spec(None)
        raise SpecError(f"{where} got {got}, expected {declared}. Declare it as a {_TF_SPEC[type(got)]}.")
    return declared.conformed(composite, where)
