"""Regular files: nothing else is read, and what is written appears when it is complete."""

from __future__ import annotations

import contextlib
import os
import secrets
from collections.abc import Iterator
from typing import IO

from staging_tf1.arguments import kind_of_file
from staging_tf1.errors import RecordFileError

__all__ = ["check_regular", "replacing", "replacing_path"]


def check_regular(path: str) -> None:
    """Refuses what is no regular file before it is opened: a named pipe would block, and a device has no end.

    Raises:
      RecordFileError: it is none, or nothing is there.
    """
    try:
        kind = kind_of_file(path)
    except OSError as error:
        raise RecordFileError(f"cannot read record file {path!r}: {error.strerror}.") from error
    if kind is not None:
        raise RecordFileError(f"record file {path!r} is {kind}, wanted a regular file.")


@contextlib.contextmanager
def replacing_path(path: str) -> Iterator[str]:
    """A name to write to; that file takes the place of `path` when the block ends well, and vanishes when it does not.

    The name is new, and stands in the same folder.

    Raises:
      RecordFileError: something else than a file stands at `path`; to replace a device would remove it.
    """
    with contextlib.suppress(FileNotFoundError, NotADirectoryError):
        if (kind := kind_of_file(path)) is not None:
            raise RecordFileError(f"cannot write {path}: it is {kind}, wanted the path of a regular file.")
    folder, name = os.path.split(os.path.abspath(path))
    # Not tempfile's, whose files nobody else may read.
    temporary = os.path.join(folder, f".{name}.{secrets.token_hex(8)}")
    try:
        yield temporary
        os.replace(temporary, path)
    except BaseException:
        with contextlib.suppress(OSError):
            os.unlink(temporary)
        raise


@contextlib.contextmanager
def replacing(path: str) -> Iterator[IO[bytes]]:
    """As `replacing_path`, with the file open for writing."""
    with replacing_path(path) as temporary, open(temporary, "xb") as file:
        yield file
