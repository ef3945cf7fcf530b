"""Sparse components: the values that are present and their indices, in the arrays of a `tf.SparseTensor`."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any

import numpy as np

from staging_tf1.errors import SpecError
from staging_tf1.spec.arrays import as_array, as_numpy_dtype, as_shape, describe, fits

_SORT = "Sort indices and values by row, then by column: order = np.lexsort(indices.T[::-1])."


@dataclasses.dataclass(frozen=True, eq=False)
class SparseValue:
    """The values of a matrix or array that are present. `staged()` returns a `tf.SparseTensor` for it.

    For sources and transforms that do without TensorFlow. A `tf.compat.v1.SparseTensorValue` is staged, too. The arrays
    are checked when the batch is delivered.

    Attributes:
      indices: the index of each value, in order and without repetition: int64 [n, rank].
      values: the values: [n].
      dense_shape: the shape of the whole array: int64 [rank]. The first dimension counts the records of the batch.

    >>> len(SparseValue(indices=[[0, 2], [1, 0]], values=[1.0, 0.5], dense_shape=[2, 3]))
    2
    """

    indices: Any
    values: Any
    dense_shape: Any

    def __len__(self) -> int:
        return int(self.dense_shape[0])

    def __repr__(self) -> str:
        values, shape = np.asarray(self.values), np.asarray(self.dense_shape).tolist()
        return f"SparseValue({describe(values.dtype, shape)}, {values.size} present)"

    @property
    def _arrays(self) -> list[Any]:
        """The arrays, in the order in which TensorFlow flattens a `tf.SparseTensor`."""
        return [self.indices, self.values, self.dense_shape]

    def _map(self, function: Callable[[Any], Any]) -> SparseValue:
        """Return the value of `function(array)` for each array."""
        return SparseValue(*map(function, self._arrays))

    def _spec(self, name: str | None) -> SparseSpec:
        """Return the spec of a checked value. Only its rank is known, because the shape is data."""
        return SparseSpec((None,) * len(self.dense_shape), self.values.dtype, name)

    def _checked(self, where: str, dtype: np.dtype[Any] | None = None) -> SparseValue:
        """Return the value in arrays that can be fed. `dtype` is for lists of numbers.

        Raises SpecError if it is malformed. TensorFlow does not check: with such values many ops compute wrong results.
        """
        indices = _integers(self.indices, where, "indices", "[n, rank]", 2)
        values = as_array(self.values, dtype, f"{where}: values")
        shape = _integers(self.dense_shape, where, "dense_shape", "[rank]", 1)
        if values.shape != indices.shape[:1]:
            raise SpecError(
                f"{where} got {len(indices)} indices and values that are {describe(values.dtype, values.shape)}, "
                "expected one value for each row of indices."
            )
        if not len(shape) or (shape < 0).any():
            raise SpecError(
                f"{where} got dense_shape={shape.tolist()}, expected a size of 0 or more for each dimension, the "
                "records of the batch first."
            )
        if indices.shape[1] != len(shape):
            raise SpecError(
                f"{where} got indices {list(indices.shape)} and dense_shape={shape.tolist()}, expected indices "
                f"[{len(indices)}, {len(shape)}]: one column for each dimension."
            )
        _check_indices(indices, shape, where)
        return SparseValue(indices, values, shape)


@dataclasses.dataclass(frozen=True)
class SparseSpec:
    """Dtype, shape and name of a sparse component, like a `tf.SparseTensorSpec`.

    Attributes:
      shape: one entry per dimension, None where it varies between batches. None if the rank varies.
      dtype: as in `ArraySpec`.
      name: the name of the component, or None.

    >>> SparseSpec((None, 10000), np.float32, "words")
    SparseSpec(float32 [?, 10000], name='words')
    """

    shape: tuple[int | None, ...] | None
    dtype: np.dtype[Any]
    name: str | None = None

    def __post_init__(self) -> None:
        object.__setattr__(self, "dtype", as_numpy_dtype(self.dtype))
        object.__setattr__(self, "shape", as_shape(self.shape))
        if self.shape == ():
            raise ValueError("SparseSpec got shape=(), expected at least one dimension. Use an ArraySpec.")

    def __repr__(self) -> str:
        named = "" if self.name is None else f", name={self.name!r}"
        return f"SparseSpec({describe(self.dtype, self.shape)}{named})"

    def __str__(self) -> str:
        return f"sparse {describe(self.dtype, self.shape)}"

    def conformed(self, value: Any, where: str) -> SparseValue:
        """Return a sparse value that fits, checked. Raises SpecError if it does not."""
        checked: SparseValue = value._checked(where, self.dtype)
        dtype, shape = checked.values.dtype, tuple(checked.dense_shape.tolist())
        if dtype != self.dtype:
            raise SpecError(
                f"{where} got sparse {describe(dtype, shape)}, expected {self}. Cast its values, or declare "
                f"{dtype.name}."
            )
        if fits(shape, self.shape):
            return checked
        raise SpecError(
            f"{where} got dense_shape={list(shape)}, expected {self}. Declare None for a dimension that varies between "
            "batches, or give all batches one shape."
        )


def _integers(value: Any, where: str, name: str, expected: str, rank: int) -> np.ndarray[Any, Any]:
    array = as_array(value, np.dtype(np.int64), f"{where}: {name}")
    if array.dtype.kind not in "iu" or array.ndim != rank or (array.dtype == np.uint64 and array.size):
        got = describe(array.dtype, array.shape)
        raise SpecError(f"{where} got {name} as {got}, expected int64 {expected}. Cast: {name}.astype(np.int64).")
    return array.astype(np.int64, copy=False)


def _check_indices(indices: np.ndarray[Any, Any], shape: np.ndarray[Any, Any], where: str) -> None:
    outside = ((indices < 0) | (indices >= shape)).any(axis=1)
    if outside.any():
        row = int(outside.argmax())
        raise SpecError(
            f"{where} got index {indices[row].tolist()} for value {row}, expected an index within "
            f"dense_shape={shape.tolist()}. Raise dense_shape, or drop the value."
        )
    steps = np.diff(indices, axis=0)
    # The first column in which a row differs from the one before decides their order.
    deciding = np.take_along_axis(steps, (steps != 0).argmax(axis=1)[:, None], axis=1)[:, 0]
    wrong = deciding <= 0
    if wrong.any():
        row = int(wrong.argmax())
        before, after = indices[row].tolist(), indices[row + 1].tolist()
        problem = f"index {after} twice" if before == after else f"index {after} after {before}"
        cure = "Add up or drop the repeated values." if before == after else _SORT
        raise SpecError(f"{where} got {problem}, expected indices in ascending order without repetition. {cure}")
