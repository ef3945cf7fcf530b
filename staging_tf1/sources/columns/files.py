"""How one component of a cache lies in `.npy` files: writing them front to back, and mapping them for reading.

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
import stat
import zlib
from collections.abc import Sequence
from typing import IO, Any, NamedTuple

import numpy as np

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
# A named pipe would block without O_NONBLOCK, which changes nothing for files.
_READ = os.O_RDONLY | os.O_CLOEXEC | getattr(os, "O_NONBLOCK", 0)


def cannot_read(described: str, error: OSError) -> RecordFileError:
    """Return the error of a cache that this process may not read. `described` names the file or folder."""
    return RecordFileError(f"cannot read {described}: {error.strerror}. {cure_of(error, _CURE)}")


def open_regular(path: str) -> IO[bytes]:
    """Open a file for reading. Raises OSError if it is no regular file."""
    descriptor = os.open(path, _READ)
    if not stat.S_ISREG(os.fstat(descriptor).st_mode):
        os.close(descriptor)
        raise OSError(0, "it is not a regular file")
    return os.fdopen(descriptor, "rb")


class ArrayFile(NamedTuple):
    """One file of a cache, as its manifest describes it.

    `crc32` is the checksum of all bytes behind the header. The header follows from `dtype` and `shape`.
    """

    name: str
    dtype: str
    shape: tuple[int, ...]
    crc32: int

    @property
    def size(self) -> int:
        """The size of the file in bytes."""
        return HEADER_BYTES + math.prod(self.shape) * np.dtype(self.dtype).itemsize


def stored_dtype(dtype: np.dtype[Any]) -> np.dtype[Any]:
    """Return the dtype that a file has for values of `dtype`: unsigned integers for what the format cannot name.

    >>> stored_dtype(np.dtype("float16")), stored_dtype(np.dtype("object"))
    (dtype('float16'), dtype('uint8'))
    """
    if dtype.hasobject:
        return np.dtype(np.uint8)
    return np.dtype(f"<u{dtype.itemsize}") if is_extension(dtype) else np.dtype(dtype.newbyteorder("<").str)


def is_extension(dtype: np.dtype[Any]) -> bool:
    """Whether a dtype, such as bfloat16, is not numpy's own. The format has no names for these."""
    return dtype.isbuiltin == 2


def header(dtype: np.dtype[Any], shape: tuple[int, ...]) -> bytes:
    """Return the first `HEADER_BYTES` of an `.npy` file of version 1.0."""
    text = f"{{'descr': {np.lib.format.dtype_to_descr(dtype)!r}, 'fortran_order': False, 'shape': {shape!r}, }}"
    room = HEADER_BYTES - len(_MAGIC) - 2
    return _MAGIC + room.to_bytes(2, "little") + text.ljust(room - 1).encode("latin1") + b"\n"


class NpyWriter:
    """Appends values to an `.npy` file. The header is written at the end.

    Args:
      path: the file, which is created, or continued after its first `nbytes` bytes of values.
      dtype: the dtype of the values in the file.
      nbytes, crc32: what `progress` returned, to continue a file.
    """

    def __init__(self, path: str, dtype: np.dtype[Any], nbytes: int = 0, crc32: int = 0) -> None:
        self.path, self.dtype = path, dtype
        self._nbytes, self._crc32 = nbytes, crc32
        self._raw = io.FileIO(path, "r+" if nbytes else "w")
        self._file = io.BufferedWriter(self._raw, _BUFFER_BYTES)
        self._file.truncate(HEADER_BYTES + nbytes)
        self._file.seek(HEADER_BYTES + nbytes)

    def append(self, values: np.ndarray[Any, Any]) -> None:
        """Append values of the dtype of the file, in C order."""
        if values.size:
            self.append_bytes(np.ascontiguousarray(values).reshape(-1).view(np.uint8).data)

    def append_bytes(self, data: bytes | memoryview) -> None:
        """Append values by their bytes."""
        self._file.write(data)
        self._crc32 = zlib.crc32(data, self._crc32)
        self._nbytes += len(data)

    def progress(self) -> tuple[int, int]:
        """Return the number of bytes and their checksum, after these bytes are on the disk."""
        self._file.flush()
        os.fsync(self._file.fileno())
        return self._nbytes, self._crc32

    def finish(self, shape: tuple[int, ...]) -> ArrayFile:
        """Write the header and close the file."""
        self._file.seek(0)
        self._file.write(header(self.dtype, shape))
        self.progress()
        self._file.close()
        return ArrayFile(os.path.basename(self.path), self.dtype.str, shape, self._crc32)

    def abandon(self) -> None:
        """Close the file where it is."""
        # On a full disk, closing would fail once more while it flushes.
        self._raw.close()


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
        self.path, self._described = os.path.join(folder, described.name), described
        try:
            with open_regular(self.path) as file:
                self._check_size(os.fstat(file.fileno()).st_size)
                head, crc32 = file.read(HEADER_BYTES), _checksum(file) if verified else described.crc32
                self._mapped = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
        except RecordFileError:
            raise
        except OSError as error:
            raise cannot_read(f"{self.path!r}, a file of a cache", error) from error
        if head != header(np.dtype(described.dtype), described.shape):
            raise RecordFileError(f"{self.path!r} has another header than its cache says: it was changed. {_CURE}")
        if crc32 != described.crc32:
            raise RecordFileError(
                f"{self.path!r} has another checksum than its cache says: its content was changed. {_CURE}"
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
        if size != self._described.size:
            raise RecordFileError(
                f"{self.path!r} has {size} bytes, expected {self._described.size}: the file was cut or changed after "
                f"the cache was built. {_CURE}"
            )


def _checksum(file: IO[bytes]) -> int:
    """Return the checksum of the rest of a file."""
    crc32 = 0
    while data := file.read(_BUFFER_BYTES):
        crc32 = zlib.crc32(data, crc32)
    return crc32


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


class ComponentWriter:
    """Writes one component. Shapes may begin to differ at any record: the earlier ones are not written again.

    Args:
      folder, number, path: where to write, and the number and path of the component, which name the files.
      token: the end of these names, which makes them differ from those of an older cache in the same folder.
      dtype, shape: those of the first record.
      saved: a result of `progress`, to continue after it.
    """

    def __init__(
        self,
        folder: str,
        number: int,
        path: str,
        token: str,
        dtype: np.dtype[Any],
        shape: tuple[int, ...],
        saved: dict[str, Any] | None = None,
    ) -> None:
        slug = re.sub(r"[^A-Za-z0-9_]+", "_", path).strip("_")[:60]
        self._base = os.path.join(folder, f"{number:03d}{'-' * bool(slug)}{slug}{token}")
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

    def __init__(self, folder: str, component: Component) -> None:
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
