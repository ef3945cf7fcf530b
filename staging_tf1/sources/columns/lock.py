"""A lock between processes, so that one builds a cache while the others wait."""

from __future__ import annotations

import contextlib
import errno
import hashlib
import json
import os
import socket
import time
from collections.abc import Callable, Iterator

from absl import logging

from staging_tf1.errors import RecordFileError
from staging_tf1.sources.files.os_errors import cure_of_writing

__all__ = ["beside", "locked"]

# Seconds between two tries, and between two lines in the log of a process that waits.
_TRY_SECS, _LOG_SECS = 0.1, 15.0
_MOST_NAME_BYTES = 255


def beside(path: str, suffix: str) -> str:
    """Return the path of a hidden file or folder beside `path`.

    >>> beside("data/train", ".lock")
    'data/.train.lock'
    """
    folder, name = os.path.split(path.rstrip(os.sep) or path)
    hidden = f".{name}{suffix}"
    if len(os.fsencode(hidden)) > _MOST_NAME_BYTES:
        hidden = f".{hashlib.blake2b(os.fsencode(name), digest_size=16).hexdigest()}{suffix}"
    return os.path.join(folder, hidden)


@contextlib.contextmanager
def locked(path: str) -> Iterator[Callable[[str], None]]:
    """Hold the lock of the cache at `path`. Yields a function that tells waiting processes how far the work is.

    The system releases the lock when its holder dies. Raises RecordFileError if the lock file cannot be written.
    """
    name = beside(path, ".lock")
    try:
        file = _acquired(name, path)
    except OSError as error:
        cure = cure_of_writing(error) or "Choose a writable folder on a local disk."
        raise RecordFileError(f"cannot lock the cache {path!r} with {name!r}: {error.strerror}. {cure}") from error
    try:
        who = {"pid": os.getpid(), "host": socket.gethostname()}

        def tell(how_far: str) -> None:
            # A note for people. A full disk must not end the build here.
            with contextlib.suppress(OSError):
                os.pwrite(file, json.dumps({**who, "how_far": how_far}).ljust(300).encode(), 0)

        tell("started")
        yield tell
    finally:
        with contextlib.suppress(OSError):
            os.unlink(name)
        os.close(file)


def _acquired(name: str, path: str) -> int:
    said = -_LOG_SECS
    while True:
        file = os.open(name, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o666)
        try:
            if _is_held(file):
                # The previous holder removes the file: the lock counts only if the file is still at its path.
                with contextlib.suppress(FileNotFoundError):
                    if os.stat(name).st_ino == os.fstat(file).st_ino:
                        return file
            elif time.monotonic() - said >= _LOG_SECS:
                said = time.monotonic()
                logging.warning("waiting for the cache %s: %s", path, _holder(file))
        except BaseException:
            os.close(file)
            raise
        os.close(file)
        time.sleep(_TRY_SECS)


def _is_held(file: int) -> bool:
    """Try to take the lock."""
    import fcntl  # the other sources work on systems without it, too

    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError as error:
        if error.errno in (errno.EWOULDBLOCK, errno.EACCES):
            return False
        raise
    return True


def _holder(file: int) -> str:
    try:
        found = json.loads(os.pread(file, 300, 0).decode())
        return f"process {found['pid']} on {found['host']} is building it ({found['how_far']})"
    except (OSError, ValueError, KeyError, TypeError):
        return "another process is building it"
