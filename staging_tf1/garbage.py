"""Python's garbage collector: when it must not run, and where it may have closed a session."""

from __future__ import annotations

import gc
import threading
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def without_collections() -> Iterator[None]:
    """Keep Python from searching for garbage in the block, which makes many objects and frees none."""
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_enabled:
            gc.enable()


def join_thread(thread: threading.Thread | None, secs: float | None = None) -> None:
    """Wait until a thread of a session has ended, for at most `secs` seconds. It has been told to end.

    Called in that very thread (the garbage collector may close a session there), it returns at once.
    """
    # A thread whose start a Ctrl-C has cut short is not alive, and cannot be joined yet; it ends as soon as it begins.
    # A thread that is starting is not yet `threading.current_thread()`, but has its identity.
    if thread is not None and thread.is_alive() and thread.ident != threading.get_ident():
        thread.join(secs)
