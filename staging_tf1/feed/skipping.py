"""Bad batches that the user wants skipped and counted rather than raised."""

from __future__ import annotations

import threading
from dataclasses import dataclass
from typing import Any

from absl import logging

from staging_tf1.arguments import INT64_MAX, refuse, shown, whole
from staging_tf1.feed.source_errors import text_of


@dataclass(frozen=True)
class Ignored:
    """Which exceptions are skipped, and how many of them in one session; None is no limit."""

    types: tuple[type[BaseException], ...] = ()
    most: int | None = None


NONE_IGNORED = Ignored()


def ignored(types: Any, most: Any, what: str) -> Ignored:
    """Checks the arguments `ignored_exception_types` and `max_ignored`.

    Raises:
      TypeError, ValueError: they are no exception classes, or no number.
    """
    wanted = "subclasses of Exception, such as (tf.errors.DataLossError,)"
    if not isinstance(types, (type, tuple, list, set, frozenset)):
        refuse(what, "ignored_exception_types", types, wanted)
    listed = (types,) if isinstance(types, type) else tuple(types)
    for each in listed:
        if not (isinstance(each, type) and issubclass(each, Exception)):
            raise TypeError(f"{what} got {shown(each)} among ignored_exception_types, wanted {wanted}.")
    if most is None:
        return Ignored(listed)
    number = whole(what, "max_ignored", most, 0, INT64_MAX, "skipped batches")
    if not listed:
        raise ValueError(f"{what} got max_ignored={number} without ignored_exception_types. Name the exceptions, too.")
    return Ignored(listed, number)


class Skips:
    """Counts the skipped batches of one lane in one session. Thread-safe."""

    def __init__(self, name: str, rule: Ignored) -> None:
        self.types = rule.types
        self.count = 0
        self._name, self._most = name, rule.most
        self._lock = threading.Lock()

    def skip(self, error: BaseException) -> None:
        """Counts one more; raises `error` instead when that is one too many."""
        with self._lock:
            if self._most is not None and self.count >= self._most:
                raise error
            self.count += 1
            count = self.count
        kind, text = type(error).__name__, text_of(error)
        logging.warning("'%s' skips a bad batch, its number %d: %s: %s", self._name, count, kind, text)
