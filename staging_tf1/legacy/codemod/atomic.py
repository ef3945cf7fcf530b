"""Replaces a file atomically: a reader, or a crash, sees either the old text or the new one."""

from __future__ import annotations

import os
import stat
import tempfile

from staging_tf1.arguments import kind_of_file
from staging_tf1.legacy.source_files import UnreadableError


def replace(path: str, content: bytes) -> None:
    """Replace the content of `path`, keeping its permissions. A symbolic link is followed.

    Raises UnreadableError if the file or its folder cannot be written. The file is unchanged.
    """
    real = os.path.realpath(path)
    if not os.access(real, os.W_OK):
        raise UnreadableError(f"{path}: is read-only; nothing was written")
    kind = kind_of_file(real)
    if kind is not None:  # replacing a device would remove it
        raise UnreadableError(f"{path}: is {kind}, not a regular file; nothing was written")
    temporary = None
    try:
        mode = stat.S_IMODE(os.stat(real).st_mode)
        handle, temporary = tempfile.mkstemp(dir=os.path.dirname(real), prefix=".staging-tf1-", suffix=".tmp")
        with os.fdopen(handle, "wb") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        os.chmod(temporary, mode)
        os.replace(temporary, real)
    except OSError as error:
        if temporary is not None and os.path.exists(temporary):
            os.unlink(temporary)
        raise UnreadableError(f"{path}: cannot be written: {error.strerror}; it is unchanged") from error


def create(path: str, content: bytes) -> None:
    """Write a file, which may already exist. Raises UnreadableError if it cannot be written."""
    if os.path.exists(path):
        replace(path, content)
        return
    try:
        with open(path, "xb") as file:
            file.write(content)
    except OSError as error:
        raise UnreadableError(f"{path}: cannot be written: {error.strerror}") from error
