"""The priority of a feed thread."""

from __future__ import annotations

import os
import sys
import threading
from typing import Any

from staging_tf1.arguments import whole

# As low as it gets; see nice(2).
_LOWEST = 19


def check_nice(nice: Any, what: str) -> int:
    """`nice` as an int.

    Raises:
      TypeError, ValueError: not a whole number from 0 to 19.
    """
    return whole(what, "nice", nice, 0, _LOWEST)


def be_nice(nice: int) -> None:
    """Lowers the priority of the calling thread, which cannot get it back; elsewhere than on Linux a no-op."""
    if nice and sys.platform == "linux":
        # Against POSIX, Linux counts it by thread.
        thread = threading.get_native_id()
        now = os.getpriority(os.PRIO_PROCESS, thread)
        os.setpriority(os.PRIO_PROCESS, thread, min(now + nice, _LOWEST))
