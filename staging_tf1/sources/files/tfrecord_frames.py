"""The format of TFRecord files: the frames of their records, with checksums, and where each frame begins.

The format is defined in `tensorflow/core/lib/io/record_writer.h`. Each record consists of its length (uint64), the
masked CRC-32C of these eight bytes, the data, and the masked CRC-32C of the data, all little-endian.
"""

from __future__ import annotations

import mmap
import os
import struct
from collections.abc import Callable, Sequence
from typing import Any

import google_crc32c
import numpy as np

from staging_tf1.errors import CorruptRecordError

HEADER_BYTES = 12
FOOTER_BYTES = 4
FRAMING_BYTES = HEADER_BYTES + FOOTER_BYTES

# TensorFlow rotates the checksum right by 15 bits and adds this constant, because checksums of data that contains
# checksums are weak.
_MASK_DELTA = 0xA282EAD8

# Headers per checksum verification. So a corrupt length is noticed before many wrong headers follow.
_BATCH = 8192

_BAD_LENGTH = "the checksum of its length does not match"

_length_at = struct.Struct("<Q").unpack_from


def masked_crcs(messages: Sequence[bytes]) -> np.ndarray[Any, Any]:
    """Return the masked CRC-32C of each byte string: uint32, little-endian.

    TensorFlow's own implementation has no public name.

    >>> hex(masked_crcs([b"123456789"])[0])
    '0xc78ab0e5'
    """
    crcs = np.array([google_crc32c.value(message) for message in messages], "<u4")
    turned: np.ndarray[Any, Any] = (crcs >> np.uint32(15)) | (crcs << np.uint32(17))
    turned += np.uint32(_MASK_DELTA)
    return turned


def plain_header(header: bytes) -> bool:
    """Whether the first 12 bytes of a file are a record header. Otherwise the file may be compressed."""
    if len(header) < HEADER_BYTES:
        return False
    return bool(masked_crcs([header[:8]]) == np.frombuffer(header, "<u4", 1, 8))


def scan(
    path: str | os.PathLike[str],
    *,
    skip_corrupt: bool = False,
    progress: Callable[[int], Any] | None = None,
    name: str | None = None,
) -> tuple[np.ndarray[Any, Any], int]:
    """Find the offsets of the records of an uncompressed file, in one pass over their headers.

    Returns int64 offsets, one per record, followed by the end of the last record; and the number of lost bytes after
    it. Raises CorruptRecordError if a header is corrupt, or the last record is truncated. With `skip_corrupt` it stops
    there instead: the length in a header gives the offset of the next record, so later records cannot be located.
    `progress` is called now and then with the number of bytes scanned. `name` is what messages call the file.
    """
    size, name = os.path.getsize(path), name or os.fspath(path)
    if not size:
        return np.zeros(1, np.int64), 0
    with open(path, "rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as data:
        parts, position, problem = [np.zeros(0, np.int64)], 0, ""
        while position < size and not problem:
            starts, position, problem = _walk(data, position, size)
            good = _good_headers(data, starts)
            if good < len(starts):
                position, problem = int(starts[good]), _BAD_LENGTH
            parts.append(starts[:good])
            if progress is not None:
                progress(position)
    if problem and not skip_corrupt:
        number = sum(map(len, parts))
        raise CorruptRecordError(
            f"{name}: record {number}, at byte {position}, is corrupt: {problem}. Copy the file again, or "
            f"use skip_corrupt=True to skip the {size - position} bytes from there on.",
            name,
            position,
        )
    return np.concatenate([*parts, np.array([position], np.int64)]), size - position


def _walk(data: mmap.mmap, position: int, size: int) -> tuple[np.ndarray[Any, Any], int, str]:
    """Follow up to `_BATCH` headers. Returns their offsets, the offset of the next, and what is wrong with it."""
    starts: list[int] = []
    for _ in range(_BATCH):
        if position == size:
            break
        if position + HEADER_BYTES > size:
            return np.array(starts, np.int64), position, "the file ends inside its header"
        end = position + FRAMING_BYTES + _length_at(data, position)[0]
        if end > size:
            # The file is truncated, or the length is corrupt. The checksum of the length tells which.
            truncated = plain_header(data[position : position + HEADER_BYTES])
            problem = f"the file ends {end - size} bytes before the end of the record" if truncated else _BAD_LENGTH
            return np.array(starts, np.int64), position, problem
        starts.append(position)
        position = end
    return np.array(starts, np.int64), position, ""


def _good_headers(data: mmap.mmap, starts: np.ndarray[Any, Any]) -> int:
    """How many headers match their checksums, up to the first that does not."""
    if not len(starts):
        return 0
    headers = [data[start : start + HEADER_BYTES] for start in starts.tolist()]
    written = np.frombuffer(b"".join([header[8:] for header in headers]), "<u4")
    wrong = np.flatnonzero(masked_crcs([header[:8] for header in headers]) != written)
    return int(wrong[0]) if len(wrong) else len(starts)
