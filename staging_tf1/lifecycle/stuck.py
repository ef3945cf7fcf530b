"""Names a thread that does not come back, and the user's line that it stands in."""

from __future__ import annotations

import site
import sys
import sysconfig
import time

from staging_tf1.feed.thread_state import ThreadState
from staging_tf1.graph.callsite import CallSite, is_users

# What a source calls is not the line to look at: the line that calls it is.
_LIBRARIES = (sysconfig.get_paths()["stdlib"], *site.getsitepackages(), site.getusersitepackages())


def stuck_text(state: ThreadState, waited_secs: float) -> str:
    """What to say of a feed thread that is still alive `waited_secs` after it was told to stop."""
    place = users_line(state)
    where = "" if place is None else f", at {place} in {place.function}()"
    return (
        f"feed thread '{state.name}' is still {state.doing} after {waited_secs:g} s (batch {state.batch}, for "
        f"{time.perf_counter() - state.since:.1f} s){where}. It is left behind as a daemon. Let the source return, or "
        f"give it a timeout of its own."
    )


def users_line(state: ThreadState) -> CallSite | None:
    """The innermost line of the user's program that the thread stands in; None if it stands in none."""
    ident = state.thread.ident if state.thread is not None else None
    frame = sys._current_frames().get(ident) if ident is not None else None
    while frame is not None:
        filename = frame.f_code.co_filename
        if is_users(filename) and not filename.startswith(_LIBRARIES):
            return CallSite(filename, frame.f_lineno, frame.f_code.co_name)
        frame = frame.f_back
    return None
