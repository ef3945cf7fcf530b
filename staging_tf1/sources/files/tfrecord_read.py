"""Reads and verifies records of indexed TFRecord files by number."""

from __future__ import annotations

import mmap
import os
from collections.abc import Callable, Sequence
from typing import Any, Literal, NamedTuple

import numpy as np

from staging_tf1.errors import CorruptRecordError, RecordFileError
from staging_tf1.sources.aligned import aligned_empty
from staging_tf1.sources.files.many_files import (
    Errors,
    Finish,
    OpenFile,
    OpenFiles,
    SerializedFiles,
    as_rows,
    odd_length,
)
from staging_tf1.sources.files.tfrecord_frames import FOOTER_BYTES, FRAMING_BYTES, HEADER_BYTES, masked_crcs
from staging_tf1.sources.files.tfrecord_index import UNPACKED_SUFFIX, RecordIndex

_EIGHT = np.arange(8)
_FOUR = np.arange(4, 0, -1)


class RecordFiles(SerializedFiles):
    """The records of several TFRecord files.

    `access="mmap"` reads from the page cache without system calls. "pread" makes one system call per record and
    releases the GIL while it waits. It suits slow storage, and storage that can fail, such as network file systems,
    where a read error in a mapped file ends the process with a bus error.
    """

    def __init__(
        self,
        indexes: Sequence[RecordIndex],
        *,
        verify: bool = True,
        access: Literal["mmap", "pread"] = "mmap",
    ) -> None:
        self._indexes = opened = list(indexes)
        self._verify = verify
        self._open = OpenFiles(lambda number: _OpenFile(opened[number], access))
        remote = [index.remote for index in opened if index.remote is not None]
        super().__init__([index.path for index in opened], [index.num_records for index in opened], remote)

    def first_length(self) -> int:
        """Return the number of bytes in the first record."""
        file, local = self._located(0)
        begin, end = self._indexes[file].offsets[local : local + 2].tolist()
        return int(end - begin - FRAMING_BYTES)

    def describe(self, record: int) -> str:
        """Name record number `record`, for messages."""
        file, local = self._located(record)
        return f"{super().describe(record)}, at byte {int(self._indexes[file].offsets[local])}"

    def _begin(self, file: int, records: np.ndarray[Any, Any], length: int | None) -> Finish:
        span = self._span(file, records)
        if length is not None:
            odd = np.flatnonzero(span.ends - span.starts != length + FRAMING_BYTES)
            if len(odd):
                got = int((span.ends - span.starts)[odd[0]]) - FRAMING_BYTES
                raise odd_length(f"{span.file.path}: record {int(records[odd[0]])}", got, length)
        frames = _begin_remote(span)

        def finish() -> tuple[Any, Errors]:
            if frames is not None:
                framed = _framed(frames())
            elif length is None:
                framed = self._open[file].read(span.starts, span.ends)
            else:
                framed = self._open[file].read_rows(span.starts, length)
            checked, errors = self._check(span, framed)
            return checked.payloads if length is None else as_rows(checked.payloads, length), errors

        return finish

    def _span(self, number: int, records: np.ndarray[Any, Any]) -> _Span:
        index = self._indexes[number]
        span = _Span(index, records, index.offsets[records], index.offsets[records + 1])
        lengths = span.ends - span.starts
        outside = np.flatnonzero((span.starts < 0) | (span.ends > index.offsets[-1]) | (lengths < FRAMING_BYTES))
        if len(outside):
            raise _misplaced(index, int(span.starts[outside[0]]))
        return span

    def _check(self, span: _Span, framed: _Framed) -> tuple[_Framed, Errors]:
        """Return the records, and the errors of corrupt ones by row. What a server sent wrongly is read once more."""
        misplaced, wrong = self._faults(span, framed)
        remote = span.file.remote
        if (len(misplaced) or len(wrong)) and remote is not None and not span.file.data_path.endswith(UNPACKED_SUFFIX):
            framed = _framed(remote.begin_frames(span.starts, span.ends)())
            misplaced, wrong = self._faults(span, framed)
        if len(misplaced):
            raise _misplaced(span.file, int(span.starts[misplaced[0]]))
        errors = {row: _corrupt(span.file, int(span.starts[row]), int(span.records[row])) for row in wrong.tolist()}
        return framed, errors

    def _faults(self, span: _Span, framed: _Framed) -> tuple[np.ndarray[Any, Any], np.ndarray[Any, Any]]:
        """Return the rows that do not match the index, and those whose checksum does not match."""
        misplaced = np.flatnonzero(framed.lengths != span.ends - span.starts - FRAMING_BYTES)
        if len(misplaced) or not self._verify:
            return misplaced, np.empty(0, np.int64)
        return misplaced, np.flatnonzero(masked_crcs(framed.payloads) != framed.crcs)


def _misplaced(index: RecordIndex, start: int) -> RecordFileError:
    return RecordFileError(
        f"{index.path}: the record at byte {start} does not match the index {index.location}. The index belongs to "
        f"another file, or the file was changed in place. Recreate it: staging-tf1 index --force {index.path}"
    )


def _corrupt(index: RecordIndex, start: int, number: int) -> CorruptRecordError:
    where = f"{index.path} (decompressed)" if index.data_path.endswith(UNPACKED_SUFFIX) else index.path
    return CorruptRecordError(
        f"{where}: record {number}, at byte {start}, is corrupt: its checksum does not match. Copy the file again, or "
        "use skip_corrupt=True to skip and count such records.",
        index.path,
        start,
    )


class _Span(NamedTuple):
    """The offsets of some records of a file, from its index."""

    file: RecordIndex
    records: np.ndarray[Any, Any]
    starts: np.ndarray[Any, Any]
    ends: np.ndarray[Any, Any]


class _Framed(NamedTuple):
    """Records as read from a file, with their framing. The payloads are a list, or a matrix of bytes."""

    payloads: Any
    lengths: np.ndarray[Any, Any]
    crcs: np.ndarray[Any, Any]


def _begin_remote(span: _Span) -> Callable[[], list[bytes]] | None:
    """Begin to read frames from a remote file. Returns None if there is a local one."""
    remote, data_path = span.file.remote, span.file.data_path
    if remote is None or data_path.endswith(UNPACKED_SUFFIX):
        return None
    # Another process may have removed the local copy.
    has_copy = data_path != remote.url and os.path.exists(data_path)
    return None if has_copy else remote.begin_frames(span.starts, span.ends)


def _framed(frames: list[bytes]) -> _Framed:
    return _Framed(
        [frame[HEADER_BYTES:-FOOTER_BYTES] for frame in frames],
        np.frombuffer(b"".join([frame[:8] for frame in frames]), "<i8"),
        np.frombuffer(b"".join([frame[-FOOTER_BYTES:] for frame in frames]), "<u4"),
    )


class _OpenFile(OpenFile):
    def __init__(self, index: RecordIndex, access: Literal["mmap", "pread"]) -> None:
        self._index = index
        known = None if index.is_copy else (index.size, index.mtime_ns)
        had = f"It had {index.num_records} records when the source was created."
        super().__init__(f"record file {index.data_path}", index.data_path, known, had)
        self._end = int(index.offsets[-1])
        self.check_size(self._end)
        self._map: mmap.mmap | None = None
        if access == "mmap":
            self._map = mmap.mmap(self.descriptor, 0, access=mmap.ACCESS_READ)
            self._bytes = np.frombuffer(self._map, np.uint8)

    def read(self, starts: np.ndarray[Any, Any], ends: np.ndarray[Any, Any]) -> _Framed:
        """Read the records between each start and end."""
        if self._map is None:
            return self._read_by_call(starts, ends)
        # Reading a mapped file beyond its end kills the process, so check first that it was not truncated.
        self.check_size(self._end)
        mapped = self._map
        spans = zip((starts + HEADER_BYTES).tolist(), (ends - FOOTER_BYTES).tolist())
        return _Framed(
            [mapped[begin:end] for begin, end in spans],
            self._bytes[starts[:, None] + _EIGHT].view("<i8")[:, 0],
            self._bytes[ends[:, None] - _FOUR].view("<u4")[:, 0],
        )

    def read_rows(self, starts: np.ndarray[Any, Any], length: int) -> _Framed:
        """Read the records of `length` bytes at each start, into a matrix if possible."""
        whole = length + FRAMING_BYTES
        frame_numbers, odd = np.divmod(starts, whole)
        if self._map is None or odd.any():
            return self.read(starts, starts + whole)
        self.check_size(self._end)
        # All starts are multiples of the framed length, so the file is a matrix and one gather reads all records.
        matrix = self._bytes[: len(self._bytes) // whole * whole].reshape(-1, whole)
        frames = aligned_empty((len(starts), whole), np.uint8)
        matrix.take(frame_numbers, axis=0, out=frames, mode="clip")
        rows = aligned_empty((len(starts), length), np.uint8)
        np.copyto(rows, frames[:, HEADER_BYTES:-FOOTER_BYTES])
        return _Framed(
            rows,
            np.ascontiguousarray(frames[:, :8]).view("<i8")[:, 0],
            np.ascontiguousarray(frames[:, -FOOTER_BYTES:]).view("<u4")[:, 0],
        )

    def _read_by_call(self, starts: np.ndarray[Any, Any], ends: np.ndarray[Any, Any]) -> _Framed:
        return _framed([self._pread(start, end - start) for start, end in zip(starts.tolist(), ends.tolist())])

    def _pread(self, start: int, length: int) -> bytes:
        try:
            data = os.pread(self.descriptor, length, start)
            while len(data) < length:
                more = os.pread(self.descriptor, length - len(data), start + len(data))
                if not more:
                    self.check_size(self._end)
                data += more
        except RecordFileError:
            raise
        except OSError as error:
            path = self._index.data_path
            raise RecordFileError(f"reading {path} at byte {start} failed: {error.strerror}.") from error
        return data
