"""How many cores this process may use. Imports no library, so `staging-tf1 check` starts quickly."""

from __future__ import annotations

import os


def usable_cores() -> int:
    """Return the number of cores that this process may use, which can be fewer than the machine has."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1
