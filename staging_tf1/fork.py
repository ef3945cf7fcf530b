"""What a fork does to this package, and whether this process was forked after TensorFlow sessions had run.

No session can run in such a process. All sessions of a process share TensorFlow's thread pools. A fork copies memory
but no threads, so every run in the child would hang, in old sessions and in new ones.
"""

from __future__ import annotations

import contextlib
import os
import signal
import sys
import threading
import weakref
from typing import Any

from staging_tf1.errors import ForkedError

# Set in the parent just before each fork. The child must not call TensorFlow, which may wait for a lock.
_created_before_fork = False
# `_tf.py`, if it is loaded: `workers/` can be used without TensorFlow.
_tf: Any = None
_lost = False
_sessions: weakref.WeakSet[Any] = weakref.WeakSet()
_owners: weakref.WeakSet[Any] = weakref.WeakSet()
_before_fork = threading.local()


def has_lost_tensorflow() -> bool:
    """Whether this process was forked after sessions had run, so that no session can run in it."""
    return _lost


def refuse_if_forked(caller: object) -> None:
    """Raise ForkedError, naming `caller`, if no session can run in this process."""
    if _lost:
        raise ForkedError(
            f"{caller} is used in process {os.getpid()}, which was forked after TensorFlow sessions had run. "
            f"TensorFlow's threads do not survive a fork, so every run would hang. Start the process with "
            f"multiprocessing.get_context('spawn') or 'forkserver', or fork before creating the first session."
        )


def disarm_in_child(session: Any) -> None:
    """Make children forked later abandon `session`: freeing it may wait for threads that do not exist."""
    _sessions.add(session)


def disown_in_child(owner: Any) -> None:
    """Make children forked later call `owner.disown()`. Its locks may be held by threads that do not exist there."""
    _owners.add(owner)


def _before() -> None:
    global _created_before_fork, _tf
    # First. A signal that reaches the child before `disown` would count as one of the parent's.
    _before_fork.mask = signal.pthread_sigmask(signal.SIG_BLOCK, (signal.SIGINT, signal.SIGTERM))
    _tf = sys.modules.get("staging_tf1._tf")
    _created_before_fork = _tf is not None and _tf.sessions_created() > 0


def _after() -> None:
    signal.pthread_sigmask(signal.SIG_SETMASK, _before_fork.mask)


def _in_child() -> None:
    for owner in list(_owners):
        owner.disown()
    if _created_before_fork and not _lost:
        _lose_tensorflow()
    _after()


def _lose_tensorflow() -> None:
    global _lost
    _lost = True
    for session in list(_sessions):
        _tf.abandon(session)
    _tf.never_free_sessions()
    _tf.abandon_eager_context()
    _tf.close_summary_writers()
    _leave_event_files()


def _leave_event_files() -> None:
    """Point open event files at /dev/null. Otherwise a child that exits writes the parent's events again."""
    with contextlib.suppress(OSError):
        for number in map(int, os.listdir("/proc/self/fd")):
            with contextlib.suppress(OSError):
                if "tfevents" in os.path.basename(os.readlink(f"/proc/self/fd/{number}")):
                    null = os.open(os.devnull, os.O_WRONLY)
                    os.dup2(null, number, inheritable=False)
                    os.close(null)


# One call for the whole package: the order of several would be that of the imports.
os.register_at_fork(before=_before, after_in_parent=_after, after_in_child=_in_child)
