"""Reads records of ArrayRecord files by number, with the package `array-record`.

It uses the compiled reader of that package directly. The package's `ArrayRecordDataSource` starts a thread pool for
each batch, defines command-line flags on import, and treats a missing or corrupt file as empty.
"""

from __future__ import annotations

import contextlib
import importlib
import os
import re
from collections.abc import Sequence
from typing import Any

import numpy as np

from staging_tf1.arguments import cache_dir, scheme_of
from staging_tf1.errors import CorruptRecordError, RecordFileError
from staging_tf1.sources.files.local_copies import LocalCopies
from staging_tf1.sources.files.many_files import (
    Errors,
    Finish,
    OpenFile,
    OpenFiles,
    SerializedFiles,
    as_rows,
    odd_length,
)
from staging_tf1.sources.files.remote import RemoteFile

# Readahead suits sequential reads. With random access it would read megabytes per record.
_OPTIONS = "readahead_buffer_size:0,max_parallelism:0"
_BUFFER_BYTES = 32_768
# The first bytes of a Riegeli file. ArrayRecord files are Riegeli files.
_SIGNATURE = bytes.fromhex("83af70d10d884a3f")
# Prefixes of the reader's messages about corrupt data. All other messages are about failed reads.
_CORRUPT = ("Corrupted ", "Invalid ")


def array_record_module(owner: str) -> Any:
    """Import the compiled module of the package `array-record`, or raise ImportError for `owner`."""
    try:
        return importlib.import_module("array_record.python.array_record_module")
    except ImportError as error:
        raise ImportError(f"{owner} needs array-record. Install it: pip install 'staging-tf1[arrayrecord]'") from error


def is_array_record(path: str | RemoteFile) -> bool:
    """Whether a file starts with the signature of ArrayRecord files."""
    if isinstance(path, RemoteFile):
        return path.read(0, len(_SIGNATURE)) == _SIGNATURE
    try:
        with open(path, "rb") as file:
            return file.read(len(_SIGNATURE)) == _SIGNATURE
    except OSError:
        return False


class ArrayRecordFiles(SerializedFiles):
    """The records of several ArrayRecord files.

    The package reads local files only, so remote ones are copied to `copies`, or to the cache folder.

    Raises:
      ImportError: the package is not installed.
      RecordFileError: a file cannot be read, or is not an ArrayRecord file.
      CorruptRecordError: a file is truncated, or its index is corrupt.

    Attributes:
      group_sizes: for each file, how many records were compressed together. Reading one decompresses its whole group.
    """

    def __init__(self, paths: Sequence[str | RemoteFile], owner: str, copies: LocalCopies | None = None) -> None:
        reader = array_record_module(owner).ArrayRecordReader
        # The working directory may have changed when a file is opened again.
        files = [path if isinstance(path, RemoteFile) else os.path.abspath(path) for path in paths]
        names = list(map(str, paths))
        remote = [path for path in files if isinstance(path, RemoteFile)]
        if remote and copies is None:
            copies = LocalCopies(cache_dir())
        facts = []
        for path, name in zip(files, names):
            file = _opened(path, name, copies, reader)
            facts.append((file.state, file.num_records, file.group_size))
        # Files are reopened for reading, because each open file holds its index in memory.
        self._open = OpenFiles(lambda number: _opened(files[number], names[number], copies, reader, facts[number][0]))
        self.group_sizes = [size for _, _, size in facts]
        super().__init__(names, [count for _, count, _ in facts], remote)

    def first_length(self) -> int:
        """Return the number of bytes in the first record that is not corrupt."""
        for record in range(self.num_records):
            payloads, errors = self.read(np.array([record]))
            if not errors:
                return len(payloads[0])
        raise RecordFileError(f"all {self.num_records} records are corrupt in {', '.join(self.paths)}.")

    def _begin(self, file: int, records: np.ndarray[Any, Any], length: int | None) -> Finish:
        def finish() -> tuple[Any, Errors]:
            payloads, errors = self._open[file].read(records.tolist())
            if length is None:
                return payloads, errors
            for row, record in enumerate(records.tolist()):
                if row in errors:
                    payloads[row] = bytes(length)
                elif len(payloads[row]) != length:
                    raise odd_length(f"{self.paths[file]}: record {record}", len(payloads[row]), length)
            return as_rows(payloads, length), errors

        return finish


def _opened(
    path: str | RemoteFile, name: str, copies: LocalCopies | None, reader: Any, state: tuple[int, int] | None = None
) -> _OpenFile:
    if isinstance(path, str):
        return _OpenFile(path, name, reader, state)
    assert copies is not None
    place = copies

    def of_copy(copy: str | None) -> _OpenFile:
        if copy is None:
            raise RecordFileError(
                f"ArrayRecord file {path} does not fit into the folder {place.folder!r} beside the others of this "
                f"source, and ArrayRecord files are read from local copies. Raise "
                f"local_cache_bytes={place.limit_bytes}."
            )
        return _OpenFile(copy, name, reader, state)

    return place.used(path, of_copy)


class _OpenFile(OpenFile):
    def __init__(self, local: str, path: str, reader_class: Any, state: tuple[int, int] | None = None) -> None:
        self._path = path
        known = None if scheme_of(path) else state
        super().__init__(f"ArrayRecord file {path}", local, known, None if state is None else "")
        self._check_signature()
        self._reader = reader_class(local, _OPTIONS, file_reader_buffer_size=_BUFFER_BYTES)
        if not self._reader.ok():
            raise self._broken()
        self.num_records = int(self._reader.num_records())

    @property
    def group_size(self) -> int:
        """How many records were compressed together. 1 if the file does not say."""
        match = re.search(r"group_size:(\d+)", self._reader.writer_options_string() or "")
        return int(match[1]) if match else 1

    def read(self, records: list[int]) -> tuple[list[bytes], Errors]:
        """Read records by number: their bytes, and the errors of corrupt records by row."""
        errors: Errors = {}
        try:
            payloads = self._reader.read(records)
        except RuntimeError:
            payloads, errors = self._read_singly(records)
        # Checked after the read, because the reader returns empty records beyond the end of a truncated file.
        self.check_size(self.state[0])
        return payloads, errors

    def _read_singly(self, records: list[int]) -> tuple[list[bytes], Errors]:
        """Read records one by one. If one of several is corrupt, the reader returns none and does not say which."""
        payloads = [b""] * len(records)
        errors: Errors = {}
        for row, record in enumerate(records):
            try:
                payloads[row] = self._reader.read([record])[0]
            except RuntimeError as error:
                errors[row] = self._corrupt(record, str(error))
        return payloads, errors

    def _corrupt(self, record: int, reason: str) -> CorruptRecordError:
        if not reason.startswith(_CORRUPT):
            raise RecordFileError(f"reading record {record} of ArrayRecord file {self._path} failed: {reason}.")
        chunk = re.search(r"chunk at (\d+)", reason)
        at = f", at byte {chunk[1]}," if chunk else ""
        return CorruptRecordError(
            f"{self._path}: record {record}{at} is corrupt: {reason}. Copy the file again, or use "
            f"skip_corrupt=True to skip and count such records.",
            self._path,
            int(chunk[1]) if chunk else -1,
        )

    def _check_signature(self) -> None:
        with contextlib.suppress(OSError):  # a folder
            if os.pread(self.descriptor, len(_SIGNATURE), 0) == _SIGNATURE:
                return
        raise RecordFileError(
            f"{self._path} is not an ArrayRecord file: its header is invalid. Use TFRecordSource for TFRecord files."
        )

    def _broken(self) -> CorruptRecordError:
        try:
            self._reader.read([0])
            reason = "the reader gives no reason"
        except RuntimeError as error:
            reason = str(error)
        return CorruptRecordError(
            f"ArrayRecord file {self._path} is truncated, or the index at its end is corrupt: {reason}. Records cannot "
            f"be located without the index. Copy the file again.",
            self._path,
            self.state[0],
        )
