"""Writes records to column files, and checks that all have the structure of the first one."""

from __future__ import annotations

from typing import Any

import numpy as np

from staging_tf1.arguments import depth_of
from staging_tf1.errors import SpecError
from staging_tf1.sources.columns.component import Component, ComponentWriter
from staging_tf1.sources.columns.manifest import decoded, dtype_named, encoded
from staging_tf1.spec import component_name, component_paths, flatten, flatten_up_to, pack, refuse_endless
from staging_tf1.spec.arrays import as_array, describe, is_plain

__all__ = ["RecordWriter"]

# The deepest nest of a record. Python walks through nests and JSON recursively.
_DEEPEST = 200


class RecordWriter:
    """Writes records into a folder. The first one decides the structure, the dtypes and the ranks.

    Args:
      folder: where to write.
      owner: the caller, for messages.
      saved: a result of `progress`, to continue after it.
    """

    def __init__(self, folder: str, owner: str, saved: dict[str, Any] | None = None) -> None:
        self._folder, self._owner = folder, owner
        self.num_records = 0 if saved is None else int(saved["num_records"])
        self._structure: Any = None
        self._paths: Any = None
        self._writers: list[ComponentWriter] = []
        if saved is not None:
            self._structure = saved["structure"]
            for number, component in enumerate(saved["components"]):
                dtype, shape = dtype_named(component["dtype"]), tuple(component["shape"])
                self._writers.append(
                    ComponentWriter(folder, number, component["path"], dtype, shape, component["files"])
                )
            self._paths = decoded(self._structure, [writer.path for writer in self._writers])

    def append(self, value: Any, stacked: bool, most: int | None) -> int:
        """Append a record, or at most `most` of several that are stacked. Return how many were appended."""
        where = f"{self._owner}: record {self.num_records}"
        if value is None:
            raise SpecError(f"{where} is None, expected a nest of arrays and numbers.")
        if self._paths is None:
            self._begin(value, stacked, where)
        try:
            leaves = flatten_up_to(self._paths, value, where)
        except SpecError as error:
            raise SpecError(f"{error} All records must have the structure of the first one.") from error
        rows = [self._as_rows(leaf, writer, stacked, where) for (_, leaf), writer in zip(leaves, self._writers)]
        count = _common_length(rows, where)
        count = count if most is None else min(count, most)
        for writer, array in zip(self._writers, rows):
            writer.append(array[:count])
        self.num_records += count
        return count

    def _begin(self, value: Any, stacked: bool, where: str) -> None:
        if (depth_of(value) or 0) > _DEEPEST:
            refuse_endless(value, where)
        self._paths = component_paths(value, where)
        paths = flatten(self._paths)
        if not paths:
            raise SpecError(f"{where} has no component, expected at least one array.")
        self._structure = encoded(pack(self._paths, range(len(paths))))
        for number, (path, leaf) in enumerate(flatten_up_to(self._paths, value, where)):
            array = as_array(leaf, None, f"{where}: {component_name(path)}")
            if isinstance(leaf, (list, tuple)) and not array.size:
                raise SpecError(
                    f"{where}: {component_name(path)} is an empty list, which has no dtype, and the first record sets "
                    f"the dtypes. Return arrays, such as np.array(words, np.int64)."
                )
            if array.dtype.names:
                raise SpecError(f"{where}: {component_name(path)} is {array.dtype}, expected numbers or strings.")
            shape = _row_shape(array, stacked, f"{where}: {component_name(path)}")
            self._writers.append(ComponentWriter(self._folder, number, path, array.dtype, shape))

    def _as_rows(self, leaf: Any, like: ComponentWriter, stacked: bool, where: str) -> np.ndarray[Any, Any]:
        array = leaf if is_plain(leaf) else as_array(leaf, like.dtype, f"{where}: {component_name(like.path)}")
        shape = _row_shape(array, stacked, f"{where}: {component_name(like.path)}")
        if array.dtype != like.dtype or len(shape) != len(like.shape):
            got, expected = describe(array.dtype, shape), describe(like.dtype, like.shape)
            raise SpecError(
                f"{where}: {component_name(like.path)} is {got}, but {expected} in record 0. All records must have the "
                f"same dtype and number of dimensions; only the sizes may differ."
            )
        return array if stacked else array[None]

    def progress(self) -> dict[str, Any]:
        """Return where to continue, after all bytes so far are on the disk."""
        components = [
            {"path": writer.path, "dtype": writer.dtype.name, "shape": writer.shape, "files": writer.progress()}
            for writer in self._writers
        ]
        return {"num_records": self.num_records, "structure": self._structure, "components": components}

    def finish(self) -> tuple[Any, tuple[Component, ...]]:
        """Close the files. Return the encoded structure and its components."""
        return self._structure, tuple(writer.finish() for writer in self._writers)

    def abandon(self) -> None:
        """Close the files as they are."""
        for writer in self._writers:
            writer.abandon()


def _row_shape(array: np.ndarray[Any, Any], stacked: bool, where: str) -> tuple[int, ...]:
    if stacked and not array.ndim:
        raise SpecError(f"{where} is one value, expected a batch with one row per record. For records: batched=False.")
    shape: tuple[int, ...] = array.shape
    return shape[1:] if stacked else shape


def _common_length(rows: list[np.ndarray[Any, Any]], where: str) -> int:
    lengths = {len(row) for row in rows}
    if len(lengths) > 1:
        raise SpecError(f"{where}: the components of a batch have {sorted(lengths)} rows, expected the same number.")
    return lengths.pop()
