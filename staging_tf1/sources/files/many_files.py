"""Several record files as one: consecutive record numbers, and a bounded pool of open files, which must not change."""

from __future__ import annotations

import os
import threading
from collections import OrderedDict
from collections.abc import Callable, Iterable, Iterator
from typing import Any, Generic, TypeVar

import numpy as np

from staging_tf1.errors import CorruptRecordError, RecordFileError
from staging_tf1.sources.files.os_errors import change_of, cure_of

# Well below the usual limit of 1,024 open files per process.
_FILES_OPEN = 128

_File = TypeVar("_File")

Errors = dict[int, CorruptRecordError]
# Begins to read records of one file, and returns what waits for them.
Begin = Callable[[int, np.ndarray[Any, Any]], Callable[[], tuple[list[bytes], Errors]]]


class RecordNumbers:
    """Maps record numbers to files, from the number of records in each. Numbers continue from file to file.

    >>> numbers = RecordNumbers([4, 0, 7])
    >>> numbers.total, numbers.locate(5)
    (11, (2, 1))
    """

    def __init__(self, counts: Iterable[int]) -> None:
        self._firsts = np.cumsum([0, *counts])

    @property
    def total(self) -> int:
        """Records in all files."""
        return int(self._firsts[-1])

    @property
    def counts(self) -> list[int]:
        """Records in each file."""
        counts: list[int] = np.diff(self._firsts).tolist()
        return counts

    def locate(self, record: int) -> tuple[int, int]:
        """Return the file of a record, and its number in that file."""
        file = int(np.searchsorted(self._firsts, record, side="right")) - 1
        return file, record - int(self._firsts[file])

    def split(self, records: np.ndarray[Any, Any]) -> Iterator[tuple[int, np.ndarray[Any, Any], np.ndarray[Any, Any]]]:
        """Group records, int64 [n], by file.

        Yields for each file with at least one of the records: the number of the file, the rows of its records in
        `records`, and their numbers in the file.
        """
        files = np.searchsorted(self._firsts, records, side="right") - 1
        for file in np.unique(files).tolist():
            rows = np.flatnonzero(files == file)
            yield file, rows, records[rows] - self._firsts[file]

    def read(self, records: np.ndarray[Any, Any], begin: Begin) -> tuple[list[bytes], Errors]:
        """Read records, int64 [n], from any of the files: their bytes in order, and errors by row.

        `begin` begins the same for the records of one file, given its number and the numbers of records in it.
        """
        result = [b""] * len(records)
        errors: Errors = {}
        # Those of remote files are under way at the same time.
        begun = [(rows, begin(file, local)) for file, rows, local in self.split(records)]
        for rows, finish in begun:
            payloads, wrong = finish()
            for row, record in zip(rows.tolist(), payloads):
                result[row] = record
            errors.update((int(rows[row]), error) for row, error in wrong.items())
        return result, errors


class OpenFile:
    """One open file. It stays readable if it is deleted.

    Args:
      name: for messages: "record file train.tfrecord".
      path: the file to open.
      known: its size in bytes and modification time in ns when the source was created; None if unknown.
      had: what it had then, for messages; None before a source is created.

    Raises:
      RecordFileError: it cannot be opened, or has changed.
    """

    # A class attribute, because __del__ also runs after a failed __init__.
    descriptor = -1

    def __init__(self, name: str, path: str, known: tuple[int, int] | None, had: str | None) -> None:
        self._name = name
        try:
            self.descriptor = os.open(path, os.O_RDONLY | getattr(os, "O_CLOEXEC", 0))
        except OSError as error:
            cannot = "cannot" if had is None else "can no longer"
            message = f"{name} {cannot} be opened: {error.strerror}. {cure_of(error, had or '')}"
            raise RecordFileError(message.rstrip()) from error
        status = os.fstat(self.descriptor)
        self.state = status.st_size, status.st_mtime_ns
        if known is not None and self.state != known:
            raise RecordFileError(
                f"{name} has changed since the source was created: {change_of(known, status)}. Create the source again."
            )

    def __del__(self) -> None:
        if self.descriptor >= 0:
            os.close(self.descriptor)

    def check_size(self, end: int) -> None:
        """Raise RecordFileError if the file is shorter than `end` bytes."""
        size = os.fstat(self.descriptor).st_size
        if size < end:
            raise RecordFileError(f"{self._name} was truncated to {size} bytes while in use; it had {end}.")


class OpenFiles(Generic[_File]):
    """Opens files by number on first use, and drops the least recently used. Thread-safe.

    A file must close itself when it is garbage-collected, because another thread may still be reading a dropped file.
    """

    def __init__(self, open_file: Callable[[int], _File]) -> None:
        self._open_file = open_file
        self._open: OrderedDict[int, _File] = OrderedDict()
        self._lock = threading.Lock()

    def __getstate__(self) -> dict[str, Any]:
        # Another process opens the files itself.
        return {"_open_file": self._open_file}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__init__(state["_open_file"])  # type: ignore[misc]

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
