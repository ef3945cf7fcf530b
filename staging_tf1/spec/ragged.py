"""Ragged components: rows of different lengths, in the arrays of a `tf.RaggedTensor`, without TensorFlow."""

from __future__ import annotations

import dataclasses
import itertools
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np

from staging_tf1.arguments import refuse, whole
from staging_tf1.errors import SpecError
from staging_tf1.spec.arrays import as_array, as_numpy_dtype, as_shape, describe, fits, kind_of

# Ragged dimensions of one component. A numpy array has at most 32 dimensions.
_MOST_RANKS = 31
_REBUILD = "Row k holds flat_values[row_splits[k]:row_splits[k + 1]]. RaggedValue.from_rows(rows) computes the splits."


@dataclasses.dataclass(frozen=True, eq=False)
class RaggedValue:
    """Rows of different lengths, as a `tf.RaggedTensor` holds them. `staged()` returns a `tf.RaggedTensor` for it.

    For sources and transforms that do without TensorFlow. A `tf.compat.v1.ragged.RaggedTensorValue` is staged, too.
    The arrays are checked when the batch is delivered.

    Attributes:
      flat_values: the values of all rows, one after the other: [n, ...].
      nested_row_splits: for each ragged dimension, the outermost first, where its rows begin, and where the last one
        ends: integers [rows + 1]. One array alone stands for one ragged dimension.

    >>> words = RaggedValue(np.array([3, 1, 2]), np.array([0, 2, 2, 3]))
    >>> len(words), words.to_list()
    (3, [[3, 1], [], [2]])
    """

    flat_values: Any
    nested_row_splits: Any

    def __post_init__(self) -> None:
        nested = self.nested_row_splits
        is_one = not isinstance(nested, (tuple, list)) or (nested and isinstance(nested[0], (int, np.integer)))
        object.__setattr__(self, "nested_row_splits", (nested,) if is_one else tuple(nested))

    @classmethod
    def from_rows(cls, rows: Sequence[Any], *, ragged_rank: int = 1, dtype: Any = None) -> RaggedValue:
        """Build the value from a list of rows.

        Args:
          rows: an array or list for each row. With a `ragged_rank` of 2, a list of these for each row, and so on.
          ragged_rank: how many dimensions vary in length.
          dtype: the dtype of the values. None is that of the first row that is not an empty list.

        Raises:
          SpecError: the rows differ in their dtypes, or in the dimensions after the ragged ones.
          TypeError, ValueError: an argument is invalid.

        >>> RaggedValue.from_rows([[[1, 2], [3]], []], ragged_rank=2).nested_row_splits
        (array([0, 2, 2]), array([0, 2, 3]))
        """
        caller = "RaggedValue.from_rows()"
        is_listed = hasattr(rows, "__len__") and hasattr(rows, "__iter__") and getattr(rows, "ndim", 1) != 0
        if isinstance(rows, (str, bytes)) or not is_listed:
            refuse(caller, "rows", rows, "a list with an array or list for each row")
        ragged_rank = whole(caller, "ragged_rank", ragged_rank, 1, _MOST_RANKS)
        return ragged_of_rows(rows, ragged_rank, None if dtype is None else _checked_dtype(caller, dtype), caller)

    def __len__(self) -> int:
        return len(self.nested_row_splits[0]) - 1

    def __iter__(self) -> Iterator[Any]:
        """Iterate over the rows: arrays, or `RaggedValue`s if there are more ragged dimensions."""
        outer, *inner = self.nested_row_splits
        values = RaggedValue(self.flat_values, inner) if inner else self.flat_values
        bounds = np.asarray(outer).tolist()
        return (_part(values, begin, end) for begin, end in itertools.pairwise(bounds))

    def __repr__(self) -> str:
        arrays = [np.asarray(array) for array in self._arrays]
        shape = (len(self), *[None] * (len(arrays) - 1), *arrays[0].shape[1:])
        return f"RaggedValue({describe(arrays[0].dtype, shape)}, ragged_rank={len(arrays) - 1})"

    def to_list(self) -> list[Any]:
        """Return the rows as lists."""
        return [row.to_list() if isinstance(row, RaggedValue) else np.asarray(row).tolist() for row in self]

    @property
    def _arrays(self) -> list[Any]:
        """The arrays, in the order in which TensorFlow flattens a `tf.RaggedTensor`."""
        return [self.flat_values, *self.nested_row_splits]

    def _map(self, function: Callable[[Any], Any]) -> RaggedValue:
        """Return the value of `function(array)` for each array."""
        return RaggedValue(function(self.flat_values), tuple(map(function, self.nested_row_splits)))

    def _spec(self, name: str | None) -> RaggedSpec:
        """Return the spec of a checked value, with the number of rows left open."""
        rank = len(self.nested_row_splits)
        shape = (None,) * (rank + 1) + self.flat_values.shape[1:]
        return RaggedSpec(shape, self.flat_values.dtype, rank, self.nested_row_splits[0].dtype, name)

    def _checked(self, where: str, dtype: np.dtype[Any] | None = None) -> RaggedValue:
        """Return the value in arrays that can be fed. `dtype` is for lists of numbers.

        Raises SpecError if it is malformed: TensorFlow would read the wrong rows, or past the end of the values.
        """
        flat = as_array(self.flat_values, dtype, f"{where}: flat_values")
        if not flat.ndim:
            raise SpecError(f"{where} got flat_values that are one value, expected an array [n, ...]. {_REBUILD}")
        nested = [_checked_splits(splits, where) for splits in self.nested_row_splits]
        if not nested:
            raise SpecError(f"{where} got a ragged value without row_splits, expected at least one array. {_REBUILD}")
        wide = max(nested, key=lambda splits: splits.dtype.itemsize).dtype
        for splits, inner in zip(nested, [*(len(splits) - 1 for splits in nested[1:]), len(flat)]):
            _check_ends(splits, inner, where)
        return RaggedValue(flat, tuple(splits.astype(wide, copy=False) for splits in nested))


@dataclasses.dataclass(frozen=True)
class RaggedSpec:
    """Dtype, shape and name of a ragged component, like a `tf.RaggedTensorSpec`.

    Attributes:
      shape: one entry per dimension, None where it varies. None if the rank is unknown.
      dtype: as in `ArraySpec`.
      ragged_rank: how many dimensions after the first one vary in length within a batch.
      row_splits_dtype: int64 or int32.
      name: the name of the component, or None.

    >>> RaggedSpec((None, None), np.int64, name="words")
    RaggedSpec(int64 [?, ?], ragged_rank=1, name='words')
    """

    shape: tuple[int | None, ...] | None
    dtype: np.dtype[Any]
    ragged_rank: int = 1
    row_splits_dtype: np.dtype[Any] = np.dtype(np.int64)  # noqa: RUF009 (dtypes are immutable)
    name: str | None = None

    def __post_init__(self) -> None:
        object.__setattr__(self, "dtype", as_numpy_dtype(self.dtype))
        object.__setattr__(self, "shape", as_shape(self.shape))
        object.__setattr__(self, "row_splits_dtype", as_numpy_dtype(self.row_splits_dtype))
        rank = _MOST_RANKS if self.shape is None else len(self.shape) - 1
        if rank < 1:
            raise ValueError(f"RaggedSpec got shape={self.shape}, expected at least two dimensions. Use an ArraySpec.")
        whole("RaggedSpec", "ragged_rank", self.ragged_rank, 1, rank, "dimensions of the shape after the first")
        if self.row_splits_dtype not in (np.int64, np.int32):
            raise ValueError(f"RaggedSpec got row_splits_dtype={self.row_splits_dtype}, expected int64 or int32.")

    def __repr__(self) -> str:
        named = "" if self.name is None else f", name={self.name!r}"
        return f"RaggedSpec({describe(self.dtype, self.shape)}, ragged_rank={self.ragged_rank}{named})"

    def __str__(self) -> str:
        return f"ragged {describe(self.dtype, self.shape)}"

    def conformed(self, value: Any, where: str) -> RaggedValue:
        """Return a ragged value that fits, checked. Raises SpecError if it does not."""
        checked: RaggedValue = value._checked(where, self.dtype)
        got = checked._spec(None)
        if got.ragged_rank != self.ragged_rank:
            raise SpecError(
                f"{where} got {got} (ragged_rank={got.ragged_rank}), expected {self} (ragged_rank={self.ragged_rank}). "
                "All batches of a component need the same ragged_rank: RaggedValue.from_rows(rows, ragged_rank=...)."
            )
        if got.dtype != self.dtype:
            raise SpecError(f"{where} got {got}, expected {self}. Cast its flat_values, or declare {got.dtype.name}.")
        self._check_shape(checked, where)
        return RaggedValue(checked.flat_values, tuple(self._cast(part, where) for part in checked.nested_row_splits))

    def _check_shape(self, value: RaggedValue, where: str) -> None:
        sizes = [len(value), *(_common_length(splits) for splits in value.nested_row_splits)]
        shape = (*sizes, *value.flat_values.shape[1:])
        if fits(shape, self.shape):
            return
        shown = tuple(None if size == -1 else size for size in shape)
        raise SpecError(
            f"{where} got ragged {describe(value.flat_values.dtype, shown)}, expected {self}. Declare None for a "
            "dimension that varies."
        )

    def _cast(self, splits: np.ndarray[Any, Any], where: str) -> np.ndarray[Any, Any]:
        if splits[-1] > np.iinfo(self.row_splits_dtype).max:
            raise SpecError(
                f"{where} got row_splits up to {splits[-1]}, expected {self.row_splits_dtype}. Declare "
                "row_splits_dtype=tf.int64."
            )
        return splits.astype(self.row_splits_dtype, copy=False)


def ragged_of_rows(rows: Any, ragged_rank: int, dtype: np.dtype[Any] | None, where: str) -> RaggedValue:
    """Do what `RaggedValue.from_rows` does. `where` begins the messages."""
    splits, innermost = open_rows(rows, ragged_rank, where, "Lower ragged_rank, or nest the rows.")
    if dtype is None:
        known = [row for row in innermost if not (isinstance(row, (list, tuple)) and not row)]
        dtype = as_array(known[0] if known else [], None, where).dtype
    arrays = [as_array(row, dtype, where) for row in innermost]
    for array in arrays:
        if array.dtype != dtype or not array.ndim or array.shape[1:] != arrays[0].shape[1:]:
            expected = describe(dtype, (None, *arrays[0].shape[1:]))
            raise SpecError(
                f"{where} got a row that is {describe(array.dtype, array.shape)}, expected {expected}. All rows need "
                "one dtype, and one size in the dimensions after the ragged ones."
            )
    return RaggedValue(np.concatenate(arrays) if arrays else np.empty(0, dtype), tuple(splits))


def open_rows(rows: Any, ragged_rank: int, where: str, cure: str) -> tuple[list[np.ndarray[Any, Any]], list[Any]]:
    """Open `ragged_rank` dimensions of a list of rows.

    Returns the row splits of each dimension, int64 [rows + 1], and the innermost rows. Raises SpecError, with `cure`,
    if a row has no length.
    """
    nested: list[np.ndarray[Any, Any]] = []
    for _ in range(ragged_rank):
        if nested:
            rows = [inner for row in rows for inner in row]
        splits = np.zeros(len(rows) + 1, np.int64)
        try:
            splits[1:] = np.cumsum([len(row) for row in rows], dtype=np.int64)
        except TypeError:
            odd = next(row for row in rows if not hasattr(row, "__len__") or np.ndim(row) == 0)
            raise SpecError(f"{where} got {kind_of(odd)} as a row, expected a list or array. {cure}") from None
        nested.append(splits)
    return nested, list(rows)


def _checked_dtype(caller: str, dtype: Any) -> np.dtype[Any]:
    try:
        return as_numpy_dtype(dtype)
    except Exception:
        refuse(caller, "dtype", dtype, "a dtype, such as np.int64")


def _part(values: Any, begin: int, end: int) -> Any:
    if not isinstance(values, RaggedValue):
        return values[begin:end]
    outer, *inner = values.nested_row_splits
    bounds = np.asarray(outer)[begin : end + 1]
    below = RaggedValue(values.flat_values, inner) if inner else values.flat_values
    cut = _part(below, int(bounds[0]), int(bounds[-1]))
    if isinstance(cut, RaggedValue):
        return RaggedValue(cut.flat_values, (bounds - bounds[0], *cut.nested_row_splits))
    return RaggedValue(cut, (bounds - bounds[0],))


def _checked_splits(splits: Any, where: str) -> np.ndarray[Any, Any]:
    array = as_array(splits, np.dtype(np.int64), f"{where}: row_splits")
    if array.dtype not in (np.int64, np.int32) or array.ndim != 1 or not len(array):
        got = describe(array.dtype, array.shape)
        raise SpecError(f"{where} got row_splits that are {got}, expected int64 [rows + 1]. {_REBUILD}")
    return array


def _check_ends(splits: np.ndarray[Any, Any], inner: int, where: str) -> None:
    if splits[0]:
        raise SpecError(f"{where} got row_splits that start at {splits[0]}, expected 0. {_REBUILD}")
    falls = splits[1:] < splits[:-1]
    if falls.any():
        row = int(falls.argmax())
        raise SpecError(
            f"{where} got row_splits that fall from {splits[row]} to {splits[row + 1]} at row {row}, expected "
            f"splits that never fall. {_REBUILD}"
        )
    if splits[-1] != inner:
        raise SpecError(
            f"{where} got row_splits that end at {splits[-1]}, expected {inner}, the number of values. {_REBUILD}"
        )


def _common_length(splits: np.ndarray[Any, Any]) -> int | None:
    """The length of all rows; -1 if they differ. None without rows, which have any length."""
    lengths = np.diff(splits)
    if not len(lengths):
        return None
    return int(lengths[0]) if (lengths == lengths[0]).all() else -1
