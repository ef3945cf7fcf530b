"""How one component of a cache lies in `.npy` files: written front to back, and mapped for reading.

X.npy          the values: one row per record, or flat if shapes differ, or the bytes of all strings
X.starts.npy   if shapes differ: where the values of each record begin, and the end of the last
X.shapes.npy   if shapes differ: the shape of each record
X.strings.npy  of strings: where each string begins in the bytes, and the end of the last
"""

from __future__ import annotations

import io
import itertools
import math
import mmap
import os
import re
import zlib
from collections.abc import Sequence
from typing import IO, Any, NamedTuple

import numpy as np

from staging_tf1.arguments import kind_of_file
from staging_tf1.errors import RecordFileError
from staging_tf1.sources.aligned import aligned_empty
from staging_tf1.sources.files.os_errors import cure_of
from staging_tf1.sources.stacking import take_rows

# The header fills a page. So records whose size is a multiple of the page size begin at a page, and share none.
HEADER_BYTES = 4096
# How to fix a file that was changed.
_CURE = "Remove the cache to have it built again: staging-tf1 cache remove PATH."
_MAGIC = b"\x93NUMPY\x01\x00"
_BUFFER_BYTES = 1 << 20
_INT64 = np.dtype("<i8")
_MOST_AT_ONCE = 1 << 20


def cannot_read(described: str, error: OSError) -> RecordFileError:
    """Return the error of a cache that this process may not read. `described` names the file or folder."""
    return RecordFileError(f"cannot read {described}: {error.strerror}. {cure_of(error, _CURE)}")


def open_regular(path: str) -> IO[bytes]:
    """Open a file for reading. Raises OSError if it is no regular file: a named pipe would block."""
    if (kind := kind_of_file(path)) is not None:
        raise OSError(0, f"it is {kind}")
    return open(path, "rb")


def dtype_named(name: str) -> np.dtype[Any]:
    """Return the dtype of that name."""
    try:
        return np.dtype(name)
    except TypeError:
        # numpy only knows bfloat16 and its like after this import.
        import ml_dtypes

        extension: np.dtype[Any] = np.dtype(getattr(ml_dtypes, name))
        return extension


class ArrayFile(NamedTuple):
    """One file of a cache, as the manifest has it. `crc32` is the checksum of all bytes behind the header."""

    name: str
    dtype: str
    shape: Sequence[int]
    crc32: int

    @property
    def size(self) -> int:
        """The size of the file in bytes."""
        return HEADER_BYTES + math.prod(self.shape) * np.dtype(self.dtype).itemsize

    @property
    def header(self) -> bytes:
        """The first `HEADER_BYTES` of the file, in version 1.0 of the format."""
        described = {"descr": self.dtype, "fortran_order": False, "shape": tuple(self.shape)}
        text = "".join(f"{name!r}: {value!r}, " for name, value in described.items())
        room = HEADER_BYTES - len(_MAGIC) - 2
        return _MAGIC + room.to_bytes(2, "little") + f"{{{text}}}".ljust(room - 1).encode("latin1") + b"\n"


class Component(NamedTuple):
    """One component of a cache, as the manifest has it.

    Attributes:
      path: its path in the structure; empty if a record is one array.
      dtype: the name of its dtype; "object" for strings.
      shape: of one record, with None for dimensions that differ.
      files: its files by their role: "values", "starts", "shapes" and "strings".
    """

    path: str
    dtype: str
    shape: Sequence[int | None]
    files: dict[str, ArrayFile]

    @property
    def varies(self) -> bool:
        """Whether the shapes of records differ."""
        return None in self.shape

    @property
    def size(self) -> int:
        """The size of all files in bytes."""
        return sum(file.size for file in self.files.values())


# Writing.


class _NpyWriter:
    """Appends values to a new `.npy` file. The header is written at the end."""

    def __init__(self, path: str, dtype: np.dtype[Any]) -> None:
        self._path, self.dtype = path, dtype
        self._crc32 = 0
        self._raw = io.FileIO(path, "w")
        self._file = io.BufferedWriter(self._raw, _BUFFER_BYTES)
        self._file.seek(HEADER_BYTES)

    def append(self, values: np.ndarray[Any, Any]) -> None:
        """Append values of the dtype of the file, in C order."""
        if values.size:
            self.append_bytes(np.ascontiguousarray(values).reshape(-1).view(np.uint8).data)

    def append_bytes(self, data: bytes | memoryview) -> None:
        """Append values by their bytes."""
        self._file.write(data)
        self._crc32 = zlib.crc32(data, self._crc32)

    def finish(self, shape: tuple[int, ...]) -> ArrayFile:
        """Write the header and close the file, which is on the disk then."""
        described = ArrayFile(os.path.basename(self._path), self.dtype.str, shape, self._crc32)
        self._file.seek(0)
        self._file.write(described.header)
        self._file.flush()
        os.fsync(self._file.fileno())
        self._file.close()
        return described

    def close(self) -> None:
        """Close the file as it is."""
        # On a full disk, closing would fail once more while it flushes.
        self._raw.close()


class ComponentWriter:
    """Writes one component. Shapes may begin to differ at any record: the earlier ones are not written again.

    Args:
      folder, number, path: where to write, and the number and path of the component, which name the files.
      dtype, shape: those of the first record.
    """

    def __init__(self, folder: str, number: int, path: str, dtype: np.dtype[Any], shape: tuple[int, ...]) -> None:
        slug = re.sub(r"[^A-Za-z0-9_]+", "_", path).strip("_")[:60]
        self._base = os.path.join(folder, f"{number:03d}{'-' * bool(slug)}{slug}")
        self.path, self.dtype, self.shape = path, dtype, shape
        self._dims: list[int | None] = list(shape)
        # Records, values, and bytes of strings so far.
        self._records = self._total = self._text = 0
        self._files: dict[str, _NpyWriter] = {}
        self._open("values", _stored(dtype))
        if dtype.hasobject:
            self._open("strings").append(np.zeros(1, _INT64))

    def _open(self, role: str, dtype: np.dtype[Any] = _INT64) -> _NpyWriter:
        name = f"{self._base}{'' if role == 'values' else '.' + role}.npy"
        self._files[role] = _NpyWriter(name, dtype)
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
            values = self._files["values"]
            values.append(
                rows.view(values.dtype) if _is_extension(self.dtype) else rows.astype(values.dtype, copy=False)
            )
        self._records += count
        self._total += rows.size

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

    def finish(self) -> Component:
        """Write the headers and close the files."""
        varies, records = None in self._dims, self._records
        values = (self._text,) if self.dtype.hasobject else (self._total,) if varies else (records, *self.shape)
        shapes: dict[str, tuple[int, ...]] = {
            "values": values,
            "starts": (records + 1,),
            "shapes": (records, len(self._dims)),
            "strings": (self._total + 1,),
        }
        files = {role: file.finish(shapes[role]) for role, file in self._files.items()}
        return Component(self.path, self.dtype.name, self._dims, files)

    def close(self) -> None:
        """Close the files as they are."""
        for file in self._files.values():
            file.close()


def _stored(dtype: np.dtype[Any]) -> np.dtype[Any]:
    """Return the dtype that a file has for values of `dtype`: unsigned integers for what the format cannot name."""
    if dtype.hasobject:
        return np.dtype(np.uint8)
    return np.dtype(f"<u{dtype.itemsize}") if _is_extension(dtype) else np.dtype(dtype.newbyteorder("<").str)


def _is_extension(dtype: np.dtype[Any]) -> bool:
    """Whether a dtype, such as bfloat16, is not numpy's own. The format has no names for these."""
    return dtype.isbuiltin == 2


# Reading.


class MappedArray:
    """A file of a cache, mapped. It keeps one descriptor, by which `check` finds the file after a rebuild.

    Args:
      folder: where the file is.
      described: what the manifest says about it.
      verified: whether to compare the checksum, which reads the whole file.

    Attributes:
      array: its values. Only the pages of those that are used are read.

    Raises RecordFileError if the file is missing, or has another size, header or checksum than the manifest says.
    """

    def __init__(self, folder: str, described: ArrayFile, *, verified: bool) -> None:
        self._path, self._size = os.path.join(folder, described.name), described.size
        try:
            with open_regular(self._path) as file:
                self._check_size(os.fstat(file.fileno()).st_size)
                head, crc32 = file.read(HEADER_BYTES), _checksum(file) if verified else described.crc32
                self._mapped = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
        except RecordFileError:
            raise
        except OSError as error:
            raise cannot_read(f"{self._path!r}, a file of a cache", error) from error
        if head != described.header:
            raise RecordFileError(f"{self._path!r} has another header than its cache says: it was changed. {_CURE}")
        if crc32 != described.crc32:
            raise RecordFileError(
                f"{self._path!r} has another checksum than its cache says: its content was changed. {_CURE}"
            )
        self._in_order = True
        self.expect(in_order=False)
        flat = np.frombuffer(self._mapped, described.dtype, math.prod(described.shape), HEADER_BYTES)
        self.array: np.ndarray[Any, Any] = flat.reshape(described.shape)

    def expect(self, *, in_order: bool) -> None:
        """Tell the system whether values are read front to back, so it reads ahead, or in any order.

        By default it reads 128 KiB around each missing page. A second mapping for the other order would need a second
        descriptor.
        """
        if in_order != self._in_order and hasattr(mmap, "MADV_RANDOM"):
            self._in_order = in_order
            self._mapped.madvise(mmap.MADV_NORMAL if in_order else mmap.MADV_RANDOM)

    def check(self) -> None:
        """Raise RecordFileError if the file was truncated: reading beyond its end would kill the process."""
        # The size of the mapped file. After a rebuild, another file is at its path.
        self._check_size(self._mapped.size())

    def slice_of_bytes(self, start: int, stop: int) -> bytes:
        """Return some bytes of a file of bytes."""
        return self._mapped[HEADER_BYTES + start : HEADER_BYTES + stop]

    def _check_size(self, size: int) -> None:
        if size != self._size:
            raise RecordFileError(
                f"{self._path!r} has {size} bytes, expected {self._size}: the file was cut or changed after the cache "
                f"was built. {_CURE}"
            )


def _checksum(file: IO[bytes]) -> int:
    crc32 = 0
    while data := file.read(_BUFFER_BYTES):
        crc32 = zlib.crc32(data, crc32)
    return crc32


class Column:
    """Reads one component of a cache. Thread-safe.

    The files that say where each record begins are verified: a changed bit there would give records the values of
    others. They take 8 bytes for each number, and their checksum about 1 ms a megabyte.
    """

    def __init__(self, folder: str, component: Component) -> None:
        self.component, self.dtype = component, dtype_named(component.dtype)
        self._files = {
            role: MappedArray(folder, file, verified=role != "values") for role, file in component.files.items()
        }

    def rows(self, records: np.ndarray[Any, Any] | slice) -> np.ndarray[Any, Any]:
        """Return records of one shape as new memory, [n, ...]."""
        self._check_sizes()
        if self.dtype.hasobject:
            numbers = np.arange(records.start, records.stop, records.step) if isinstance(records, slice) else records
            shape = tuple(dim or 0 for dim in self.component.shape)
            size = math.prod(shape)
            strings = [text for number in numbers.tolist() for text in self._strings(number * size, size)]
            return _objects(strings, (len(numbers), *shape))
        values = self._files["values"]
        values.expect(in_order=isinstance(records, slice) and records.step in (1, None))
        taken = take_rows(values.array, records)
        return taken.view(self.dtype) if _is_extension(self.dtype) else taken

    def singles(self, numbers: Sequence[int]) -> list[np.ndarray[Any, Any]]:
        """Return records one by one, whatever their shapes. The arrays may be views of the file."""
        if not self.component.varies:
            rows = self.rows(np.asarray(numbers, np.int64))
            return [rows[row, ...] for row in range(len(rows))]
        self._check_sizes()
        starts, shapes, values = (self._files[role].array for role in ("starts", "shapes", "values"))
        arrays = []
        for number in numbers:
            start, stop, shape = int(starts[number]), int(starts[number + 1]), tuple(shapes[number].tolist())
            if self.dtype.hasobject:
                arrays.append(_objects(self._strings(start, stop - start), shape))
            else:
                arrays.append(values[start:stop].view(self.dtype).reshape(shape))
        return arrays

    def _strings(self, first: int, count: int) -> list[bytes]:
        ends = self._files["strings"].array[first : first + count + 1].tolist()
        slice_of = self._files["values"].slice_of_bytes
        return [slice_of(start, stop) for start, stop in itertools.pairwise(ends)]

    def _check_sizes(self) -> None:
        for file in self._files.values():
            file.check()


def _objects(strings: list[bytes], shape: tuple[int, ...]) -> np.ndarray[Any, Any]:
    objects = aligned_empty(len(strings), np.dtype(object))
    objects[:] = strings
    return objects.reshape(shape)
