"""`Spans`: a set of record or batch numbers, as spans. What is left out of a source is given and saved in this form."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from typing import Any

import numpy as np

from staging_tf1 import arguments
from staging_tf1.errors import StagingError
from staging_tf1.sources.base import Source

# After so many batches without a record, and two epochs, an endless source is taken to have none.
_MOST_EMPTY = 10_000
# Characters of spans in a message.
_SHOWN = 100

_Numbers = np.ndarray[Any, Any]


# By identity: it holds arrays.
@dataclasses.dataclass(frozen=True, eq=False)
class Spans:
    """Whole numbers from 0: those from `starts[i]` to below `stops[i]`. The spans ascend and do not touch.

    >>> spans = Spans.of([5, 2, 8], [6, 4, 9])
    >>> spans.text, spans.count, spans.next_outside(2)
    ('2-3, 5, 8', 4, 4)
    """

    starts: _Numbers
    stops: _Numbers

    @classmethod
    def of(cls, starts: Any, stops: Any) -> Spans:
        """Return the set of spans that may overlap, in any order."""
        starts, stops = np.asarray(starts, np.int64), np.asarray(stops, np.int64)
        if not starts.size:
            return cls(starts, stops)
        order = starts.argsort(kind="stable")
        starts, stops = starts[order], np.maximum.accumulate(stops[order])
        begins = np.flatnonzero(np.concatenate([[True], starts[1:] > stops[:-1]]))
        return cls(starts[begins], stops[np.append(begins[1:] - 1, len(stops) - 1)])

    @classmethod
    def parsed(cls, text: str) -> Spans:
        """Return the spans of `text`. Raises ValueError if it is none."""
        parts = [part.partition("-") for part in text.split(",")] if text else []
        starts = [int(first) for first, _, _ in parts]
        return cls.of(starts, [int(last if dash else first) + 1 for first, dash, last in parts])

    @property
    def text(self) -> str:
        """The numbers for people and fingerprints: "2-3, 5"."""
        spans = zip(self.starts.tolist(), self.stops.tolist())
        return ", ".join(f"{start}-{stop - 1}" if stop - start > 1 else f"{start}" for start, stop in spans)

    @property
    def short(self) -> str:
        """The same for messages, shortened."""
        return shortened(self.text)

    @property
    def count(self) -> int:
        """How many numbers there are."""
        return int((self.stops - self.starts).sum())

    def __bool__(self) -> bool:
        return bool(self.starts.size)

    def __or__(self, other: Spans) -> Spans:
        return Spans.of(np.append(self.starts, other.starts), np.append(self.stops, other.stops))

    def has(self, numbers: _Numbers) -> _Numbers:
        """Return for each number whether it is in the set: bool [n]."""
        if not self:
            return np.zeros(len(numbers), bool)
        span = self.starts.searchsorted(numbers, side="right") - 1
        found: _Numbers = (span >= 0) & (numbers < self.stops[span])
        return found

    def __contains__(self, number: int) -> bool:
        return self.next_outside(number) != number

    def below(self, end: int) -> Spans:
        """Return the part of the set below `end`."""
        return Spans(self.starts[self.starts < end], np.minimum(self.stops, end)[self.starts < end])

    def next_outside(self, number: int) -> int:
        """Return the first number from `number` on that is not in the set."""
        span = int(self.starts.searchsorted(number, side="right")) - 1
        return max(number, int(self.stops[span])) if span >= 0 else number

    def all_outside(self) -> Iterator[int]:
        """Yield the numbers that are not in the set, without end."""
        number = self.next_outside(0)
        while True:
            yield number
            number = self.next_outside(number + 1)


def shortened(text: str) -> str:
    """Return the first numbers of a long list of spans.

    >>> shortened("2-3, 5")
    '2-3, 5'
    """
    return text if len(text) <= _SHOWN else text[:_SHOWN].rpartition(",")[0] + ", ..."


NO_SPANS = Spans.of([], [])


def checked_spans(caller: str, argument: str, values: Any, end: int, unit: str) -> Spans:
    """Check numbers of records or batches: a range, an array, or a list of numbers and ranges. They may overlap.

    Args:
      caller, argument: for messages.
      values: the argument.
      end: all numbers must be below it; at most 2**63 - 1.
      unit: what has the numbers, "record" or "batch".

    Raises:
      TypeError, ValueError: one is negative, too large or no whole number; a range is empty or has steps.
    """
    expected = f"{unit} numbers {arguments.in_range(0, end - 1)}: a list of whole numbers and ranges"
    if isinstance(values, np.ndarray):
        if isinstance(values, np.ma.MaskedArray):
            arguments.refuse(caller, argument, values, f"{expected}, without a mask of missing values")
        if values.dtype.kind == "b":
            arguments.refuse(caller, argument, values, f"{expected}. For a mask, pass np.flatnonzero(mask)")
        if values.ndim != 1 or (values.size and values.dtype.kind not in "iu"):
            arguments.refuse(caller, argument, values, expected)
        outside = np.flatnonzero((values < 0) | (values >= end))
        if outside.size:
            raise ValueError(f"{caller} got {unit} {values[outside[0]]} in {argument}, expected {expected}.")
        return Spans.of(values, values.astype(np.int64) + 1)
    if isinstance(values, Source):  # an iterable of batches
        arguments.refuse(caller, argument, values, expected)
    listed = [values] if isinstance(values, range) else arguments.listed(caller, argument, values, expected)
    spans = [_span(caller, argument, value, end, unit, expected) for value in listed]
    return Spans.of([start for start, _ in spans], [stop for _, stop in spans])


def _span(caller: str, argument: str, value: Any, end: int, unit: str, expected: str) -> tuple[int, int]:
    got = f"{caller} got {arguments.shown(value)} in {argument}"
    if not isinstance(value, range):
        number = arguments.as_int(value)
        if number is None:
            raise TypeError(f"{got}, expected {expected}.")
        if not 0 <= number < end:
            raise ValueError(f"{got}, expected {expected}.")
        return number, number + 1
    if value.step != 1:
        raise ValueError(f"{got}, a range with steps, expected steps of 1. Pass its numbers: [*range(...)].")
    if not value:
        raise ValueError(f"{got}, an empty range, expected range(FIRST, LAST + 1).")
    if value.start < 0 or value.stop > end:
        raise ValueError(f"{got}, expected {expected}.")
    return value.start, value.stop


def end_of(source: Source, limit: int | None) -> int | None:
    """Return how many batches of a source are read, at most `limit` if there is one; None if endless."""
    ends = [end for end in (source.num_batches, limit) if end is not None]
    return min(ends) if ends else None


def next_kept(source: Source, skip: Spans, index: int, end: int | None) -> int | None:
    """Return the first batch from `index` on that is not left out.

    Args:
      source: with the batches. It leaves out those without a record.
      skip: the numbers of batches that are left out, too.
      index: the first batch to look at.
      end: how many batches there are; None if endless.

    Returns:
      Its number; None if there is none.

    Raises:
      StagingError: an endless source seems to have none.
    """
    empty, most = 0, None
    while True:
        index = skip.next_outside(index) if skip else index
        if end is not None and index >= end:
            return None
        if not (source.leaves_out and source.is_left_out(index)):
            return index
        index += 1
        empty += 1
        if end is None and empty >= _MOST_EMPTY:
            if most is None:
                most = 2 * (source.batches_per_epoch or -(-(source.num_records or 0) // source.batch_size))
            if empty >= most:
                raise StagingError(
                    f"{source!r}: without() leaves no record in {empty} batches, up to batch {index - 1}. Leave out "
                    f"fewer records, or use fewer shards."
                )
