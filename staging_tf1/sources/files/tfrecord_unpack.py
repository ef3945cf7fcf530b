"""Decompresses TFRecord files, because random access needs plain files."""

from __future__ import annotations

import functools
import importlib
import os
import zlib
from collections.abc import Callable
from typing import IO, Any

from staging_tf1.errors import CorruptRecordError
from staging_tf1.sources.files.tfrecord_frames import HEADER_BYTES, plain_header

_EITHER_FORMAT = 32 + zlib.MAX_WBITS  # makes zlib detect whether a stream is gzip or zlib
_ZSTD = b"\x28\xb5\x2f\xfd"  # the first bytes of a zstd frame
# Bytes 1 to 3 of a frame without data, which readers skip. Byte 0 is from 0x50 to 0x5f.
_SKIPPED = b"\x2a\x4d\x18"
_CHUNK_BYTES = 1 << 20


def is_compressed(path: str) -> bool:
    """Whether a file starts with a gzip, zlib or zstd header rather than a record header."""
    with open(path, "rb") as file:
        head = file.read(HEADER_BYTES)
    gzip = head[:2] == b"\x1f\x8b"
    zlib_stream = len(head) > 1 and head[0] & 15 == 8 and int.from_bytes(head[:2], "big") % 31 == 0
    return (gzip or zlib_stream or _is_zstd(head)) and not plain_header(head)


def _is_zstd(head: bytes) -> bool:
    """Whether a file begins with a zstd frame, or with one that decompressors skip, as pzstd writes it."""
    return head.startswith(_ZSTD) or (head[1:4] == _SKIPPED and head[0] >> 4 == 5)


def _format_of(path: str, name: str) -> tuple[Callable[[], Any], type[Exception]]:
    """Return what makes a decompressor for the file, and the exception of a corrupt stream."""
    with open(path, "rb") as file:
        if not _is_zstd(file.read(len(_ZSTD))):
            return functools.partial(zlib.decompressobj, _EITHER_FORMAT), zlib.error
    try:
        zstandard = importlib.import_module("zstandard")
    except ImportError as error:
        raise ImportError(
            f"{name} is compressed with zstd, which needs the package zstandard. Install it: "
            f"pip install 'staging-tf1[zstd]'"
        ) from error
    # Files written with `zstd --long` need more than the default of 128 MB.
    return zstandard.ZstdDecompressor(max_window_size=2**31).decompressobj, zstandard.ZstdError


def unpacked(
    path: str, out: IO[bytes], skip_corrupt: bool, progress: Callable[[int], Any] = lambda nbytes: None, name: str = ""
) -> bool:
    """Decompress `path` to `out`. Supports concatenated members. Returns whether the stream is complete.

    `progress` is called with the number of bytes that were read since the last call. `name` is what messages call the
    file.
    Raises CorruptRecordError if it is corrupt or truncated, and `skip_corrupt` is False; ImportError if the package
    that decompresses it is missing.
    """
    name = name or path
    decompressor, corrupt = _format_of(path, name)
    with open(path, "rb") as file:
        stream = decompressor()
        problem = ""
        try:
            for chunk in iter(lambda: file.read(_CHUNK_BYTES), b""):
                progress(len(chunk))
                while chunk:
                    out.write(stream.decompress(chunk))
                    chunk = stream.unused_data
                    if stream.eof:
                        stream = decompressor() if chunk else stream
            if not stream.eof:
                problem = "the compressed stream is truncated"
        except corrupt as error:
            problem = f"the compressed stream is corrupt ({error})"
        if problem and not skip_corrupt:
            raise CorruptRecordError(
                f"{name}: byte {file.tell()} of {os.path.getsize(path)}: {problem}. Copy the file again, or "
                "use skip_corrupt=True to read the records before that byte.",
                name,
                file.tell(),
            )
        return not problem
