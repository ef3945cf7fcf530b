"""A bounded pool of open files."""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Callable
from typing import Generic, TypeVar

__all__ = ["OpenFiles"]

# Well below the usual limit of 1,024 open files per process.
_FILES_OPEN = 128

_File = TypeVar("_File")


class OpenFiles(Generic[_File]):
    """Opens files by number on first use, and drops the least recently used. Thread-safe.

    A file must close itself when it is garbage-collected, because another thread may still be reading a dropped file.
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
