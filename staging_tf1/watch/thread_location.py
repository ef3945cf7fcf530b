"""Finds the line of the user's program that a thread is executing."""

from __future__ import annotations

import os
import site
import sys
import sysconfig
import threading
import time
from types import FrameType

from staging_tf1.feed.threads import ThreadState
from staging_tf1.garbage import without_collections
from staging_tf1.graph.callsite import CallSite, is_users
from staging_tf1.sources.files.remote import url_read_by
from staging_tf1.workers.process import frames_for, url_for

# If a source calls a library, the line to report is the call.
_INSTALLED = f"{os.sep}site-packages{os.sep}"
_LIBRARIES = (sysconfig.get_paths()["stdlib"], *site.getsitepackages(), site.getusersitepackages())


def users_line(ident: int | None) -> CallSite | None:
    """Return the innermost line of the user's program in thread `ident`; None if there is none or it has ended.

    For a thread that waits for a worker process, it is the line in that process.

    >>> import threading
    >>> users_line(None) is None
    True
    """
    for there in frames_for(ident) or ():
        if _is_users(there.filename):
            return CallSite(*there)
    return None if ident is None else _users_line(_frames().get(ident))


def _frames() -> dict[int, FrameType]:
    # Python up to 3.11 holds a lock while it makes this dict. Garbage that is found just then may need it, such as a
    # graph of TensorFlow (python/cpython issue 106883).
    with without_collections():
        return sys._current_frames()


def _users_line(frame: FrameType | None) -> CallSite | None:
    while frame is not None:
        filename = frame.f_code.co_filename
        if _is_users(filename):
            return CallSite(filename, frame.f_lineno, frame.f_code.co_name)
        frame = frame.f_back
    return None


def functions_called_by_ops() -> tuple[str, ...]:
    """Return where TensorFlow's own threads are in functions of the user: "train.py:12 in load()"."""
    pythons = {thread.ident for thread in threading.enumerate() if not isinstance(thread, threading._DummyThread)}
    lines = [_users_line(frame) for ident, frame in _frames().items() if ident not in pythons]
    return tuple(f"{line} in {line.function}()" for line in lines if line is not None)


def is_in(ident: int, filename: str) -> bool:
    frame = _frames().get(ident)
    while frame is not None:
        if frame.f_code.co_filename == filename:
            return True
        frame = frame.f_back
    return False


def _is_users(filename: str) -> bool:
    return is_users(filename) and not (filename.startswith(_LIBRARIES) or _INSTALLED in filename)


def url_awaited(ident: int | None) -> str:
    """Return the URL that thread `ident`, or its worker process, waits for; "" for none."""
    return url_read_by(ident) or url_for(ident)


def users_location(ident: int | None) -> str:
    """Format `users_line`, and the URL that the thread waits for, as the end of a sentence.

    That is ", at reader.py:12 in read(), reading https://host/file"; empty if there is neither.
    """
    line, url = users_line(ident), url_awaited(ident)
    where = "" if line is None else f", at {line} in {line.function}()"
    return f"{where}, reading {url}" if url else where


def stuck_text(state: ThreadState, waited_secs: float) -> str:
    """Return what is said of a feed thread that is still running `waited_secs` after it was told to stop."""
    where = users_location(state.thread.ident if state.thread is not None else None)
    return (
        f"feed thread '{state.name}' is still {state.doing} after {waited_secs:g} s (batch {state.batch}, for "
        f"{time.perf_counter() - state.since:.1f} s){where}."
    )
