"""The checksum of TFRecord files: CRC-32C, masked as TensorFlow masks it.

`google-crc32c` computes it (0.2 us for 1 KB) where it is installed, as with the extra `tfrecord`; else numpy
does, with tables (5 us for 1 KB), since TensorFlow has no public name for its own.

The numpy way rests on the CRC being linear: leading zero bytes do not change it (the starting value of all
ones is xored into the first four bytes instead), so all messages are cut into pieces of equal length, the
first one padded in front, and the pieces of all messages are looked up in one go.
"""

from __future__ import annotations

import functools
import importlib
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

__all__ = ["crc32c", "crc32c_many", "mask", "masked_crcs"]

_POLYNOMIAL = 0x82F63B78  # Castagnoli's, its bits reversed (RFC 3720, appendix B.4)
_ONES = 0xFFFFFFFF
# TensorFlow: "rotate right by 15 bits and add a constant", so that a checksum of data with checksums in it is
# none.
_MASK_DELTA = 0xA282EAD8
_STRIDE = 64  # bytes looked up at once: as many tables of 1 KB each, which the first-level cache holds
_PIECE = 1024  # bytes of a piece; the pieces of one message are joined in Python


@functools.lru_cache(maxsize=1)
def _compiled() -> Callable[[Any], int] | None:
    try:
        module = importlib.import_module("google_crc32c")
    except ImportError:
        return None
    value: Callable[[Any], int] = module.value
    return value


def crc32c(data: bytes) -> int:
    """The CRC-32C of some bytes.

    >>> hex(crc32c(b"123456789"))
    '0xe3069283'
    """
    return crc32c_many([data])[0]


def crc32c_many(messages: Sequence[Any]) -> list[int]:
    """The CRC-32C of each of several byte strings, or rows of a uint8 matrix."""
    value = _compiled()
    if value is not None:
        return [value(message) for message in messages]
    return _with_numpy(messages)


def mask(crcs: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    """CRCs as they stand in a TFRecord file: uint32 of any shape."""
    turned: np.ndarray[Any, Any] = (crcs >> np.uint32(15)) | (crcs << np.uint32(17))
    turned += np.uint32(_MASK_DELTA)
    return turned


def masked_crcs(rows: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    """The masked CRC-32C of each row of a uint8 matrix with 4 to 64 columns: uint32 [rows]."""
    width = rows.shape[1]
    places = rows.astype(np.intp)
    places[:, :4] ^= 0xFF
    places += np.arange(_STRIDE - width, _STRIDE) * 256
    return mask(_xored(_tables().take(places)) ^ np.uint32(_ONES))


def _with_numpy(messages: Sequence[Any]) -> list[int]:
    counts = [-(-len(message) // _PIECE) for message in messages]
    pieces = np.zeros((sum(counts), _PIECE), np.uint8)
    flat, end = pieces.reshape(-1), 0
    for message, count in zip(messages, counts):
        end += count * _PIECE
        first = end - len(message)
        flat[first:end] = np.frombuffer(message, np.uint8)
        flat[first : min(first + 4, end)] ^= 0xFF
    crcs = iter(_look_up(pieces).tolist())
    joined = [_join([next(crcs) for _ in range(count)]) for count in counts]
    return [crc ^ _ONES if len(message) >= 4 else _bytewise(message) for message, crc in zip(messages, joined)]


def _look_up(rows: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    """The linear part of the CRC of each row; their length is a multiple of `_STRIDE`."""
    tables = _tables()
    offsets = np.arange(_STRIDE) * 256
    crcs = np.zeros(len(rows), "<u4")
    for start in range(0, rows.shape[1], _STRIDE):
        block = rows[:, start : start + _STRIDE].astype(np.intp)
        block[:, :4] ^= crcs.view(np.uint8).reshape(-1, 4)
        block += offsets
        crcs = _xored(tables.take(block))
    return crcs


def _xored(rows: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    # As Any: numpy's stubs differ from release to release on whether this call is right.
    xor: Any = np.bitwise_xor
    reduced: np.ndarray[Any, Any] = xor.reduce(rows, -1)
    return reduced


def _join(crcs: list[int]) -> int:
    shifts = _piece_shifts()
    total = 0
    for crc in crcs:
        moved = shifts[0][total & 255] ^ shifts[1][total >> 8 & 255]
        total = moved ^ shifts[2][total >> 16 & 255] ^ shifts[3][total >> 24] ^ crc
    return total


def _bytewise(message: bytes) -> int:
    table, crc = _byte_table().tolist(), _ONES
    for byte in message:
        crc = crc >> 8 ^ table[(crc ^ byte) & 255]
    return crc ^ _ONES


@functools.lru_cache(maxsize=1)
def _byte_table() -> np.ndarray[Any, Any]:
    table = np.arange(256, dtype="<u4")
    for _ in range(8):
        table = (table >> 1) ^ np.where(table & 1, np.uint32(_POLYNOMIAL), np.uint32(0))
    return table


def _append_zero(crcs: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    moved: np.ndarray[Any, Any] = (crcs >> 8) ^ _byte_table()[crcs & 255]
    return moved


@functools.lru_cache(maxsize=1)
def _tables() -> np.ndarray[Any, Any]:
    """`tables[256 * j + b]`: byte `b` at place `j` of a block."""
    rows = [_byte_table()]
    for _ in range(_STRIDE - 1):
        rows.append(_append_zero(rows[-1]))
    return np.concatenate(rows[::-1])


@functools.lru_cache(maxsize=1)
def _piece_shifts() -> list[list[int]]:
    """`shifts[p][b]`: what a piece of zeros makes of a CRC whose byte `p` is `b`."""
    crcs = np.arange(256, dtype="<u4") << (8 * np.arange(4, dtype="<u4"))[:, None]
    for _ in range(_PIECE):
        crcs = _append_zero(crcs)
    shifts: list[list[int]] = crcs.tolist()
    return shifts
