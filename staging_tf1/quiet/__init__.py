"""Keeps TensorFlow's start-up noise off the terminal, for the commands. Errors and the program's output are shown."""

from __future__ import annotations

import sys
from contextlib import AbstractContextManager, nullcontext
from typing import Any

from staging_tf1.quiet.stderr_filter import StderrFilter

__all__ = ["QuietStart", "import_quietly"]


class QuietStart:
    """Keeps TensorFlow quiet while it is imported and looks for devices, until a session has its first graph.

    Does nothing if the user has chosen what TensorFlow logs (TF_CPP_MIN_LOG_LEVEL).
    """

    def __init__(self) -> None:
        self._filter: StderrFilter | None = None

    def importing(self) -> AbstractContextManager[None]:
        """The context in which to import TensorFlow."""
        self._filter = StderrFilter.start()
        return nullcontext() if self._filter is None else self._filter.active()

    def watch(self, owner: Any, method: str, *, last: bool = False) -> None:
        """Keep the first call of a method quiet. After the last one nothing is filtered."""
        if self._filter is not None:
            self._filter.around_first(owner, method, last=last)


def import_quietly() -> None:
    """Import TensorFlow, unless that has happened, and keep it quiet until a session has its first graph."""
    if "tensorflow" in sys.modules:
        return
    quiet = QuietStart()
    with quiet.importing():
        from staging_tf1._tf import first_to_log
    *earlier, last = first_to_log()
    for owner, method in earlier:
        quiet.watch(owner, method)
    quiet.watch(*last, last=True)
