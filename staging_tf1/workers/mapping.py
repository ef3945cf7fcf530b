"""Maps files into memory, without a descriptor for each where Python allows it."""

from __future__ import annotations

import mmap
import sys
from typing import Any

__all__ = ["mapped"]

# By default Python keeps a copy of the descriptor, only to resize the mapping. Slots would use up the limit of open
# files.
_OPTIONS: dict[str, Any] = {"trackfd": False} if sys.version_info >= (3, 13) else {}


def mapped(descriptor: int, nbytes: int) -> mmap.mmap:
    """Map the first bytes of a file. From Python 3.13 on, the mapping has no descriptor."""
    return mmap.mmap(descriptor, nbytes, **_OPTIONS)
