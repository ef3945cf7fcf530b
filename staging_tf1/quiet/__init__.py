"""Imports TensorFlow for the commands: quickly, and without its noise. Errors and the program's output are shown."""

from __future__ import annotations

import gc
import sys
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from typing import Any

from staging_tf1.quiet.stderr_filter import StderrFilter

__all__ = ["QuietStart", "import_quietly"]


class QuietStart:
    """Keeps TensorFlow quiet while it is imported and looks for devices, until a session has its first graph.

    Filters nothing if the user has chosen what TensorFlow logs (TF_CPP_MIN_LOG_LEVEL).
    """

    def __init__(self) -> None:
        self._filter: StderrFilter | None = None

    @contextmanager
    def importing(self) -> Iterator[None]:
        """The context in which to import TensorFlow."""
        self._filter = StderrFilter.start()
        with _without_collections(), nullcontext() if self._filter is None else self._filter.active():
            yield

    def watch(self, owner: Any, method: str, *, last: bool = False) -> None:
        """Keep the first call of a method quiet. After the last one nothing is filtered."""
        if self._filter is not None:
            self._filter.around_first(owner, method, last=last)


@contextmanager
def _without_collections() -> Iterator[None]:
    """A search for garbage among a million new objects that all stay takes a fifth of TensorFlow's import."""
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_enabled:
            gc.enable()


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
