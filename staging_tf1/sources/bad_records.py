"""Leaves out, counts and names single bad records."""

from __future__ import annotations

import threading

from absl import logging

from staging_tf1 import arguments
from staging_tf1.errors import SpecError, StagingError

__all__ = ["BadRecords"]


class BadRecords:
    """The records that one process has left out. Thread-safe.

    Args:
      owner: the source, for messages.
      most: how many may be left out; None is no limit.
    """

    def __init__(self, owner: str, most: int | None) -> None:
        if most is not None:
            most = arguments.whole(owner, "max_ignored", most, 0, arguments.INT64_MAX, "records to leave out")
        self._most = most
        self.numbers: set[int] = set()
        self._lock = threading.Lock()

    def note(self, number: int, where: str, error: Exception) -> None:
        """Leave out a record, whose name in messages is `where`. Raises `error` if it may not be left out."""
        # These errors are not the record's fault.
        if isinstance(error, MemoryError) or (isinstance(error, StagingError) and not isinstance(error, SpecError)):
            raise error
        with self._lock:
            if number in self.numbers:
                return
            if self._most is not None and len(self.numbers) >= self._most:
                raise error
            self.numbers.add(number)
            count = len(self.numbers)
        logging.warning("left out %s (%d so far): %s: %s", where, count, type(error).__name__, error)
