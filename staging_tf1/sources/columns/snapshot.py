"""A folder that can be read to the end while another one replaces it."""

from __future__ import annotations

import contextlib
import os
import stat
import time
from collections.abc import Callable
from typing import IO, NamedTuple, TypeVar

from staging_tf1.errors import RecordFileError
from staging_tf1.sources.columns.lock import beside
from staging_tf1.sources.files.os_errors import cure_of

__all__ = ["CURE", "Snapshot", "cannot_read", "has_changed", "has_replaced", "settled"]

# How to fix a file that was changed.
CURE = "Remove the cache to have it built again: staging-tf1 cache remove PATH."
# Between the two renames that replace a cache (under 1 ms, unless the disk is busy), the cache does not exist.
_TRIES, _WAIT_SECS = 20, 0.05
# With O_PATH, no permission to list the folder is needed.
_AS_FOLDER = os.O_CLOEXEC | getattr(os, "O_DIRECTORY", 0) | getattr(os, "O_PATH", os.O_RDONLY)
# A named pipe would block without O_NONBLOCK, which changes nothing for files.
_AS_FILE = os.O_RDONLY | os.O_CLOEXEC | getattr(os, "O_NONBLOCK", 0)

_Answer = TypeVar("_Answer")


def cannot_read(what: str, error: OSError) -> RecordFileError:
    """Return the error of a cache that the system does not let this process read. `what` names the file or folder."""
    return RecordFileError(f"cannot read {what}: {error.strerror}. {cure_of(error, CURE)}")


class Snapshot(NamedTuple):
    """A folder at one moment. Its files belong to one cache.

    Attributes:
      path: where it was found, for messages.
      descriptor: the folder itself, which may be moved meanwhile; None looks for files at `path`.
    """

    path: str
    descriptor: int | None = None

    def path_of(self, name: str) -> str:
        """Return the path of a file."""
        return os.path.join(self.path, name)

    def open(self, name: str) -> IO[bytes]:
        """Open a file for reading. Raises OSError if it is no regular file."""
        where = self.path_of(name) if self.descriptor is None else name
        descriptor = os.open(where, _AS_FILE, dir_fd=self.descriptor)
        if not stat.S_ISREG(os.fstat(descriptor).st_mode):
            os.close(descriptor)
            raise OSError(0, "it is not a regular file")
        return os.fdopen(descriptor, "rb")


def settled(path: str, look: Callable[[Snapshot | None], _Answer]) -> _Answer:
    """Return what `look` finds in the folder at `path`, or without a folder there.

    `look` is called again if it raises RecordFileError, or finds no folder, because the folder was being replaced.
    """
    for tries_left in reversed(range(_TRIES)):
        folder = _folder_at(path)
        try:
            answer = look(folder)
            if folder is not None or not tries_left or not has_changed(path, None):
                return answer
        except RecordFileError:
            if not has_changed(path, folder) or (folder is None and not tries_left):
                raise
        finally:
            if folder is not None and folder.descriptor is not None:
                os.close(folder.descriptor)
        if folder is None:
            time.sleep(_WAIT_SECS)
    raise RecordFileError(
        f"the cache {path!r} was replaced each of the {_TRIES} times that it was opened. Do several programs build it "
        f"from different data? Give each of them its own path."
    )


def has_replaced(path: str) -> bool:
    """Whether there is a cache that was moved away for a new one."""
    return os.path.isdir(beside(path, ".replaced"))


def _folder_at(path: str) -> Snapshot | None:
    try:
        return Snapshot(path, os.open(path, _AS_FOLDER))
    except (FileNotFoundError, NotADirectoryError):
        return None
    except OSError as error:
        raise cannot_read(f"the cache {path!r}", error) from error


def has_changed(path: str, folder: Snapshot | None) -> bool:
    """Whether another folder is at `path`, or will be."""
    if folder is None or folder.descriptor is None:
        # Between any two of these checks, a replacement may end, and the next one begin.
        return has_replaced(path) or os.path.isdir(path) or has_replaced(path)
    with contextlib.suppress(OSError):
        return not os.path.samestat(os.stat(path), os.fstat(folder.descriptor))
    return True
