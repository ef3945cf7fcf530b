"""Files that appear when they are complete."""

from __future__ import annotations

import contextlib
import os
import secrets
from collections.abc import Iterator
from typing import IO

__all__ = ["replacing", "replacing_path"]


@contextlib.contextmanager
def replacing_path(path: str) -> Iterator[str]:
    """A name to write to; that file takes the place of `path` when the block ends well, and vanishes when it does not.

    The name is new, and stands in the same folder.
    """
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
