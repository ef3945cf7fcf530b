"""`.npy` files that are written front to back, without knowing their length in advance, and mapped for reading."""

from __future__ import annotations

import io
import math
import mmap
import os
import zlib
from typing import IO, Any, NamedTuple

import numpy as np

from staging_tf1.errors import RecordFileError
from staging_tf1.sources.columns.snapshot import CURE, Snapshot, cannot_read

__all__ = [
    "HEADER_BYTES",
    "ArrayFile",
    "MappedArray",
    "NpyWriter",
    "header",
    "is_extension",
    "stored_dtype",
]

# The header fills a page. So records whose size is a multiple of the page size begin at a page, and share none.
HEADER_BYTES = 4096
_MAGIC = b"\x93NUMPY\x01\x00"
_BUFFER_BYTES = 1 << 20


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

    def __init__(self, folder: Snapshot, described: ArrayFile, *, verified: bool) -> None:
        self.path, self._described = folder.path_of(described.name), described
        try:
            with folder.open(described.name) as file:
                self._check_size(os.fstat(file.fileno()).st_size)
                head, crc32 = file.read(HEADER_BYTES), _checksum(file) if verified else described.crc32
                self._mapped = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
        except RecordFileError:
            raise
        except OSError as error:
            raise cannot_read(f"{self.path!r}, a file of a cache", error) from error
        if head != header(np.dtype(described.dtype), described.shape):
            raise RecordFileError(f"{self.path!r} has another header than its cache says: it was changed. {CURE}")
        if crc32 != described.crc32:
            raise RecordFileError(
                f"{self.path!r} has another checksum than its cache says: its content was changed. {CURE}"
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
                f"the cache was built. {CURE}"
            )


def _checksum(file: IO[bytes]) -> int:
    """Return the checksum of the rest of a file."""
    crc32 = 0
    while data := file.read(_BUFFER_BYTES):
        crc32 = zlib.crc32(data, crc32)
    return crc32
