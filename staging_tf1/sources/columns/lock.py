"""A lock between processes, so that one builds a cache while the others wait."""

from __future__ import annotations

import contextlib
import errno
import hashlib
import json
import os
import socket
import threading
import time
from collections.abc import Callable, Iterator
from typing import NamedTuple

from absl import logging

from staging_tf1.errors import RecordFileError
from staging_tf1.sources.files.os_errors import cure_of_writing

__all__ = ["beside", "locked"]

# Seconds between two tries, and between two lines in the log of a process that waits.
_TRY_SECS, _LOG_SECS = 0.1, 15.0
# After this time without a new record, a build may be waiting for a process that it has started itself.
_STUCK_SECS = 60.0
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


class _Holder(NamedTuple):
    """What holds a lock in this process, or in the one that it was forked from.

    Attributes:
      thread: the thread that builds the cache.
      earlier: the threads that ran when it began.
    """

    thread: int
    earlier: frozenset[int]


# By the device and inode of the lock file.
_holders: dict[tuple[int, int], _Holder] = {}


@contextlib.contextmanager
def locked(path: str) -> Iterator[Callable[[str], None]]:
    """Hold the lock of the cache at `path`. Yields a function that reports the progress to waiting processes.

    The system releases the lock when its holder dies. Raises RecordFileError if the lock file cannot be written, or if
    its holder waits for this call, because its data uses the cache that is built from them.
    """
    name = beside(path, ".lock")
    try:
        file = _acquired(name, path)
    except RecordFileError:
        raise
    except OSError as error:
        cure = cure_of_writing(error) or "Choose a writable folder on a local disk."
        raise RecordFileError(f"cannot lock the cache {path!r} with {name!r}: {error.strerror}. {cure}") from error
    identity = _identity(file)
    try:
        _holders[identity] = _Holder(
            threading.get_ident(), frozenset(thread.ident or 0 for thread in threading.enumerate())
        )
        who = {"pid": os.getpid(), "host": socket.gethostname(), "since": _now()}

        def report(how_far: str) -> None:
            # Only people read it, so a full disk must not end the build here.
            with contextlib.suppress(OSError):
                os.pwrite(file, json.dumps({**who, "how_far": how_far}).ljust(300).encode(), 0)

        report("started")
        yield report
    finally:
        _holders.pop(identity, None)
        with contextlib.suppress(OSError):
            os.unlink(name)
        os.close(file)


def _acquired(name: str, path: str) -> int:
    said, note, noted = -_LOG_SECS, b"", time.monotonic()
    while True:
        file = os.open(name, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o666)
        try:
            if _is_held(file):
                # The previous holder removes the file: the lock counts only if the file is still at its path.
                with contextlib.suppress(FileNotFoundError):
                    if os.stat(name).st_ino == os.fstat(file).st_ino:
                        return file
            else:
                now = time.monotonic()
                if note != (note := os.pread(file, 300, 0)):
                    noted = now
                if _waits_for_this_thread(_identity(file)) or (now - noted >= _STUCK_SECS and _is_part_of(note, file)):
                    raise _own_data(path)
                if now - said >= _LOG_SECS:
                    said = now
                    logging.warning("waiting for the cache %s: %s", path, _holder(note))
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


def _own_data(path: str) -> RecordFileError:
    return RecordFileError(
        f"the data of the cache {path!r} uses this cache while it is built from them, so both would wait for ever. "
        f"Read the original data there, or give the inner cache another path."
    )


def _identity(file: int) -> tuple[int, int]:
    status = os.fstat(file)
    return status.st_dev, status.st_ino


def _waits_for_this_thread(identity: tuple[int, int]) -> bool:
    """Whether this thread builds that cache, or is a fork of the thread that does."""
    holder = _holders.get(identity)
    return holder is not None and holder.thread == threading.get_ident()


def _is_part_of(note: bytes, file: int) -> bool:
    """Whether the holder's process started this thread or process after it began: perhaps its data did."""
    try:
        fields = json.loads(note.decode())
        if fields["host"] != socket.gethostname():
            return False
        if fields["pid"] == os.getpid():
            holder = _holders.get(_identity(file))
            return holder is not None and threading.get_ident() not in holder.earlier
        return _was_started_by(int(fields["pid"]), tuple(fields["since"]))
    except (OSError, ValueError, KeyError, TypeError):
        return False


def _was_started_by(holder: int, since: tuple[int, ...]) -> bool:
    """Whether this process, or one of those that started it, was started by `holder` after `since`."""
    pid = os.getpid()
    while pid > 1:
        with open(f"/proc/{pid}/stat", encoding="utf-8", errors="replace") as stat:
            fields = stat.read().rpartition(")")[2].split()
        parent, ticks = int(fields[1]), int(fields[19])
        if parent == holder:
            return (ticks, pid) > since
        pid = parent
    return False


def _now() -> tuple[int, int]:
    """Return the time in ticks of 10 ms, as /proc has the start of a process, and the newest process id."""
    with contextlib.suppress(OSError, AttributeError), open("/proc/loadavg", encoding="utf-8") as file:
        ticks = time.clock_gettime_ns(time.CLOCK_BOOTTIME) * os.sysconf("SC_CLK_TCK") // 10**9
        return ticks, int(file.read().split()[-1])
    return 0, 0


def _holder(note: bytes) -> str:
    try:
        fields = json.loads(note.decode())
        return f"process {fields['pid']} on {fields['host']} is building it ({fields['how_far']})"
    except (OSError, ValueError, KeyError, TypeError):
        return "another process is building it"
