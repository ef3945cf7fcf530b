"""Stacks single records into batches."""

from __future__ import annotations

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
    pack,
    spec_of,
)
from staging_tf1.spec.arrays import as_array, checked_array, describe, is_plain, kind_of
from staging_tf1.spec.composite import as_composite, is_composite

__all__ = ["aligned_batch", "record_arrays", "record_specs", "rows_of", "stack_records"]


def record_specs(record: Any, batch_dim: int | None, where: str) -> Any:
    """Return the spec of batches of records like `record`. A list of plain values is one array, as in `tf.data`."""

    def leaf_spec(value: Any, name: str | None, where: str) -> ArraySpec:
        array = as_array(value, None, where)
        return ArraySpec((batch_dim, *array.shape), array.dtype, name)

    return spec_of(record, where, leaf_spec)


def record_arrays(like: Any, specs: Sequence[ArraySpec], record: Any, where: str) -> list[tuple[str, Any]]:
    """Return the components of one record as arrays of the declared dtypes, with their paths.

    Raises SpecError if the structure or a dtype differs. The shapes are not checked.
    """
    try:
        arrays = [
            (path, leaf if is_plain(leaf) else as_array(leaf, spec.dtype, component_name(path)))
            for spec, (path, leaf) in zip(specs, flatten_up_to(like, record))
        ]
    except SpecError as error:
        raise SpecError(f"{where}: {error}") from error
    return arrays


def stack_records(
    like: Any,
    specs: Sequence[ArraySpec],
    records: Iterable[tuple[int, Any]],
    count: int,
    describe_record: Callable[[int], str],
    maker: str = "the dataset",
) -> Any:
    """Stack `count` pairs of number and record into new aligned arrays. Each is copied before the next one is taken.

    `like` has the structure of the records, and `specs` their dtypes and shapes after a batch dimension. For messages,
    `describe_record` names a record by its number, and `maker` is what has made it. Raises SpecError if a record
    differs.
    """
    batch = [aligned_empty((count, *_fixed(spec)), spec.dtype) for spec in specs]
    for row, (number, record) in enumerate(records):
        where = f"{describe_record(number)}: {maker}"
        for target, spec, (path, array) in zip(batch, specs, record_arrays(like, specs, record, where)):
            if array.shape != _fixed(spec) or array.dtype != spec.dtype:
                raise SpecError(
                    f"{where} returned {f'component {path!r} as ' if path else ''}"
                    f"{describe(array.dtype, array.shape)}, but {describe(spec.dtype, _fixed(spec))} for the first "
                    "record. All records must have the same dtype and shape: pad or crop them."
                )
            target[row] = array if array.ndim else array[()]
    return pack(like, batch)


def _fixed(spec: ArraySpec) -> tuple[int, ...]:
    """The shape of one record, which is fully known."""
    return tuple(dim or 0 for dim in (spec.shape or ())[1:])


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
    paths = component_paths(batch, where)
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
