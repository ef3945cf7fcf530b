"""Encodes rows of arrays as `tf.train.Example` records, without TensorFlow.

The wire format is defined in `tensorflow/core/example/feature.proto`: a map from names to lists of bytes (field 1),
float32 (field 2) or int64 (field 3).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from staging_tf1.errors import SpecError


def storage_kind(array: np.ndarray[Any, Any]) -> str:
    """Return how rows of `array` are stored: "bytes", "float", "int64", or "raw": a uint8 row as one string.

    Raises SpecError if an Example cannot hold the dtype.
    """
    kind = array.dtype.kind
    if array.dtype == np.uint8 and array.ndim > 1:
        return "raw"
    if kind in "biu" and array.dtype != np.uint64:
        return "int64"
    if kind == "f" and array.dtype.itemsize <= 8:
        return "float"
    if kind in "SUTO":
        return "bytes"
    raise SpecError(f"a tf.train.Example cannot hold dtype {array.dtype}: it supports int64, float32 and bytes.")


def encode_example(row: Mapping[str, np.ndarray[Any, Any]], kinds: Mapping[str, str]) -> bytes:
    """Serialize one `tf.train.Example` from named arrays, which are flattened, and their `storage_kind`.

    Raises SpecError if a number is too large for float32.
    """
    entries = b"".join(_entry(name, kinds[name], value) for name, value in sorted(row.items()))
    return _field(1, entries)


def feature_text(name: str, array: np.ndarray[Any, Any]) -> str:
    """Return the entry of a `features` dict that parses the component.

    >>> feature_text("label", np.zeros(10, np.int64))
    "'label': tf.io.FixedLenFeature([], tf.int64)"
    """
    kind = storage_kind(array)
    dtype = {"raw": "string", "bytes": "string", "float": "float32", "int64": "int64"}[kind]
    shape = [] if kind == "raw" else list(array.shape[1:])
    hint = f",  # tf.io.decode_raw(x, tf.uint8), reshaped to {list(array.shape[1:])}" if kind == "raw" else ""
    return f"{name!r}: tf.io.FixedLenFeature({shape}, tf.{dtype}){hint}"


def _entry(name: str, kind: str, value: np.ndarray[Any, Any]) -> bytes:
    """Encode an entry of the map: its key, and a Feature with one of the three lists."""
    if kind == "raw":
        values = _field(1, _field(1, value.tobytes()))
    elif kind == "bytes":
        values = _field(1, b"".join(_field(1, _as_bytes(element)) for element in value.ravel()))
    elif kind == "float":
        values = _field(2, _field(1, _as_floats(name, value).tobytes()))
    else:
        values = _field(3, _field(1, b"".join(map(_varint, value.ravel().tolist()))))
    return _field(1, _field(1, name.encode()) + _field(2, values))


def _as_floats(name: str, value: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    with np.errstate(over="ignore"):
        floats = value.astype("<f4")
    too_large = np.isinf(floats) & np.isfinite(value)
    if too_large.any():
        raise SpecError(
            f"array '{name}': {value[too_large].flat[0]} is too large for float32, as which a tf.train.Example stores "
            "numbers. Scale the array, or store its bytes: strings of array[i].tobytes()."
        )
    return floats


def _as_bytes(value: Any) -> bytes:
    return value.encode() if isinstance(value, str) else bytes(value)


def _field(number: int, payload: bytes) -> bytes:
    return bytes([number << 3 | 2]) + _varint(len(payload)) + payload


def _varint(value: int) -> bytes:
    value = int(value) & 0xFFFF_FFFF_FFFF_FFFF  # negative numbers are ten bytes in two's complement
    if value < 0x80:
        return bytes([value])
    encoded = bytearray()
    while value > 0x7F:
        encoded.append(value & 0x7F | 0x80)
        value >>= 7
    encoded.append(value)
    return bytes(encoded)
