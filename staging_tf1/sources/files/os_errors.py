"""What to do about an error of the system, for all sources that open, read or write files."""

from __future__ import annotations

import datetime
import errno
import os

from staging_tf1.arguments import kind_of_file
from staging_tf1.errors import RecordFileError

_TOO_MANY = {
    errno.EMFILE: "Raise the limit of open files of this process: ulimit -n, or resource.setrlimit.",
    errno.ENFILE: "The system has too many open files: end other programs, or raise fs.file-max.",
}
_CURES = {
    **_TOO_MANY,
    errno.EACCES: "Give this user read access to it, or choose another path.",
    errno.EPERM: "Give this user read access to it, or choose another path.",
}


def cure_of(error: OSError, otherwise: str) -> str:
    """Return the advice for an error while reading; `otherwise` if its cause is the file itself.

    >>> cure_of(OSError(errno.EMFILE, "Too many open files"), "Remove the file.")[:40]
    'Raise the limit of open files of this pr'
    """
    return _CURES.get(error.errno or 0, otherwise)


def cure_of_writing(error: OSError) -> str:
    """Return the advice for an error while writing, if it is not the disk or the folder; else an empty string."""
    return _TOO_MANY.get(error.errno or 0, "")


def change_of(before: tuple[int, int], now: os.stat_result) -> str:
    """Say what has changed about a file, given its earlier size in bytes and modification time in ns.

    >>> change_of((5, 0), os.stat_result([0] * 6 + [7, 0, 0, 0]))
    'it had 5 bytes and has 7'
    """
    size, mtime_ns = before
    if size != now.st_size:
        return f"it had {size} bytes and has {now.st_size}"
    return f"it still has {size} bytes, but was modified: on {_date(mtime_ns)} before, on {_date(now.st_mtime_ns)} now"


def _date(ns: int) -> str:
    return datetime.datetime.fromtimestamp(ns // 10**9).isoformat(sep=" ") + f".{ns % 10**9:09}"


def check_regular(path: str) -> None:
    """Raise RecordFileError unless a path is a regular file: a named pipe would block, a device has no end."""
    try:
        kind = kind_of_file(path)
    except OSError as error:
        raise RecordFileError(f"cannot read record file {path!r}: {error.strerror}.") from error
    if kind is not None:
        raise RecordFileError(f"record file {path!r} is {kind}, expected a regular file.")
