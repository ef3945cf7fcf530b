"""`SerializedFiles`: several record files as one; and a bounded pool of open files, which must not change."""

from __future__ import annotations

import abc
import os
import threading
from collections import OrderedDict
from collections.abc import Callable, Iterable
from typing import Any, Generic, TypeVar

import numpy as np

from staging_tf1.errors import CorruptRecordError, RecordFileError, SpecError
from staging_tf1.sources.aligned import aligned_empty
from staging_tf1.sources.files.os_errors import change_of, cure_of
from staging_tf1.sources.files.remote import RemoteFile

# Well below the usual limit of 1,024 open files per process.
_FILES_OPEN = 128

_File = TypeVar("_File")

Errors = dict[int, CorruptRecordError]
# Waits for records: a list of bytes, or a matrix; and the errors of corrupt ones by row.
Finish = Callable[[], tuple[Any, Errors]]


class SerializedFiles(abc.ABC):
    """The records of one or more files, with consecutive numbers across files. Thread-safe.

    Attributes:
      paths: the files, in order.
      counts: records in each file.
      num_records: records in all files.
      remote: those files that are read from a store, in order.
    """

    def __init__(self, paths: list[str], counts: Iterable[int], remote: list[RemoteFile]) -> None:
        self.paths, self.counts, self.remote = paths, list(counts), remote
        self._firsts = np.cumsum([0, *self.counts])
        self.num_records = int(self._firsts[-1])

    @abc.abstractmethod
    def first_length(self) -> int:
        """Return the number of bytes in the first readable record."""

    def describe(self, record: int) -> str:
        """Name record number `record`, for messages."""
        file, local = self._located(record)
        return f"{self.paths[file]}: record {local}"

    def read(self, records: np.ndarray[Any, Any]) -> tuple[list[bytes], Errors]:
        """Read records by number, int64 [n].

        Returns their bytes, in this order, and the errors of corrupt records by row.
        Raises RecordFileError if a file cannot be read, or has changed.
        """
        if len(self.paths) == 1:
            return self._begin(0, records, None)()
        payloads = np.empty(len(records), object)
        errors = self._scatter(records, None, payloads)
        return payloads.tolist(), errors

    def read_rows(self, records: np.ndarray[Any, Any], length: int) -> tuple[np.ndarray[Any, Any], Errors]:
        """Read records of `length` bytes into a new aligned uint8 matrix [n, length]. See `read`.

        Raises SpecError if a record has another length.
        """
        if len(self.paths) == 1:
            return self._begin(0, records, length)()
        rows = aligned_empty((len(records), length), np.uint8)
        return rows, self._scatter(records, length, rows)

    @abc.abstractmethod
    def _begin(self, file: int, records: np.ndarray[Any, Any], length: int | None) -> Finish:
        """Begin to read records of one file, by their numbers in it: as a matrix if they have one `length`."""

    def _scatter(self, records: np.ndarray[Any, Any], length: int | None, result: np.ndarray[Any, Any]) -> Errors:
        """Read records of several files into the rows of `result`, and return the errors by row."""
        files = self._firsts.searchsorted(records, side="right") - 1
        errors: Errors = {}
        parts = [(file, np.flatnonzero(files == file)) for file in np.unique(files).tolist()]
        # Those of remote files are under way at the same time.
        begun = [(rows, self._begin(file, records[rows] - self._firsts[file], length)) for file, rows in parts]
        for rows, finish in begun:
            read, wrong = finish()
            result[rows] = read
            errors.update((int(rows[row]), error) for row, error in wrong.items())
        return errors

    def _located(self, record: int) -> tuple[int, int]:
        """Return the file of a record, and its number in that file."""
        file = int(self._firsts.searchsorted(record, side="right")) - 1
        return file, record - int(self._firsts[file])


def as_rows(payloads: Any, length: int) -> np.ndarray[Any, Any]:
    """Return records of `length` bytes as a matrix, if they are none yet."""
    if isinstance(payloads, np.ndarray):
        return payloads
    rows = aligned_empty((len(payloads), length), np.uint8)
    rows.reshape(-1)[:] = np.frombuffer(b"".join(payloads), np.uint8)
    return rows


def odd_length(where: str, got: int, length: int) -> SpecError:
    """Return the error of a record that has another length than the first one."""
    return SpecError(
        f"{where} has {got} bytes, but the first record has {length}. as_uint8=True requires records of the same "
        f"length."
    )


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
