"""Reads records of several ArrayRecord files by number, through the package `array-record`.

Of that package this uses the compiled reader alone. Its `ArrayRecordDataSource` starts a pool of threads for each
batch, defines command-line flags when it is imported, and takes a file that is missing or broken for an empty one.
"""

from __future__ import annotations

import contextlib
import importlib
import os
import re
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from staging_tf1.errors import CorruptRecordError, RecordFileError, SpecError
from staging_tf1.sources.aligned import aligned_empty
from staging_tf1.sources.files.open_files import OpenFiles
from staging_tf1.sources.files.record_numbers import RecordNumbers

__all__ = ["ArrayRecordFiles", "array_record_module", "is_array_record"]

# Reading ahead is for reading front to back; here it would read megabytes for each record.
_OPTIONS = "readahead_buffer_size:0,max_parallelism:0"
_BUFFER_BYTES = 32_768
# The first bytes of each Riegeli file, of which ArrayRecord is a kind.
_SIGNATURE = bytes.fromhex("83af70d10d884a3f")
# How the reader begins to say that bytes are not what they were; all else is a failure of reading.
_CORRUPT = ("Corrupted ", "Invalid ")


def array_record_module(owner: str) -> Any:
    """The compiled module of the package `array-record`.

    Raises:
      ImportError: it is not installed.
    """
    try:
        return importlib.import_module("array_record.python.array_record_module")
    except ImportError as error:
        raise ImportError(f"{owner} needs array-record. Install it: pip install 'staging-tf1[arrayrecord]'") from error


def is_array_record(path: str) -> bool:
    """Whether a file begins as an ArrayRecord file does."""
    try:
        with open(path, "rb") as file:
            return file.read(len(_SIGNATURE)) == _SIGNATURE
    except OSError:
        return False


class ArrayRecordFiles:
    """The records of several ArrayRecord files, numbered through in the order of the files. Thread-safe.

    Args:
      paths: the files.
      owner: who asks, for messages.

    Raises:
      ImportError: the package is not installed.
      RecordFileError: a file cannot be read, or is no ArrayRecord file.
      CorruptRecordError: a file is cut off, or its index is broken.

    Attributes:
      paths: the files, in order.
      group_sizes: for each file, how many records were compressed together: to read one, all are unpacked.
    """

    def __init__(self, paths: Sequence[str], owner: str) -> None:
        reader = array_record_module(owner).ArrayRecordReader
        self.paths = names = list(paths)
        states, counts, group_sizes = [], [], []
        for path in names:
            file = _OpenFile(path, reader)
            states.append(file.state)
            counts.append(file.num_records)
            group_sizes.append(file.group_size)
        self.group_sizes = group_sizes
        self._numbers = RecordNumbers(counts)
        # Opened again for reading: each holds an index in memory, so not all of them at once.
        self._open = OpenFiles(lambda number: _OpenFile(names[number], reader, states[number]))

    @property
    def num_records(self) -> int:
        """Records in all files."""
        return self._numbers.total

    def first_length(self) -> int:
        """Bytes in the first record that is not corrupt."""
        for record in range(self.num_records):
            found, errors = self.read(np.array([record]))
            if not errors:
                return len(found[0])
        raise RecordFileError(f"all {self.num_records} records are corrupt in {', '.join(self.paths)}.")

    def describe(self, record: int) -> str:
        """Names record number `record`, for messages."""
        file, local = self._numbers.locate(record)
        return f"{self.paths[file]}: record {local}"

    def read(self, records: np.ndarray[Any, Any]) -> tuple[list[bytes], dict[int, CorruptRecordError]]:
        """Reads records; see `SerializedFiles.read`."""
        return self._numbers.read(records, lambda file, local: self._open[file].read(local.tolist()))

    def read_rows(
        self, records: np.ndarray[Any, Any], length: int
    ) -> tuple[np.ndarray[Any, Any], dict[int, CorruptRecordError]]:
        """Reads records of one length; see `SerializedFiles.read_rows`."""
        found, errors = self.read(records)
        for place in errors:
            found[place] = bytes(length)
        for place, record in enumerate(found):
            if len(record) != length:
                raise SpecError(
                    f"{self.describe(int(records[place]))} has {len(record)} bytes, the first one has {length}; "
                    f"as_uint8=True is for records of one length."
                )
        rows = aligned_empty((len(found), length), np.uint8)
        rows.reshape(-1)[:] = np.frombuffer(b"".join(found), np.uint8)
        return rows, errors


class _State(NamedTuple):
    """What tells whether a file is still the one that it was."""

    size: int
    mtime_ns: int


class _OpenFile:
    """One open file, which stays readable when its name is removed."""

    # On the class, because __del__ runs even where __init__ has failed.
    _descriptor = -1

    def __init__(self, path: str, reader_class: Any, state: _State | None = None) -> None:
        self._path = path
        try:
            self._descriptor = os.open(path, os.O_RDONLY | getattr(os, "O_CLOEXEC", 0))
        except OSError as error:
            again = "" if state is None else " any more"
            raise RecordFileError(f"ArrayRecord file {path} cannot be opened{again}: {error.strerror}.") from error
        self.state = self._look()
        if state is not None and self.state != state:
            raise RecordFileError(
                f"ArrayRecord file {path} has changed since the source was made: it has {self.state.size} bytes now, "
                f"then it had {state.size}, or its time is another. Make the source again."
            )
        self._check_signature()
        self._reader = reader_class(path, _OPTIONS, file_reader_buffer_size=_BUFFER_BYTES)
        if not self._reader.ok():
            raise self._broken()
        self.num_records = int(self._reader.num_records())

    def __del__(self) -> None:
        if self._descriptor >= 0:
            os.close(self._descriptor)

    @property
    def group_size(self) -> int:
        """How many records were compressed together; 1 if the file does not tell."""
        found = re.search(r"group_size:(\d+)", self._reader.writer_options_string() or "")
        return int(found[1]) if found else 1

    def read(self, records: list[int]) -> tuple[list[bytes], dict[int, CorruptRecordError]]:
        """The records of these numbers; and for the corrupt ones, by their place, what is wrong."""
        errors: dict[int, CorruptRecordError] = {}
        try:
            found = self._reader.read(records)
        except RuntimeError:
            found, errors = self._read_singly(records)
        # Afterwards, because of a record behind the end of a file that was cut the reader says that it is empty.
        size = self._look().size
        if size < self.state.size:
            raise RecordFileError(
                f"ArrayRecord file {self._path} was cut to {size} bytes while it was in use; it had {self.state.size}."
            )
        return found, errors

    def _read_singly(self, records: list[int]) -> tuple[list[bytes], dict[int, CorruptRecordError]]:
        """Finds out which records cannot be read: the reader names none, and gives none of the others."""
        found = [b""] * len(records)
        errors: dict[int, CorruptRecordError] = {}
        for place, record in enumerate(records):
            try:
                found[place] = self._reader.read([record])[0]
            except RuntimeError as error:
                errors[place] = self._corrupt(record, str(error))
        return found, errors

    def _corrupt(self, record: int, reason: str) -> CorruptRecordError:
        if not reason.startswith(_CORRUPT):
            raise RecordFileError(f"reading record {record} of ArrayRecord file {self._path} failed: {reason}.")
        chunk = re.search(r"chunk at (\d+)", reason)
        place = f", at byte {chunk[1]}," if chunk else ""
        return CorruptRecordError(
            f"{self._path}: record {record}{place} is corrupt: {reason}. Copy the file again, or give "
            f"skip_corrupt=True to leave such records out and count them.",
            self._path,
            int(chunk[1]) if chunk else -1,
        )

    def _check_signature(self) -> None:
        with contextlib.suppress(OSError):  # of a folder, which the same message is for
            if os.pread(self._descriptor, len(_SIGNATURE), 0) == _SIGNATURE:
                return
        raise RecordFileError(
            f"{self._path} is no ArrayRecord file: it does not begin as one. For TFRecord files there is "
            f"TFRecordSource."
        )

    def _broken(self) -> CorruptRecordError:
        try:
            self._reader.read([0])
            reason = "the reader does not say why"
        except RuntimeError as error:
            reason = str(error)
        return CorruptRecordError(
            f"ArrayRecord file {self._path} is cut off, or its end is corrupt, where the index of its records stands: "
            f"{reason}. Without the index none of them can be found. Copy the file again.",
            self._path,
            self.state.size,
        )

    def _look(self) -> _State:
        status = os.fstat(self._descriptor)
        return _State(status.st_size, status.st_mtime_ns)
