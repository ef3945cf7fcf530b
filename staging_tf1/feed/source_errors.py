"""Exceptions of the user's source: they name their batch, may be skipped, and are never taken for the data's end."""

from __future__ import annotations

import contextlib
import sys
import threading
import weakref
from dataclasses import dataclass
from typing import Any

from absl import logging

from staging_tf1._tf import tf
from staging_tf1.arguments import INT64_MAX, instance, shown, whole
from staging_tf1.errors import SourceError

# A session takes the first two for the end of the data. After the other two it restarts, and without a checkpoint it
# silently begins with new variables.
_SIGNALS = (StopIteration, tf.errors.OutOfRangeError, tf.errors.AbortedError, tf.errors.UnavailableError)


class naming_batch:
    """Adds a note with the batch's number to an exception that the source raises."""

    def __init__(self, index: int) -> None:
        self._index = index

    def __enter__(self) -> None:
        return None

    def __exit__(self, kind: Any, error: BaseException | None, traceback: Any) -> None:
        if error is not None:
            add_note(error, f"raised while the source made batch {self._index}")


def keep_cause(coord: Any) -> None:
    """Let a MonitoredSession re-raise an exception of a source as it is, after a run that has raised it.

    It asks the coordinator for a requested exception, and if there is one, raises that of the run `from None`. The
    cause would be lost, also to the coordinator, which has the same exception.

    Args:
      coord: the coordinator of the session.
    """
    if not isinstance(coord, tf.train.Coordinator) or "raise_requested_exception" in vars(coord):
        return
    itself, ask = weakref.ref(coord), type(coord).raise_requested_exception

    def ask_for_others() -> None:
        handled = sys.exc_info()[1]
        try:
            ask(itself())
        except BaseException as requested:
            if requested is not handled:
                raise

    coord.raise_requested_exception = ask_for_others


class errors_only:
    """Raises `SourceError` in place of an exception that a training session would take for a signal.

    PEP 479 does the same: it turns a StopIteration inside a generator into a RuntimeError.

    Args:
      owner: the owner of the source, for messages: "'train'".
    """

    def __init__(self, owner: str) -> None:
        self._owner = owner

    def __enter__(self) -> None:
        return None

    def __exit__(self, kind: Any, error: BaseException | None, traceback: Any) -> None:
        if isinstance(error, _SIGNALS):
            raise SourceError(_not_the_end(self._owner, error)) from error


def _not_the_end(owner: str, error: BaseException) -> str:
    kind = type(error).__name__
    batch = "".join(
        note.replace("raised while the source", " while it")
        for note in getattr(error, "__notes__", ())
        if note.startswith("raised while the source")
    )
    message = f": {text}" if (text := text_of(error)) else ""
    return (
        f"{owner}: the source raised {kind}{batch}{message}. This is an error, not the end of the data: a source ends "
        f"with its last batch, a generator by returning. Catch the {kind} in the source, or skip the batch with "
        f"ignored_exception_types."
    )


def text_of(error: BaseException) -> str:
    """Return the text of an exception, even if its own code fails."""
    try:
        return str(error)
    except Exception as failure:
        return f"(its text raises {type(failure).__name__})"


def add_note(error: BaseException, note: str) -> None:
    """`BaseException.add_note`, which Python 3.10 lacks. Does nothing if the exception takes no attributes."""
    with contextlib.suppress(Exception):
        error.__notes__ = [*getattr(error, "__notes__", []), note]


@dataclass(frozen=True)
class SkipRule:
    """Which exceptions are skipped, and how many per session; None is no limit."""

    types: tuple[type[BaseException], ...] = ()
    most: int | None = None


def skip_rule(types: Any, most: Any, caller: str) -> SkipRule:
    """Check the arguments `ignored_exception_types` and `max_ignored`.

    Raises:
      TypeError, ValueError: they are not exception classes, or not a number.
    """
    expected = "subclasses of Exception, such as (tf.errors.DataLossError,)"
    instance(caller, "ignored_exception_types", types, (type, tuple, list, set, frozenset), expected)
    listed = (types,) if isinstance(types, type) else tuple(types)
    for kind in listed:
        if not (isinstance(kind, type) and issubclass(kind, Exception)):
            raise TypeError(f"{caller} got {shown(kind)} in ignored_exception_types, expected {expected}.")
    if most is None:
        return SkipRule(listed)
    number = whole(caller, "max_ignored", most, 0, INT64_MAX, "skipped batches")
    if not listed:
        raise ValueError(f"{caller} got max_ignored={number} without ignored_exception_types. Give both.")
    return SkipRule(listed, number)


class SkipCounter:
    """Counts the batches that one producer skips in one session. Thread-safe."""

    def __init__(self, name: str, rule: SkipRule) -> None:
        self.types = rule.types
        self.count = 0
        self._name, self._most = name, rule.most
        self._lock = threading.Lock()

    def skip(self, error: BaseException) -> None:
        """Count one skipped batch; raise `error` instead if that exceeds the limit."""
        with self._lock:
            if self._most is not None and self.count >= self._most:
                raise error
            self.count += 1
            count = self.count
        kind, text = type(error).__name__, text_of(error)
        logging.warning("'%s' skipped a bad batch (%d so far): %s: %s", self._name, count, kind, text)
