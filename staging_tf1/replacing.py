"""Writes files atomically: a reader, or a crash, sees the old file or the new one."""

from __future__ import annotations

import contextlib
import errno
import os
import secrets
import shutil
from collections.abc import Iterator
from typing import IO

from staging_tf1.arguments import kind_of_file
from staging_tf1.errors import RecordFileError

__all__ = ["NO_ROOM", "free_text", "replacing", "replacing_path", "sync_folder"]

# The numbers of the errors of a full disk. A write to an open file raises them without a name.
NO_ROOM = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)


def free_text(folder: str) -> str:
    """Say how much room the disk of a folder has; empty if that is unknown, as for "gs://"."""
    with contextlib.suppress(OSError):
        return f" ({shutil.disk_usage(folder or os.curdir).free >> 20} MiB are free)"
    return ""


@contextlib.contextmanager
def replacing_path(path: str) -> Iterator[str]:
    """Yield a temporary path in the same folder, and rename it to `path` on success, else delete it.

    Raises RecordFileError if `path` exists and is not a regular file. Replacing a device would remove it. The error of
    a full disk names `path`.
    """
    with contextlib.suppress(FileNotFoundError, NotADirectoryError):
        if (kind := kind_of_file(path)) is not None:
            raise RecordFileError(f"cannot write {path}: it is {kind}, expected the path of a regular file.")
    folder, name = os.path.split(os.path.abspath(path))
    # tempfile would create a file that only its owner can read.
    temporary = os.path.join(folder, f".{name}.{secrets.token_hex(8)}")
    try:
        yield temporary
        os.replace(temporary, path)
    except BaseException as error:
        with contextlib.suppress(OSError):
            os.unlink(temporary)
        if isinstance(error, OSError) and error.errno in NO_ROOM and error.filename is None:
            error.filename = path
        raise


@contextlib.contextmanager
def replacing(path: str, *, durable: bool = False) -> Iterator[IO[bytes]]:
    """Do what `replacing_path` does, and open the temporary file for writing.

    If `durable`, the content and the new name are on the disk afterwards, in this order.
    """
    with replacing_path(path) as temporary, open(temporary, "xb") as file:
        yield file
        if durable:
            file.flush()
            os.fsync(file.fileno())
    if durable:
        sync_folder(os.path.dirname(path) or os.curdir)


def sync_folder(folder: str) -> None:
    """Wait until the names in a folder are on the disk."""
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
