"""The index of a TFRecord file: where each record begins, kept in a plain `.npy` array beside the file.

The array is int64: a magic number, the version, size and time of the record file, and the offsets of the
records with the end of the last. It is mapped, not loaded, so that opening it costs the same for 10^5 records
and 10^8; `allow_pickle` is off, so a hostile file can give an error and nothing else.
"""

from __future__ import annotations

import dataclasses
import hashlib
import os
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from staging_tf1.arguments import kind_of_file
from staging_tf1.errors import RecordFileError, StagingWarning
from staging_tf1.sources.files.replacing import check_regular, replacing
from staging_tf1.sources.files.tfrecord_scan import scan
from staging_tf1.sources.files.tfrecord_unpack import is_compressed, unpacked

__all__ = [
    "INDEX_SUFFIX",
    "UNPACKED_SUFFIX",
    "RecordIndex",
    "cache_dir",
    "index_file",
    "open_index",
    "save_index",
]

INDEX_SUFFIX = ".index.npy"
UNPACKED_SUFFIX = ".unpacked"

_MAGIC = 0x5354_4731_4944_5801  # "STG1IDX" and the version of this layout
# How each .npy file begins.
NPY_MAGIC = b"\x93NUMPY"
_HEAD = 5  # magic, size, time, bytes lost, damaged or not: then the offsets


@dataclasses.dataclass(frozen=True)
class RecordIndex:
    """One record file, ready to be read at random.

    Attributes:
      path: the file that the user named.
      data_path: the file to read: the same, or its unpacked copy.
      size, mtime_ns: of `path` when it was indexed.
      offsets: int64: where each record begins, and where the last one ends; mapped from the index file.
      lost_bytes: behind the last record that could be found.
      damaged: whether bytes are lost, or the compressed stream was cut off.
      location: the index file, or None where it could not be written.
    """

    path: str
    data_path: str
    size: int
    mtime_ns: int
    offsets: np.ndarray[Any, Any]
    lost_bytes: int
    damaged: bool
    location: str | None

    @property
    def num_records(self) -> int:
        """Records in the file."""
        return len(self.offsets) - 1


def open_index(
    path: str | os.PathLike[str],
    *,
    skip_corrupt: bool = False,
    force: bool = False,
    progress: Callable[[int], Any] | None = None,
) -> RecordIndex:
    """The index of a record file: mapped if it is there and fits, else made and written.

    It stands beside the file, or in `cache_dir()` if that folder cannot be written; it is written under
    another name and then renamed, so several processes may do so at once. It is made again when the file's
    size or time has changed.

    Args:
      path: a TFRecord file, plain, gzip or zlib. A compressed one is unpacked once, beside its index (that
        costs its uncompressed size on disk), because a compressed stream cannot be entered in the middle.
      skip_corrupt: as in `scan`.
      force: make it again in any case.
      progress: called with the number of bytes indexed, now and then.

    Raises:
      RecordFileError: there is no such file, or what stands at the index's place is no index.
      CorruptRecordError: the file is cut off or broken.
    """
    name = os.fspath(path)
    check_regular(name)
    status = os.stat(name)
    for place in _places(name):
        found = None if force else _load(place, name, status)
        if found is not None and (skip_corrupt or not found.damaged):
            return found
    return _make(name, status, skip_corrupt, progress)


def cache_dir() -> Path:
    """Where indexes of files in read-only folders go: $STAGING_TF1_CACHE, or the user's cache folder."""
    chosen = os.environ.get("STAGING_TF1_CACHE")
    if chosen:
        return Path(chosen)
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "staging_tf1"


def index_file(path: str | os.PathLike[str]) -> str:
    """Where the index of a record file stands when its folder can be written."""
    return os.fspath(path) + INDEX_SUFFIX


def _places(name: str) -> list[str]:
    absolute = os.path.abspath(name)
    digest = hashlib.blake2b(absolute.encode(), digest_size=8).hexdigest()
    return [index_file(name), str(cache_dir() / f"{os.path.basename(name)}-{digest}{INDEX_SUFFIX}")]


def _load(place: str, name: str, status: os.stat_result) -> RecordIndex | None:
    """The index at `place`, or None if there is none or it is of an earlier state of the file."""
    try:
        array = _mapped(place)
    except (FileNotFoundError, NotADirectoryError):
        return None
    # numpy's own words recommend to load pickles, which can run any code.
    except Exception as error:
        reason = error.strerror if isinstance(error, OSError) else None
        raise _not_an_index(place, name, reason or "it holds something else") from error
    if array is None or array.dtype != np.int64 or array.ndim != 1 or len(array) <= _HEAD:
        raise _not_an_index(place, name, "it holds something else")
    magic, size, mtime_ns, lost, damaged = array[:_HEAD].tolist()
    if magic != _MAGIC:
        raise _not_an_index(place, name, "it does not begin as one")
    if (size, mtime_ns) != (status.st_size, status.st_mtime_ns):
        return None
    data_path = _data_path(name, place)
    offsets = np.asarray(array)[_HEAD:]  # a plain view of the mapped memory is faster to index
    if not os.path.isfile(data_path):
        return None
    if int(offsets[0]) != 0 or int(offsets[-1]) + lost != os.path.getsize(data_path):
        raise _not_an_index(place, name, "its offsets do not reach from the file's beginning to its end")
    return RecordIndex(name, data_path, size, mtime_ns, offsets, lost, bool(damaged), place)


def _mapped(place: str) -> np.ndarray[Any, Any] | None:
    """The array in the file at `place`; None if it is no `.npy` file."""
    if kind_of_file(place) is not None:  # a named pipe would block
        return None
    with open(place, "rb") as file:
        if file.read(len(NPY_MAGIC)) != NPY_MAGIC:
            return None
    found: np.ndarray[Any, Any] = np.load(place, mmap_mode="r", allow_pickle=False)
    return found


def _not_an_index(place: str, name: str, reason: str) -> RecordFileError:
    return RecordFileError(
        f"{place} stands where the index of {name} belongs, but it is not that index: {reason}. Delete it, "
        f"and it is made again at the next use; or make it now: staging-tf1 index --force {name}"
    )


def _data_path(name: str, place: str) -> str:
    return place.removesuffix(INDEX_SUFFIX) + UNPACKED_SUFFIX if is_compressed(name) else name


def _make(name: str, status: os.stat_result, skip_corrupt: bool, progress: Callable[[int], Any] | None) -> RecordIndex:
    failure: OSError | None = None
    for place in _places(name):
        data_path, whole = _data_path(name, place), True
        try:
            os.makedirs(os.path.dirname(place) or ".", exist_ok=True)
            if data_path != name:
                with replacing(data_path) as file:
                    whole = unpacked(name, file, skip_corrupt)
            offsets, lost = scan(data_path, skip_corrupt=skip_corrupt, progress=progress)
            index = RecordIndex(
                name,
                data_path,
                status.st_size,
                status.st_mtime_ns,
                offsets,
                lost,
                bool(lost) or not whole,
                place,
            )
            save_index(index)
        except RecordFileError:
            raise
        except OSError as error:
            failure = error
        else:
            return index
    if is_compressed(name):
        raise RecordFileError(
            f"{name} is compressed, so it must be unpacked to be read at random, but neither its folder nor "
            f"the cache folder {cache_dir()} can be written ({failure}). Set STAGING_TF1_CACHE to a folder "
            "that can."
        )
    warnings.warn(
        f"the index of {name} could not be written ({failure}), so each process makes it again. Set "
        f"STAGING_TF1_CACHE to a folder that can be written.",
        StagingWarning,
        stacklevel=3,
    )
    offsets, lost = scan(name, skip_corrupt=skip_corrupt, progress=progress)
    return RecordIndex(name, name, status.st_size, status.st_mtime_ns, offsets, lost, bool(lost), None)


def save_index(index: RecordIndex) -> None:
    """Writes an index to its `location`, all of it or nothing."""
    assert index.location is not None
    head = [_MAGIC, index.size, index.mtime_ns, index.lost_bytes, int(index.damaged)]
    with replacing(index.location) as file:
        np.save(file, np.concatenate([np.array(head, np.int64), index.offsets]), allow_pickle=False)
