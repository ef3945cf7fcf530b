"""Indexes of TFRecord files: the offsets of their records.

They are `.npy` files next to the record files. An index is an int64 array: a magic number that includes the version,
the size and time of the record file, the number of lost bytes, a damage flag, and the offsets of the records with the
end of the last. It is memory-mapped, so opening it takes the same time for 10^5 records and for 10^8. `allow_pickle` is
off: a malicious index can cause an error, but cannot run code.
"""

from __future__ import annotations

import contextlib
import dataclasses
import hashlib
import os
import secrets
import shutil
from typing import IO, Any

import numpy as np

from staging_tf1.arguments import cache_dir, kind_of_file
from staging_tf1.errors import RecordFileError, StagingWarning, warn
from staging_tf1.progress import SILENT_SECS, progress_bar
from staging_tf1.replacing import replacing
from staging_tf1.sources.files.local_copies import LocalCopies
from staging_tf1.sources.files.os_errors import check_regular, cure_of
from staging_tf1.sources.files.remote import RemoteFile
from staging_tf1.sources.files.tfrecord_frames import scan
from staging_tf1.sources.files.tfrecord_unpack import is_compressed, unpacked

INDEX_SUFFIX = ".index.npy"
UNPACKED_SUFFIX = ".unpacked"

_MAGIC = 0x5354_4731_4944_5801  # "STG1IDX" and the version of this format
_HEAD = 5  # magic, size, time, lost bytes, damage flag


@dataclasses.dataclass(frozen=True)
class RecordIndex:
    """The index of one record file.

    Attributes:
      path: the file that the user passed, or its URL.
      data_path: the file to read, absolute: that at `path`, or its decompressed or local copy. Or the URL.
      size, mtime_ns: the size and modification time of `path` when it was indexed. Of a remote file, its `stamp`.
      offsets: int64, the offset of each record and the end of the last one. Mapped from the index file.
      lost_bytes: bytes after the last record that could be located.
      damaged: whether bytes are lost, or the compressed stream is truncated.
      location: the index file, or None if it could not be written.
      remote: the remote file; None for a local one.
    """

    path: str
    data_path: str
    size: int
    mtime_ns: int
    offsets: np.ndarray[Any, Any]
    lost_bytes: int
    damaged: bool
    location: str | None
    remote: RemoteFile | None = None

    def __post_init__(self) -> None:
        if self.remote is None or self.data_path != self.remote.url:
            # Files are opened when they are read, and the program may have changed its working directory by then.
            object.__setattr__(self, "data_path", os.path.abspath(self.data_path))

    @property
    def is_copy(self) -> bool:
        """Whether `data_path` is a decompressed or local copy. Copies have other names."""
        return os.path.basename(self.data_path) != os.path.basename(self.path)

    @property
    def num_records(self) -> int:
        """Records in the file."""
        return len(self.offsets) - 1


def open_index(
    path: str | os.PathLike[str] | RemoteFile,
    *,
    skip_corrupt: bool = False,
    force: bool = False,
    delay_secs: float = SILENT_SECS,
    copies: LocalCopies | None = None,
) -> RecordIndex:
    """Open the index of a TFRecord file, plain or compressed. Creates it if it is missing, outdated or with `force`.

    The index is stored next to the file, or in `cache_dir()` if that folder is not writable or the file is remote. It
    is written to a temporary file and renamed, so several processes can do this at the same time. It is outdated if the
    size or the modification time of the file has changed. Compressed streams do not support random access, so a
    compressed file is decompressed once, next to its index. This takes its uncompressed size on disk. `skip_corrupt` is
    as in `scan`. On a terminal, both show a progress bar if they take longer than `delay_secs`.

    A remote file is copied to be indexed. The copy is kept if `copies` has room for it.

    Raises:
      RecordFileError: the file does not exist, or the existing index file is not an index.
      CorruptRecordError: the file is truncated or corrupt.
    """
    file = path if isinstance(path, RemoteFile) else _LocalFile.at(os.fspath(path))
    index = None if force else _existing(file, skip_corrupt)
    if not isinstance(file, RemoteFile):
        return index or _create_from(file.url, file, skip_corrupt, delay_secs)
    index = index or _create(file, skip_corrupt, delay_secs, copies)
    if copies is None or index.data_path != index.path:  # unpacked
        return index
    copy = copies.copy(file, delay_secs)
    return index if copy is None else dataclasses.replace(index, data_path=copy)


@dataclasses.dataclass(frozen=True)
class _LocalFile:
    """A file of this machine, with the attributes of `RemoteFile` that identify it. `stamp` is its time, in ns."""

    url: str
    size: int
    stamp: int

    @staticmethod
    def at(path: str) -> _LocalFile:
        check_regular(path)
        status = os.stat(path)
        return _LocalFile(path, status.st_size, status.st_mtime_ns)


_File = _LocalFile | RemoteFile


def _existing(file: _File, skip_corrupt: bool) -> RecordIndex | None:
    for path in _paths(file):
        index = _load(path, file)
        if index is not None and (skip_corrupt or not index.damaged):
            return index
    return None


def index_file(path: str | os.PathLike[str]) -> str:
    """Return the path of the index of a record file in a writable folder."""
    return os.fspath(path) + INDEX_SUFFIX


def _paths(file: _File) -> list[str]:
    if isinstance(file, RemoteFile):
        return [os.path.join(cache_dir(), f"{file.local_name}{INDEX_SUFFIX}")]
    # A name of another encoding is valid, too.
    absolute = os.fsencode(os.path.abspath(file.url))
    digest = hashlib.blake2b(absolute, digest_size=8).hexdigest()
    return [index_file(file.url), os.path.join(cache_dir(), f"{os.path.basename(file.url)}-{digest}{INDEX_SUFFIX}")]


def _load(path: str, file: _File) -> RecordIndex | None:
    """Load the index at `path`. Returns None if it is missing or outdated."""
    name, remote = file.url, file if isinstance(file, RemoteFile) else None
    try:
        array = _mapped(path)
    except (FileNotFoundError, NotADirectoryError):
        return None
    # numpy's message is not shown, because it recommends loading pickles, which can run any code.
    except Exception as error:
        if isinstance(error, OSError) and cure_of(error, ""):
            cure = cure_of(error, "")
            raise RecordFileError(f"cannot read {path!r}, the index of {name!r}: {error.strerror}. {cure}") from error
        reason = error.strerror if isinstance(error, OSError) else None
        raise _not_an_index(path, name, reason or "it has another format") from error
    if array is None or array.dtype != np.int64 or array.ndim != 1 or len(array) <= _HEAD:
        raise _not_an_index(path, name, "it has another format")
    magic, size, mtime_ns, lost, damaged = array[:_HEAD].tolist()
    if magic != _MAGIC:
        raise _not_an_index(path, name, "its header is invalid")
    if (size, mtime_ns) != (file.size, file.stamp):
        return None
    offsets = np.asarray(array)[_HEAD:]  # indexing a plain view is faster than indexing a memmap
    data_path = _unpacked_path(path) if remote is not None or is_compressed(name) else name
    if remote is not None and not os.path.exists(data_path):
        data_path = name
    elif not os.path.isfile(data_path):
        return None
    data_bytes = file.size if data_path == name else os.path.getsize(data_path)
    if int(offsets[0]) != 0 or int(offsets[-1]) + lost != data_bytes:
        if remote is not None:  # the unpacked file was removed
            return None
        raise _not_an_index(path, name, "its offsets do not cover the file")
    return RecordIndex(name, data_path, size, mtime_ns, offsets, lost, bool(damaged), path, remote)


def _mapped(path: str) -> np.ndarray[Any, Any] | None:
    """Map the array in an `.npy` file. Returns None for other files."""
    if kind_of_file(path) is not None:  # a named pipe would block
        return None
    with open(path, "rb") as file:
        if file.read(len(np.lib.format.MAGIC_PREFIX)) != np.lib.format.MAGIC_PREFIX:
            return None
    array: np.ndarray[Any, Any] = np.load(path, mmap_mode="r", allow_pickle=False)
    return array


def _not_an_index(path: str, name: str, reason: str) -> RecordFileError:
    return RecordFileError(
        f"{path} should be the index of {name}, but is not: {reason}. Delete it to have it recreated at the next use, "
        f"or recreate it now: staging-tf1 index --force {name}"
    )


def _unpacked_path(path: str) -> str:
    return path.removesuffix(INDEX_SUFFIX) + UNPACKED_SUFFIX


def _create(file: RemoteFile, skip_corrupt: bool, delay_secs: float, copies: LocalCopies | None) -> RecordIndex:
    """Create the index of a remote file from a copy: one in `copies` if there is room, or else a temporary one."""
    # The first copy must be whole: the server may have sent something else.
    skips = iter((False, skip_corrupt))

    def of_copy(copy: str | None) -> RecordIndex | None:
        return None if copy is None else _create_from(copy, file, next(skips), delay_secs)

    index = None if copies is None else copies.used(file, of_copy, delay_secs)
    if copies is not None and index is not None and index.data_path != index.path:  # unpacked
        copies.remove(file)
    if index is None:
        # Found by no other process.
        folder = os.path.join(cache_dir(), f".index-{secrets.token_hex(8)}")
        try:
            index = LocalCopies(folder).used(file, of_copy, delay_secs)
        finally:
            shutil.rmtree(folder, ignore_errors=True)
    assert index is not None
    return index


def _create_from(source: str, file: _File, skip_corrupt: bool, delay_secs: float) -> RecordIndex:
    name, remote = file.url, file if isinstance(file, RemoteFile) else None
    failure: OSError | None = None
    compressed = is_compressed(source)
    for path in _paths(file):
        unpacked_path, complete = _unpacked_path(path), True
        try:
            os.makedirs(os.path.dirname(path) or ".", exist_ok=True)
            if compressed:
                with replacing(unpacked_path) as out:
                    complete = _unpacked(source, name, out, skip_corrupt, delay_secs)
            elif remote is not None:
                with contextlib.suppress(FileNotFoundError):  # of an earlier object at this URL
                    os.unlink(unpacked_path)
            data = unpacked_path if compressed else source
            offsets, lost = _scanned(data, name if data == source else data, skip_corrupt, delay_secs)
            damaged = bool(lost) or not complete
            data_path = unpacked_path if compressed else name
            index = RecordIndex(name, data_path, file.size, file.stamp, offsets, lost, damaged, path, remote)
            save_index(index)
        except RecordFileError:
            raise
        except OSError as error:
            failure = error
        else:
            return index
    if compressed:
        raise RecordFileError(
            f"{name} is compressed and must be decompressed for random access, but neither its folder nor the cache "
            f"folder {cache_dir()} is writable ({failure}). Set STAGING_TF1_CACHE to a writable folder."
        )
    warn(
        f"cannot write the index of {name} ({failure}), so each process creates it again. Set STAGING_TF1_CACHE to a "
        f"writable folder.",
        StagingWarning,
    )
    offsets, lost = _scanned(source, name, skip_corrupt, delay_secs)
    return RecordIndex(name, name, file.size, file.stamp, offsets, lost, bool(lost), None, remote)


def _scanned(path: str, name: str, skip_corrupt: bool, delay_secs: float) -> tuple[np.ndarray[Any, Any], int]:
    with progress_bar(f"index {name}", os.path.getsize(path), "B", delay_secs) as bar:
        return scan(path, skip_corrupt=skip_corrupt, progress=lambda position: bar.update(position - bar.n), name=name)


def _unpacked(path: str, name: str, out: IO[bytes], skip_corrupt: bool, delay_secs: float) -> bool:
    with progress_bar(f"unpack {name}", os.path.getsize(path), "B", delay_secs) as bar:
        return unpacked(path, out, skip_corrupt, bar.update, name)


def save_index(index: RecordIndex) -> None:
    """Write an index to its `location` atomically."""
    assert index.location is not None
    head = [_MAGIC, index.size, index.mtime_ns, index.lost_bytes, int(index.damaged)]
    with replacing(index.location) as file:
        np.save(file, np.concatenate([np.array(head, np.int64), index.offsets]), allow_pickle=False)
