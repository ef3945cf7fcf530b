"""`BadRecords`: the records that a source leaves out because they cannot be made."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from absl import logging

from staging_tf1 import arguments
from staging_tf1.errors import SpecError, StagingError


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

    @staticmethod
    def checked(owner: str, skip_bad_records: Any, max_ignored: Any) -> BadRecords | None:
        """Check the arguments of a source. Returns None if it leaves out no records."""
        skips = arguments.flag(owner, "skip_bad_records", skip_bad_records)
        if max_ignored is not None and not skips:
            raise ValueError(f"{owner} got max_ignored={max_ignored!r} without skip_bad_records=True. Give both.")
        return BadRecords(owner, max_ignored) if skips else None

    def without_known(self, numbers: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
        """Return the numbers of records, int64 [n], that have not been left out before."""
        if not self.numbers:
            return numbers
        return np.array([number for number in numbers.tolist() if number not in self.numbers], np.int64)

    def made(
        self, numbers: Sequence[int], make: Callable[[int], Any], describe: Callable[[int], str]
    ) -> tuple[list[int], list[Any]]:
        """Make records one by one, and leave out those for which `make(row)` raises.

        Returns the numbers of the others, and the others. `describe` names a record by its number, for messages.
        """
        kept, records = [], []
        for row, number in enumerate(numbers):
            try:
                records.append(make(row))
            except Exception as error:
                self._note(number, describe(number), error)
            else:
                kept.append(number)
        return kept, records

    def _note(self, number: int, where: str, error: Exception) -> None:
        """Leave out a record. Raises `error` if it may not be left out."""
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
