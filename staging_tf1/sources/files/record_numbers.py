"""How the records of several files are numbered through."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

import numpy as np

__all__ = ["RecordNumbers"]


class RecordNumbers:
    """The numbers of the records of several files, in the order of the files.

    >>> numbers = RecordNumbers([4, 0, 7])
    >>> numbers.total, numbers.locate(5)
    (11, (2, 1))

    Args:
      counts: how many records each file has.
    """

    def __init__(self, counts: Iterable[int]) -> None:
        self._firsts = np.cumsum([0, *counts])

    @property
    def total(self) -> int:
        """Records in all files."""
        return int(self._firsts[-1])

    def locate(self, record: int) -> tuple[int, int]:
        """The number of the file that holds a record, and the record's number in that file."""
        file = int(np.searchsorted(self._firsts, record, side="right")) - 1
        return file, record - int(self._firsts[file])

    def split(self, records: np.ndarray[Any, Any]) -> Iterator[tuple[int, np.ndarray[Any, Any], np.ndarray[Any, Any]]]:
        """Deals out records to their files.

        Args:
          records: their numbers, int64 [n].

        Yields:
          For each file that has some of them: its number, the places of its records in `records`, and their numbers
          in the file.
        """
        files = np.searchsorted(self._firsts, records, side="right") - 1
        for file in np.unique(files).tolist():
            places = np.flatnonzero(files == file)
            yield file, places, records[places] - self._firsts[file]
