"""Names a thread that does not come back, and the user's line that it stands in."""

from __future__ import annotations

import time

from staging_tf1.doctor.whereabouts import users_place
from staging_tf1.feed.thread_state import ThreadState


def stuck_text(state: ThreadState, waited_secs: float) -> str:
    """What to say of a feed thread that is still alive `waited_secs` after it was told to stop."""
    where = users_place(state.thread.ident if state.thread is not None else None)
    return (
        f"feed thread '{state.name}' is still {state.doing} after {waited_secs:g} s (batch {state.batch}, for "
        f"{time.perf_counter() - state.since:.1f} s){where}. It is left behind as a daemon. Let the source return, or "
        f"give it a timeout of its own."
    )
