"""`LocalCopies`: whole copies of remote files in a folder, up to a limit."""

from __future__ import annotations

import contextlib
import os
import time
from collections.abc import Callable
from typing import Any, TypeVar

from staging_tf1 import arguments
from staging_tf1.errors import CorruptRecordError, RecordFileError
from staging_tf1.progress import SILENT_SECS, progress_bar
from staging_tf1.replacing import replacing_path
from staging_tf1.sources.files.remote import RemoteFile

_SUFFIX = ".copy"

_Result = TypeVar("_Result")


class LocalCopies:
    """Copies of remote files in `folder`, which processes share. Those that were used longest ago are removed.

    A lock lets one process copy at a time, so no file is copied twice. A killed process leaves a file with a temporary
    name, which the next one removes.

    Args:
      folder: where they are. It is created.
      limit_bytes: the size of all of them. None has no limit.
    """

    def __init__(self, folder: str, limit_bytes: int | None = None) -> None:
        self.folder = os.path.abspath(folder)
        self.limit_bytes = limit_bytes
        # Not removed for others of this source. Each epoch reads all of them, so each would be copied in each epoch.
        self._own: set[str] = set()

    def copy(self, file: RemoteFile, delay_secs: float = SILENT_SECS) -> str | None:
        """Return the path of a copy, which is made if there is none; None if this source's own leave no room for it.

        Raises RecordFileError if the file cannot be read, or the folder cannot be written to.
        """
        import filelock  # 30 ms, for those who read remote files

        path = self._path_of(file)
        try:
            os.makedirs(self.folder, exist_ok=True)
            with filelock.FileLock(os.path.join(self.folder, ".lock")):
                if not os.path.exists(path):
                    if not self._has_room(file):
                        return None
                    bar = progress_bar(f"copy {file.url}", file.size, "B", delay_secs)
                    with replacing_path(path) as temporary, bar:
                        file.copy_to(temporary, bar.update)
                # By itself the system counts in ticks of milliseconds.
                now = time.time_ns()
                os.utime(path, ns=(now, now))
        except RecordFileError:
            raise
        except OSError as error:
            raise RecordFileError(
                f"cannot copy {file.url} to the folder {self.folder!r}: {error.strerror}. Choose a writable folder "
                f"with room for it: local_cache= of the source, or else STAGING_TF1_CACHE."
            ) from error
        self._own.add(path)
        return path

    def used(self, file: RemoteFile, use: Callable[[str | None], _Result], delay_secs: float = SILENT_SECS) -> _Result:
        """Return `use(path)` of a copy. If it is corrupt, it is made again once: a server may send something else."""
        path = self.copy(file, delay_secs)
        try:
            return use(path)
        except (CorruptRecordError, RecordFileError):
            if path is None:
                raise
        self.remove(file)
        return use(self.copy(file, delay_secs))

    def remove(self, file: RemoteFile) -> None:
        """Remove the copy of a file."""
        path = self._path_of(file)
        self._own.discard(path)
        with contextlib.suppress(FileNotFoundError):
            os.unlink(path)

    def _path_of(self, file: RemoteFile) -> str:
        return os.path.join(self.folder, f"{file.local_name}-{file.size}-{file.stamp:014x}{_SUFFIX}")

    def _has_room(self, file: RemoteFile) -> bool:
        """Remove what killed processes have left, and the oldest copies, until there is room. Called with the lock."""
        found = []
        for entry in os.scandir(self.folder):
            left = entry.name.startswith(".") and f"{_SUFFIX}." in entry.name
            # Processes that have a copy open can still read it.
            if left or entry.name.startswith(f"{file.local_name}-"):  # that of a file which was replaced
                os.unlink(entry.path)
            elif entry.name.endswith(_SUFFIX):
                status = entry.stat()
                found.append((status.st_mtime_ns, status.st_size, entry.path))
        if self.limit_bytes is None:
            return True
        others = sorted(each for each in found if each[2] not in self._own)
        room = self.limit_bytes - file.size - sum(size for _, size, _ in found)
        if room + sum(size for _, size, _ in others) < 0:
            return False
        for _, size, path in others:
            if room >= 0:
                break
            os.unlink(path)
            room += size
        return True


def checked(owner: str, folder: Any, limit_bytes: Any) -> LocalCopies | None:
    """Check the arguments `local_cache` and `local_cache_bytes`. Returns None if there is no folder."""
    if limit_bytes is not None:
        limit_bytes = arguments.whole(
            owner, "local_cache_bytes", limit_bytes, 0, arguments.INT64_MAX, "bytes of all copies in local_cache"
        )
        if folder is None:
            raise ValueError(f"{owner} got local_cache_bytes= without local_cache=. Name the folder of the copies.")
    return None if folder is None else LocalCopies(arguments.folder(owner, "local_cache", folder, ()), limit_bytes)
