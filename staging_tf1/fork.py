"""Detects processes that were forked after TensorFlow sessions had run.

No session can run in them. All sessions of a process share TensorFlow's thread pools. A fork copies memory but no
threads, so every run in the child would hang, in old sessions and in new ones.
"""

from __future__ import annotations

import contextlib
import os
import weakref
from typing import Any

from staging_tf1._tf import abandon, abandon_eager_context, close_summary_writers, never_free_sessions, sessions_created
from staging_tf1.errors import ForkedError

# Set in the parent just before each fork. The child must not call TensorFlow, which may wait for a lock.
_created_before_fork = False
_lost = False
_sessions: weakref.WeakSet[Any] = weakref.WeakSet()


def has_lost_tensorflow() -> bool:
    """Whether this process was forked after sessions had run, so that no session can run in it."""
    return _lost


def refuse_if_forked(what: object) -> None:
    """Raise ForkedError, naming `what`, if no session can run in this process."""
    if _lost:
        raise ForkedError(
            f"{what} is used in process {os.getpid()}, which was forked after TensorFlow sessions had run. "
            f"TensorFlow's threads do not survive a fork, so every run would hang. Start the process with "
            f"multiprocessing.get_context('spawn') or 'forkserver', or fork before creating the first session."
        )


def disarm_in_child(session: Any) -> None:
    """Make children forked later abandon `session`: freeing it may wait for threads that do not exist."""
    _sessions.add(session)


def _before() -> None:
    global _created_before_fork
    _created_before_fork = sessions_created() > 0


def _in_child() -> None:
    global _lost
    if not _created_before_fork or _lost:
        return
    _lost = True
    for session in list(_sessions):
        abandon(session)
    never_free_sessions()
    abandon_eager_context()
    close_summary_writers()
    _leave_event_files()


def _leave_event_files() -> None:
    """Redirect open event files to /dev/null: at exit, C would write the parent's buffered events again."""
    with contextlib.suppress(OSError):
        for number in map(int, os.listdir("/proc/self/fd")):
            with contextlib.suppress(OSError):
                if "tfevents" in os.path.basename(os.readlink(f"/proc/self/fd/{number}")):
                    null = os.open(os.devnull, os.O_WRONLY)
                    os.dup2(null, number, inheritable=False)
                    os.close(null)


os.register_at_fork(before=_before, after_in_child=_in_child)
