"""Whether this process was forked from one in which TensorFlow sessions had run; then none can run here.

All sessions of a process share TensorFlow's pools of threads. A fork copies the memory and no thread, so that each run
in the child, be it of an old session or of a new one, would wait for ever.
"""

from __future__ import annotations

import contextlib
import os
import weakref
from typing import Any

from staging_tf1._tf import abandon, abandon_eager_context, close_summary_writers, never_free_sessions, sessions_created
from staging_tf1.errors import ForkedError

# Set in the parent just before each fork, because a child must not ask TensorFlow: it may wait for a lock.
_created_before_fork = False
_lost = False
_sessions: weakref.WeakSet[Any] = weakref.WeakSet()


def has_lost_tensorflow() -> bool:
    """Whether no session can run in this process, because it is such a child."""
    return _lost


def refuse_if_forked(what: object) -> None:
    """Raises in a process in which no session can run.

    Raises:
      ForkedError: `what` is used in such a process.
    """
    if _lost:
        raise ForkedError(
            f"{what} is used in process {os.getpid()}, which was forked from one in which TensorFlow sessions had run: "
            f"TensorFlow's threads do not survive a fork, so that every run would hang. Start the process with "
            f"multiprocessing.get_context('spawn') or 'forkserver', or fork before the first session is made."
        )


def disarm_in_child(session: Any) -> None:
    """Lets a child that is forked later forget `session`: to free it there may wait for its threads."""
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
    """Lets nothing of what the parent's summary writers have still in their buffers be written here, too.

    The C library writes it as the process ends.
    """
    with contextlib.suppress(OSError):
        for number in map(int, os.listdir("/proc/self/fd")):
            with contextlib.suppress(OSError):
                if "tfevents" in os.path.basename(os.readlink(f"/proc/self/fd/{number}")):
                    null = os.open(os.devnull, os.O_WRONLY)
                    os.dup2(null, number, inheritable=False)
                    os.close(null)


os.register_at_fork(before=_before, after_in_child=_in_child)
