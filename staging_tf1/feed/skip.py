"""Skips and counts bad batches, instead of raising their exceptions, if the user asked for it."""

from __future__ import annotations

import threading
from dataclasses import dataclass
from typing import Any

from absl import logging

from staging_tf1.arguments import INT64_MAX, refuse, shown, whole
from staging_tf1.feed.source_errors import text_of


@dataclass(frozen=True)
class SkipRule:
    """Which exceptions are skipped, and how many per session; None is no limit."""

    types: tuple[type[BaseException], ...] = ()
    most: int | None = None


NONE_SKIPPED = SkipRule()


def skip_rule(types: Any, most: Any, what: str) -> SkipRule:
    """Check the arguments `ignored_exception_types` and `max_ignored`.

    Raises:
      TypeError, ValueError: they are not exception classes, or not a number.
    """
    expected = "subclasses of Exception, such as (tf.errors.DataLossError,)"
    if not isinstance(types, (type, tuple, list, set, frozenset)):
        refuse(what, "ignored_exception_types", types, expected)
    listed = (types,) if isinstance(types, type) else tuple(types)
    for each in listed:
        if not (isinstance(each, type) and issubclass(each, Exception)):
            raise TypeError(f"{what} got {shown(each)} in ignored_exception_types, expected {expected}.")
    if most is None:
        return SkipRule(listed)
    number = whole(what, "max_ignored", most, 0, INT64_MAX, "skipped batches")
    if not listed:
        raise ValueError(f"{what} got max_ignored={number} without ignored_exception_types. Give both.")
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
