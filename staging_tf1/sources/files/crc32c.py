"""The checksum of TFRecord files: CRC-32C, masked as in TensorFlow.

The package `google-crc32c` computes it in 0.2 us per KB if it is installed, for example with the extra `tfrecord`.
Otherwise numpy computes it with tables, in 5 us per KB. TensorFlow's own implementation has no public name.

The numpy implementation uses that the CRC is linear. Leading zero bytes do not change it, because the initial value of
all ones is xored into the first four bytes instead. All messages are therefore divided into pieces of equal length,
padded at the front, and the pieces of all messages are looked up together.
"""

from __future__ import annotations

import functools
import importlib
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

__all__ = ["crc32c", "crc32c_many", "mask", "masked_crcs"]

_POLYNOMIAL = 0x82F63B78  # Castagnoli's polynomial, bit-reversed (RFC 3720, appendix B.4)
_ONES = 0xFFFFFFFF
# TensorFlow rotates the checksum right by 15 bits and adds this constant, because checksums of data that contains
# checksums are weak.
_MASK_DELTA = 0xA282EAD8
_STRIDE = 64  # bytes looked up at once. Needs one table of 1 KB per byte, which together fit into the L1 cache.
_PIECE = 1024  # bytes per piece. The pieces of a message are joined in Python.


@functools.lru_cache(maxsize=1)
def _compiled() -> Callable[[Any], int] | None:
    try:
        module = importlib.import_module("google_crc32c")
    except ImportError:
        return None
    value: Callable[[Any], int] = module.value
    return value


def crc32c(data: bytes) -> int:
    """Compute the CRC-32C of a byte string.

    >>> hex(crc32c(b"123456789"))
    '0xe3069283'
    """
    return crc32c_many([data])[0]


def crc32c_many(messages: Sequence[Any]) -> list[int]:
    """Compute the CRC-32C of each byte string, or of each row of a uint8 matrix."""
    value = _compiled()
    if value is not None:
        return [value(message) for message in messages]
    return _with_numpy(messages)


def mask(crcs: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    """Mask CRCs as in a TFRecord file. Takes and returns uint32 of any shape."""
    turned: np.ndarray[Any, Any] = (crcs >> np.uint32(15)) | (crcs << np.uint32(17))
    turned += np.uint32(_MASK_DELTA)
    return turned


def masked_crcs(rows: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    """Compute the masked CRC-32C of each row of a uint8 matrix with 4 to 64 columns: uint32 [rows]."""
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
    """Compute the linear part of the CRC of each row, whose length must be a multiple of `_STRIDE`."""
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
    # Any, because numpy's stubs accept this call in some releases only.
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
    """`tables[256 * j + b]` is the CRC of byte `b` at place `j` of a block."""
    rows = [_byte_table()]
    for _ in range(_STRIDE - 1):
        rows.append(_append_zero(rows[-1]))
    return np.concatenate(rows[::-1])


@functools.lru_cache(maxsize=1)
def _piece_shifts() -> list[list[int]]:
    """`shifts[p][b]` is a CRC with byte `p` equal to `b`, after a piece of zeros."""
    crcs = np.arange(256, dtype="<u4") << (8 * np.arange(4, dtype="<u4"))[:, None]
    for _ in range(_PIECE):
        crcs = _append_zero(crcs)
    shifts: list[list[int]] = crcs.tolist()
    return shifts
