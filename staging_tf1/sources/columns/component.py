"""How the values of one component are laid out in files, and how they are read again.

X.npy          the values: one row per record, or flat if shapes differ, or the bytes of all strings
X.starts.npy   if shapes differ: where the values of each record begin, and the end of the last
X.shapes.npy   if shapes differ: the shape of each record
X.strings.npy  of strings: where each string begins in the bytes, and the end of the last
"""

from __future__ import annotations

import itertools
import math
import os
import re
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from staging_tf1.sources.aligned import aligned_empty
from staging_tf1.sources.columns.npy import ArrayFile, MappedArray, NpyWriter, is_extension, stored_dtype
from staging_tf1.sources.columns.snapshot import Snapshot
from staging_tf1.sources.stacking import take_rows

__all__ = ["Column", "Component", "ComponentWriter"]

_INT64 = np.dtype("<i8")
_MOST_AT_ONCE = 1 << 20


class Component(NamedTuple):
    """One component of a cache, as its manifest describes it.

    Attributes:
      path: its path in the structure; empty if a record is one array.
      dtype: its dtype; `object` for strings.
      shape: of one record, with None for dimensions that differ.
      files: its files by their role: "values", "starts", "shapes" and "strings".
    """

    path: str
    dtype: np.dtype[Any]
    shape: tuple[int | None, ...]
    files: dict[str, ArrayFile]

    @property
    def varies(self) -> bool:
        """Whether the shapes of records differ."""
        return None in self.shape

    @property
    def size(self) -> int:
        """The size of all files in bytes."""
        return sum(file.size for file in self.files.values())

    def check(self, num_records: int) -> None:
        """Raise ValueError unless the files have the dtypes and shapes of this number of records."""
        # Only these files say how many values and bytes there are.
        values = math.prod(self.files["values"].shape)
        total = math.prod(self.files["strings"].shape) - 1 if self.dtype.hasobject else values
        shapes = _shapes(num_records, self.dtype, self.shape, total, values)
        if self.files.keys() != shapes.keys():
            raise ValueError(f"{self.path!r} has the files {', '.join(self.files)}, expected {', '.join(shapes)}")
        for role, file in self.files.items():
            dtype = (stored_dtype(self.dtype) if role == "values" else _INT64).str
            if (file.dtype, file.shape) != (dtype, shapes[role]):
                raise ValueError(
                    f"{file.name} is {file.dtype} {list(file.shape)}, expected {dtype} {list(shapes[role])} for "
                    f"{num_records} records"
                )


class ComponentWriter:
    """Writes one component. Shapes may begin to differ at any record: the earlier ones are not written again.

    Args:
      folder, number, path: where to write, and the number and path of the component, which name the files.
      dtype, shape: those of the first record.
      saved: a result of `progress`, to continue after it.
    """

    def __init__(
        self,
        folder: str,
        number: int,
        path: str,
        dtype: np.dtype[Any],
        shape: tuple[int, ...],
        saved: dict[str, Any] | None = None,
    ) -> None:
        slug = re.sub(r"[^A-Za-z0-9_]+", "_", path).strip("_")[:60]
        self._base = os.path.join(folder, f"{number:03d}-{slug}" if slug else f"{number:03d}")
        self.path, self.dtype, self.shape = path, dtype, shape
        self._dims: list[int | None] = list(shape) if saved is None else list(saved["dims"])
        # Records, values, and bytes of strings so far.
        counts: list[int] = [0, 0, 0] if saved is None else saved["counts"]
        self._records, self._total, self._text = counts
        self._files: dict[str, NpyWriter] = {}
        for role, (nbytes, crc32) in ({"values": (0, 0)} if saved is None else saved["files"]).items():
            self._open(role, nbytes, crc32)
        if dtype.hasobject and saved is None:
            self._open("strings").append(np.zeros(1, _INT64))

    def _open(self, role: str, nbytes: int = 0, crc32: int = 0) -> NpyWriter:
        dtype = stored_dtype(self.dtype) if role == "values" else _INT64
        name = f"{self._base}{'' if role == 'values' else '.' + role}.npy"
        self._files[role] = NpyWriter(name, dtype, nbytes, crc32)
        return self._files[role]

    def append(self, rows: np.ndarray[Any, Any]) -> None:
        """Append records of one shape, [n, ...], of the dtype and rank of the first."""
        count, shape = len(rows), rows.shape[1:]
        if "starts" not in self._files and shape != self.shape and count:
            self._begin_to_vary()
        if "starts" in self._files:
            self._note_shapes(count, shape)
        if self.dtype.hasobject:
            self._append_strings(rows.reshape(-1).tolist())
        else:
            self._files["values"].append(self._as_stored(rows))
        self._records += count
        self._total += rows.size

    def _as_stored(self, rows: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
        stored = self._files["values"].dtype
        return rows.view(stored) if is_extension(self.dtype) else rows.astype(stored, copy=False)

    def _append_strings(self, strings: list[bytes]) -> None:
        ends = list(itertools.accumulate(map(len, strings), initial=self._text))
        self._files["values"].append_bytes(b"".join(strings))
        self._files["strings"].append(np.array(ends[1:], _INT64))
        self._text = ends[-1]

    def _begin_to_vary(self) -> None:
        """Write the shapes of all records so far, which were the same."""
        self._open("starts").append(np.zeros(1, _INT64))
        self._open("shapes")
        done, self._total = self._records, 0
        for start in range(0, done, _MOST_AT_ONCE):
            count = min(_MOST_AT_ONCE, done - start)
            self._note_shapes(count, self.shape)
            self._total += count * math.prod(self.shape)

    def _note_shapes(self, count: int, shape: tuple[int, ...]) -> None:
        self._dims = [old if old == new else None for old, new in zip(self._dims, shape, strict=True)]
        self._files["starts"].append(self._total + math.prod(shape) * np.arange(1, count + 1, dtype=_INT64))
        self._files["shapes"].append(np.broadcast_to(np.array(shape, _INT64), (count, len(shape))))

    def progress(self) -> dict[str, Any]:
        """Return where to continue the files, after their bytes are on the disk."""
        files = {role: list(file.progress()) for role, file in self._files.items()}
        written = [(os.path.basename(file.path), files[role][0]) for role, file in self._files.items()]
        counts = [self._records, self._total, self._text]
        return {"dims": self._dims, "counts": counts, "files": files, "written": written}

    def finish(self) -> Component:
        """Write the headers and close the files."""
        dims = tuple(self._dims)
        shapes = _shapes(self._records, self.dtype, dims, self._total, self._text)
        files = {role: file.finish(shapes[role]) for role, file in self._files.items()}
        return Component(self.path, self.dtype, dims, files)

    def abandon(self) -> None:
        """Close the files as they are."""
        for file in self._files.values():
            file.abandon()


def _shapes(
    num_records: int, dtype: np.dtype[Any], dims: tuple[int | None, ...], total: int, text: int
) -> dict[str, tuple[int, ...]]:
    """Return the shape of each file of a component, which has `total` values, or strings of `text` bytes."""
    varies = None in dims
    row = tuple(dim or 0 for dim in dims)
    shapes: dict[str, tuple[int, ...]] = {
        "values": (text,) if dtype.hasobject else (total,) if varies else (num_records, *row)
    }
    if varies:
        shapes |= {"starts": (num_records + 1,), "shapes": (num_records, len(dims))}
    if dtype.hasobject:
        shapes["strings"] = (total + 1 if varies else num_records * math.prod(row) + 1,)
    return shapes


class Column:
    """Reads one component of a cache. Thread-safe.

    The files that say where each record begins are verified: a changed bit there would give records the values of
    others. They take 8 bytes for each number, and their checksum about 1 ms a megabyte.
    """

    def __init__(self, folder: Snapshot, component: Component) -> None:
        self.component = component
        self.files = {
            role: MappedArray(folder, file, verified=role != "values") for role, file in component.files.items()
        }

    def rows(self, records: np.ndarray[Any, Any] | slice) -> np.ndarray[Any, Any]:
        """Return records of one shape as new memory, [n, ...]."""
        self._check_sizes()
        shape = tuple(dim or 0 for dim in self.component.shape)
        if self.component.dtype.hasobject:
            numbers = np.arange(records.start, records.stop, records.step) if isinstance(records, slice) else records
            size = math.prod(shape)
            strings = [text for number in numbers.tolist() for text in self._strings(number * size, size)]
            return _objects(strings, (len(numbers), *shape))
        values = self.files["values"]
        values.expect(in_order=isinstance(records, slice) and records.step in (1, None))
        taken = take_rows(values.array, records)
        return taken.view(self.component.dtype) if is_extension(self.component.dtype) else taken

    def singles(self, numbers: Sequence[int]) -> list[np.ndarray[Any, Any]]:
        """Return records one by one, whatever their shapes. The arrays may be views of the file."""
        if not self.component.varies:
            rows = self.rows(np.asarray(numbers, np.int64))
            return [rows[row, ...] for row in range(len(rows))]
        self._check_sizes()
        starts, shapes, values = (self.files[role].array for role in ("starts", "shapes", "values"))
        arrays = []
        for number in numbers:
            start, stop, shape = int(starts[number]), int(starts[number + 1]), tuple(shapes[number].tolist())
            if self.component.dtype.hasobject:
                arrays.append(_objects(self._strings(start, stop - start), shape))
            else:
                arrays.append(values[start:stop].view(self.component.dtype).reshape(shape))
        return arrays

    def _strings(self, first: int, count: int) -> list[bytes]:
        ends = self.files["strings"].array[first : first + count + 1].tolist()
        slice_of = self.files["values"].slice_of_bytes
        return [slice_of(start, stop) for start, stop in itertools.pairwise(ends)]

    def _check_sizes(self) -> None:
        for file in self.files.values():
            file.check()


def _objects(strings: list[bytes], shape: tuple[int, ...]) -> np.ndarray[Any, Any]:
    objects = aligned_empty(len(strings), np.dtype(object))
    objects[:] = strings
    return objects.reshape(shape)
