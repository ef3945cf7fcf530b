"""Files that are held open for the next read, up to a number."""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Callable
from typing import Generic, TypeVar

__all__ = ["OpenFiles"]

# Files held open at once: well below the usual limit of 1,024 a process.
_FILES_OPEN = 128

_File = TypeVar("_File")


class OpenFiles(Generic[_File]):
    """Opens files by number, when they are first wanted, and lets go of those unused for longest. Thread-safe.

    A file must close itself when it is collected: another thread may still read what this one lets go.

    Args:
      open_file: from a file's number to the open file.
    """

    def __init__(self, open_file: Callable[[int], _File]) -> None:
        self._open_file = open_file
        self._open: OrderedDict[int, _File] = OrderedDict()
        self._lock = threading.Lock()

    def __getitem__(self, number: int) -> _File:
        with self._lock:
            file = self._open.get(number)
            if file is None:
                file = self._open[number] = self._open_file(number)
                if len(self._open) > _FILES_OPEN:
                    self._open.popitem(last=False)
            else:
                self._open.move_to_end(number)
            return file
