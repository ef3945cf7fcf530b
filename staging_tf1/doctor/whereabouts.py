"""The line of the user's program that a thread stands in at this moment."""

from __future__ import annotations

import site
import sys
import sysconfig

from staging_tf1.graph.callsite import CallSite, is_users

# What a source calls is not the line to look at: the line that calls it is.
_LIBRARIES = (sysconfig.get_paths()["stdlib"], *site.getsitepackages(), site.getusersitepackages())


def users_line(ident: int | None) -> CallSite | None:
    """The innermost line of the user's program in the thread `ident`; None if it stands in none, or is over.

    >>> import threading
    >>> users_line(None) is None
    True
    """
    frame = sys._current_frames().get(ident) if ident is not None else None
    while frame is not None:
        filename = frame.f_code.co_filename
        if is_users(filename) and not filename.startswith(_LIBRARIES):
            return CallSite(filename, frame.f_lineno, frame.f_code.co_name)
        frame = frame.f_back
    return None


def users_place(ident: int | None) -> str:
    """`users_line` as the end of a sentence: ", at reader.py:12 in read()"; empty if there is none."""
    line = users_line(ident)
    return "" if line is None else f", at {line} in {line.function}()"
