"""Batches of records whose sizes differ, which keep the size of each record."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from staging_tf1 import arguments
from staging_tf1.arguments import as_int
from staging_tf1.errors import SpecError
from staging_tf1.sources.aligned import aligned_empty
from staging_tf1.sources.stacking import no_dtype
from staging_tf1.spec import ArraySpec, component_name, component_paths, flatten_up_to, pack
from staging_tf1.spec.arrays import as_array, describe, is_plain
from staging_tf1.spec.composite import as_composite, is_composite
from staging_tf1.spec.ragged import RaggedSpec, RaggedValue, open_rows

_CALLER = "ragged()"
# A numpy array has at most 32 dimensions, one of which is the batch.
_MOST = 31
_NAME = "Name the components that vary, and how many dimensions: ragged({'words': 1})."


class RaggedRows:
    """Puts records of different sizes into one batch as they are. See `RecordSource.ragged`."""

    # For messages.
    method, result = _CALLER, "ragged"

    def __init__(self, rank: Any) -> None:
        for dims in rank.values() if isinstance(rank, Mapping) else (rank,):
            if as_int(dims) is None:
                arguments.refuse(_CALLER, "rank", rank, "how many dimensions vary, or a dict of this by component")
            arguments.whole(_CALLER, "rank", dims, 1, _MOST)
        self.rank = rank

    def __str__(self) -> str:
        return f"ragged(rank={self.rank!r})"

    def planned(self, first: Any, where: str) -> RaggedPlan:
        """Return how to lay out records like `first`. Raises ValueError if `rank` does not fit them."""
        like = component_paths(first)
        named = flatten_up_to(like, first, where)
        paths = [path for path, _ in named]
        unknown = [key for key in self.rank if key not in paths] if isinstance(self.rank, Mapping) else []
        if unknown:
            raise ValueError(f"{_CALLER} names unknown component {unknown[0]!r}, expected one of {paths}.")
        return RaggedPlan(like, [self._component(path, value, where) for path, value in named])

    def _component(self, path: str, value: Any, where: str) -> _Component:
        if isinstance(self.rank, Mapping):
            rank = int(self.rank.get(path, 0))
        else:
            rank = 0 if _is_single(value) else int(self.rank)
        where = f"{where}: {component_name(path)}"
        values, opened = _values_of(value, rank, where)
        if values.ndim < rank - opened:
            raise SpecError(f"{where} has fewer dimensions than the {rank} that {self} makes ragged. {_NAME}")
        return _Component(path, values.dtype, rank, values.shape[rank - opened :])


class _Component(NamedTuple):
    path: str
    dtype: np.dtype[Any]
    # Dimensions of a record that vary; 0 for a component whose records have one size.
    rank: int
    # The sizes of the other dimensions.
    inner: tuple[int, ...]

    def spec(self, batch_dim: int | None) -> ArraySpec | RaggedSpec:
        """Return the spec in a batch."""
        shape = (batch_dim, *[None] * self.rank, *self.inner)
        if not self.rank:
            return ArraySpec(shape, self.dtype, self.path or None)
        return RaggedSpec(shape, self.dtype, self.rank, name=self.path or None)

    def opened(self, value: Any, where: str) -> tuple[list[np.ndarray[Any, Any]], list[np.ndarray[Any, Any]]]:
        """Return the lengths in each ragged dimension of a record, and its innermost rows. Raises SpecError."""
        where = f"{where}: {component_name(self.path)}"
        splits, rows = _opened(value, self.rank, where, self.dtype)
        arrays = [row if is_plain(row) else as_array(row, self.dtype, where) for row in rows]
        varies = self.rank > 0
        for array in arrays:
            if array.dtype != self.dtype or array.ndim < varies or array.shape[varies:] != self.inner:
                expected = describe(self.dtype, (*[None] * varies, *self.inner))
                raise SpecError(
                    f"{where} has {describe(array.dtype, array.shape)}, but {expected} in the first record. Convert or "
                    f"crop it; if another dimension varies too, say so: ragged({{{self.path!r}: 2}})."
                )
        return list(map(np.diff, splits)), arrays


class RaggedPlan:
    """How to lay out records of one structure."""

    def __init__(self, like: Any, components: Sequence[_Component]) -> None:
        self._like, self._components = like, components

    def spec(self, batch_dim: int | None) -> Any:
        """Return the spec of batches."""
        return pack(self._like, [component.spec(batch_dim) for component in self._components])

    def stack(self, records: Sequence[tuple[int, Any]], describe_record: Callable[[int], str]) -> Any:
        """Lay out pairs of number and record. Raises SpecError for a record that does not fit."""
        columns: list[list[Any]] = [[] for _ in self._components]
        for number, record in records:
            where = describe_record(number)
            named = flatten_up_to(self._like, record, where)
            for component, column, (_, value) in zip(self._components, columns, named):
                column.append(component.opened(value, where))
        return pack(self._like, [_joined(component, column) for component, column in zip(self._components, columns)])


def _is_single(value: Any) -> bool:
    return not is_composite(value) and not isinstance(value, (list, tuple)) and np.ndim(value) == 0


def _values_of(value: Any, rank: int, where: str) -> tuple[np.ndarray[Any, Any], int]:
    """Return an array that has the dtype of a record's values, and how many dimensions it lacks. Raises SpecError."""
    ragged = as_composite(value) if is_composite(value) else None
    if isinstance(ragged, RaggedValue):
        opened = len(ragged.nested_row_splits)
        if rank <= opened:
            raise SpecError(f"{where} is ragged itself: {opened + 1} dimensions vary, expected at most {rank}. {_NAME}")
        return ragged._checked(where).flat_values, opened
    if ragged is not None or isinstance(value, np.ndarray):
        return as_array(value, None, where), 0
    _, rows = _opened(value, rank, where, None)
    known = [row for row in rows if not (isinstance(row, (list, tuple)) and not row)]
    if not known:
        raise no_dtype(where)
    return as_array(known[0], None, where), max(rank - 1, 0)


def _opened(
    value: Any, rank: int, where: str, dtype: np.dtype[Any] | None
) -> tuple[list[np.ndarray[Any, Any]], list[Any]]:
    """Open the ragged dimensions of a record. Returns the row splits of each, and the innermost rows.

    `dtype` is for the numbers of a ragged value that has a list of them. Raises SpecError if a ragged value is
    malformed: its splits would drop values, or give other rows.
    """
    if rank > 1 and is_composite(value):
        value = as_composite(value)._checked(where, dtype)
    return open_rows([value], rank, where, f"In ragged(), its rank is {rank}. {_NAME}")


def _joined(component: _Component, column: Sequence[tuple[list[Any], list[Any]]]) -> Any:
    """Put the rows of all records into one array."""
    arrays = [array for _, rows in column for array in rows]
    if not component.rank:
        stacked = aligned_empty((len(arrays), *component.inner), component.dtype)
        for row, array in enumerate(arrays):
            stacked[row] = array if array.ndim else array[()]
        return stacked
    flat = aligned_empty((sum(map(len, arrays)), *component.inner), component.dtype)
    if arrays:
        np.concatenate(arrays, out=flat)
    counts = [np.concatenate(level) for level in zip(*(lengths for lengths, _ in column))]
    splits = [np.append(0, np.cumsum(level)) for level in counts]
    return RaggedValue(flat, tuple(splits or [np.zeros(1, np.int64)] * component.rank))
