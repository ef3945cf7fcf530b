"""`MappedFile`: the file of a `np.memmap`, which may be cut or replaced while a source reads it."""

from __future__ import annotations

import mmap
import os
from typing import Any

import numpy as np

from staging_tf1.errors import RecordFileError


def file_of(array: Any) -> np.memmap[Any, Any] | None:
    """Return the `np.memmap` of a file that holds an array; None if there is none, or it has private changes."""
    base = array
    while isinstance(base, np.ndarray) and not isinstance(base.base, mmap.mmap):
        base = base.base
    return base if isinstance(base, np.memmap) and base.mode != "c" and base.filename is not None else None


def identity_of(path: str) -> tuple[int, int] | None:
    """Return what distinguishes a file from one that replaces it; None if it does not exist."""
    try:
        status = os.stat(path)
    except OSError:
        return None
    return status.st_dev, status.st_ino


class MappedFile:
    """The file that an array is mapped from.

    Args:
      owner: the source, for messages.
      mapped: the array.
    """

    def __init__(self, owner: str, mapped: np.memmap[Any, Any]) -> None:
        self._owner, self._path = owner, os.path.abspath(str(mapped.filename))
        self._nbytes = mapped.offset + mapped.nbytes
        self._identity = identity_of(self._path)

    def __setstate__(self, state: dict[str, Any]) -> None:
        # Another process maps whatever is at that path.
        vars(self).update(state)
        if identity_of(self._path) != self._identity:
            raise RecordFileError(
                f"{self._owner}: the file '{self._path}' was replaced or removed after it was mapped, and a worker "
                f"process would read another one. Start the program again, and write new data to a new path."
            )

    def check(self) -> None:
        """Raise RecordFileError if the file was truncated. Reading beyond its end would kill the process (SIGBUS)."""
        try:
            status = os.stat(self._path)
        except OSError:
            # Removed: its data stay as long as they are mapped.
            return
        if (status.st_dev, status.st_ino) == self._identity and status.st_size < self._nbytes:
            raise RecordFileError(
                f"{self._owner}: the file '{self._path}' was cut to {status.st_size} bytes after {self._nbytes} were "
                f"mapped. Write it again, and start the program again."
            )
