"""The checksum of TFRecord files: CRC-32C, masked as in TensorFlow.

TensorFlow's own implementation has no public name.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import google_crc32c
import numpy as np

__all__ = ["masked_crcs"]

# TensorFlow rotates the checksum right by 15 bits and adds this constant, because checksums of data that contains
# checksums are weak.
_MASK_DELTA = 0xA282EAD8


def masked_crcs(messages: Sequence[bytes]) -> np.ndarray[Any, Any]:
    """Return the masked CRC-32C of each byte string: uint32, little-endian.

    >>> hex(masked_crcs([b"123456789"])[0])
    '0xc78ab0e5'
    """
    crcs = np.array([google_crc32c.value(message) for message in messages], "<u4")
    turned: np.ndarray[Any, Any] = (crcs >> np.uint32(15)) | (crcs << np.uint32(17))
    turned += np.uint32(_MASK_DELTA)
    return turned
