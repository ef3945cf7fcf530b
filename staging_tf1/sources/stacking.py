"""Stacks single records into batches, and divides batches into records."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import numpy as np

from staging_tf1.errors import SpecError
from staging_tf1.sources.aligned import aligned_copy, aligned_empty
from staging_tf1.spec import (
    ArraySpec,
    component_name,
    component_paths,
    flatten,
    flatten_up_to,
    flatten_with_paths,
    is_structure,
    pack,
    spec_of,
)
from staging_tf1.spec.arrays import as_array, checked_array, describe, is_plain, kind_of
from staging_tf1.spec.composite import as_composite, is_composite

# The dtypes to which numpy converts Python numbers without loss.
_EXACT = {int: np.dtype(np.int64), float: np.dtype(np.float64), bool: np.dtype(np.bool_)}


def record_specs(record: Any, where: str) -> Any:
    """Return the spec of batches of records like `record`, of any size.

    A list of plain values is one array, as in `tf.data`.
    """

    def leaf_spec(value: Any, name: str | None, where: str) -> ArraySpec:
        array = as_array(value, None, where)
        return ArraySpec((None, *array.shape), array.dtype, name)

    return spec_of(record, where, leaf_spec)


def refuse_empty_list(value: Any, where: str) -> None:
    """Raise SpecError for an empty list in the first record: in a later one it may have values of another dtype."""
    if isinstance(value, (list, tuple)) and not np.size(value):
        raise no_dtype(where)


def no_dtype(where: str) -> SpecError:
    """Return the error for an empty list in the first record."""
    return SpecError(
        f"{where} is an empty list, which has no dtype, and the first record sets the dtypes. Return arrays, such as "
        f"np.array(words, np.int64)."
    )


def record_arrays(like: Any, specs: Sequence[Any], record: Any, where: str) -> list[tuple[str, Any]]:
    """Return the components of one record as arrays with the dtypes of `specs`, with their paths.

    Raises SpecError if the structure or a dtype differs. The shapes are not checked.
    """
    return [
        (path, leaf if is_plain(leaf) else as_array(leaf, spec.dtype, f"{where}: {component_name(path)}"))
        for spec, (path, leaf) in zip(specs, flatten_up_to(like, record, where))
    ]


def stack_records(
    specs: Any,
    records: Iterable[tuple[int, Any]],
    count: int,
    describe_record: Callable[[int], str],
    maker: str = "the dataset",
) -> Any:
    """Stack `count` pairs of number and record into new aligned arrays. Each is copied before the next one is taken.

    `specs` is a nest of `ArraySpec`, that of a batch. For messages, `describe_record` names a record by its number, and
    `maker` is what returned it. Raises SpecError if a record differs.
    """
    leaves = flatten(specs)
    batch = [aligned_empty((count, *_fixed(spec)), spec.dtype) for spec in leaves]
    for row, (number, record) in enumerate(records):
        where = f"{describe_record(number)}: {maker}"
        for target, spec, (path, array) in zip(batch, leaves, record_arrays(specs, leaves, record, where)):
            if array.shape != _fixed(spec) or array.dtype != spec.dtype:
                raise SpecError(
                    f"{where} returned {f'component {path!r} as ' if path else ''}"
                    f"{describe(array.dtype, array.shape)}, but {describe(spec.dtype, _fixed(spec))} for the first "
                    "record. All records must have the same dtype and shape: pad or crop them."
                )
            target[row] = array if array.ndim else array[()]
    return pack(specs, batch)


def _fixed(spec: ArraySpec) -> tuple[int, ...]:
    return tuple(dim or 0 for dim in (spec.shape or ())[1:])


def stack_columns(specs: Any, records: Sequence[Any]) -> Any | None:
    """Stack records that need no conversion, component by component.

    `stack_records` checks and converts each value of each record on its own, which takes ten times as long as copying
    it. Here all values of a component are copied at once, if they have one type, and the declared dtype and shape.
    Returns None if a record needs a conversion or does not fit: `stack_records` then converts it, or raises.
    """
    columns = _columns(specs, records)
    if columns is None:
        return None
    stacked = []
    for spec, column in zip(flatten(specs), columns):
        array = _stacked(spec, column)
        if array is None:
            return None
        stacked.append(array)
    return pack(specs, stacked)


def _columns(specs: Any, records: Sequence[Any]) -> list[list[Any]] | None:
    """Return the values of each component, in the order of `flatten(specs)`. None for nested or differing records."""
    if not is_structure(specs):
        return [list(records)]
    kind = type(specs)
    if any(type(record) is not kind or len(record) != len(specs) for record in records):
        return None
    if kind is dict:
        keys = sorted(specs)
        if any(map(is_structure, specs.values())) or any(key not in record for record in records for key in keys):
            return None
        return [[record[key] for record in records] for key in keys]
    if not isinstance(specs, (tuple, list)) or any(map(is_structure, specs)):
        return None
    return list(map(list, zip(*records)))


def _stacked(spec: ArraySpec, column: list[Any]) -> np.ndarray[Any, Any] | None:
    kind = type(column[0]) if column else None
    if kind is None or any(type(value) is not kind for value in column):
        return None
    shape = (spec.shape or ())[1:]
    if kind is np.ndarray:
        return _of_arrays(spec.dtype, shape, column)
    if kind.__module__ == "torch" and kind.__name__ == "Tensor":
        return _of_tensors(spec.dtype, shape, column)
    # np.dtype takes any class: unknown ones stand for objects.
    exact = np.dtype(kind) if issubclass(kind, np.generic) else _EXACT.get(kind)
    # A dtype equals None if it is float64: numpy reads None as its default dtype.
    if shape or exact is None or exact != spec.dtype:
        return None
    try:
        return aligned_copy(np.array(column, spec.dtype))
    except OverflowError:  # a Python integer beyond int64
        return None


def _of_arrays(dtype: np.dtype[Any], shape: tuple[Any, ...], column: list[Any]) -> np.ndarray[Any, Any] | None:
    if not is_plain(column[0]) or any(array.dtype != dtype or array.shape != shape for array in column):
        return None
    stacked = aligned_empty((len(column), *shape), dtype)
    for row, array in enumerate(column):
        stacked[row] = array
    return stacked


def _of_tensors(dtype: np.dtype[Any], shape: tuple[Any, ...], column: list[Any]) -> np.ndarray[Any, Any] | None:
    first = column[0].dtype
    if str(first) != f"torch.{dtype.name}":
        return None
    if any(tensor.dtype is not first or tuple(tensor.shape) != shape for tensor in column):
        return None
    stacked = aligned_empty((len(column), *shape), dtype)
    torch = sys.modules["torch"]
    try:
        torch.stack(column, out=torch.from_numpy(stacked))
    except (RuntimeError, TypeError):  # a tensor that requires a gradient or is on another device
        return None
    return stacked


def rows_of(batch: Any) -> list[Any]:
    """Return the records of a batch, each with the batch's structure. Raises SpecError for a sparse or ragged one."""
    for path, leaf in flatten_with_paths(batch):
        if is_composite(leaf):
            raise SpecError(
                f"{component_name(path)} of a batch is {kind_of(leaf)}, expected an array, whose rows are records. For "
                f"pad(), ragged() and cached(), read the records without collate=."
            )
    leaves = flatten(batch)
    return [pack(batch, row) for row in zip(*leaves)]


def aligned_batch(batch: Any, where: str) -> Any:
    """Copy a batch into new aligned arrays. A list of plain values is one array. Composites are checked, too.

    Raises SpecError if a component is no array with rows.
    """
    paths = component_paths(batch)
    arrays: list[Any] = []
    for path, leaf in flatten_up_to(paths, batch, where):
        if is_composite(leaf):
            arrays.append(as_composite(leaf)._checked(f"{where}: {component_name(path)}")._map(aligned_copy))
            continue
        array = leaf if is_plain(leaf) else checked_array(leaf, None, f"{where}: {component_name(path)}")
        if not array.ndim:
            raise SpecError(f"{where}: {component_name(path)} is one value, expected one row per record.")
        arrays.append(aligned_copy(array))
    return pack(paths, arrays)


def take_rows(array: np.ndarray[Any, Any], records: np.ndarray[Any, Any] | slice) -> np.ndarray[Any, Any]:
    """Copy some rows of an array into new aligned memory."""
    if isinstance(records, slice) or not array.dtype.isnative:
        return aligned_copy(array[records])
    taken = aligned_empty((len(records), *array.shape[1:]), array.dtype)
    if array.flags.c_contiguous:
        # The record numbers are in range. mode="raise" would gather into a buffer first, and copy that.
        array.take(records, axis=0, out=taken, mode="clip")
    else:  # take would copy the whole array first, to make it contiguous
        np.copyto(taken, array[records])
    return taken
