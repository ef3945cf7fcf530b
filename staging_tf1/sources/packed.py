"""Rows of one length that hold several records, for sequences of different lengths.

Which records share a row is computed once, from their lengths alone: so rows have numbers, and are shuffled,
divided and resumed like any records.
"""

from __future__ import annotations

import bisect
from collections.abc import Sequence
from typing import Any

import numpy as np

from staging_tf1 import arguments
from staging_tf1.arguments import INT32_MAX
from staging_tf1.errors import SpecError
from staging_tf1.sources.aligned import aligned_empty
from staging_tf1.sources.batches import Memo
from staging_tf1.sources.lengths import checked_lengths
from staging_tf1.sources.order import numbers_of
from staging_tf1.sources.padding import Padding
from staging_tf1.sources.parts import Combination, check_part, check_plain
from staging_tf1.sources.records import RecordSource
from staging_tf1.sources.selection import digest
from staging_tf1.sources.stacking import record_arrays, record_specs, refuse_empty_list
from staging_tf1.spec import ArraySpec, component_name, flatten, flatten_up_to, named_by_path, pack
from staging_tf1.spec.arrays import describe

_CALLER = "packed()"
# How many consecutive records are packed together. A larger block pads less, but mixes distant records in a row.
_BLOCK = 4096


def packed_rows(lengths: np.ndarray[Any, Any], length: int) -> list[list[int]]:
    """Return the numbers of the records in each row, ascending.

    Within a block, longest first, each record goes into the row where it leaves the least room.

    >>> packed_rows(np.array([5, 4, 3, 2]), 7)
    [[0, 3], [1, 2]]
    """
    rows = []
    for start in range(0, len(lengths), _BLOCK):
        rows += [[start + number for number in row] for row in _best_fit(lengths[start : start + _BLOCK], length)]
    return rows


def _best_fit(lengths: np.ndarray[Any, Any], length: int) -> list[list[int]]:
    rows: list[list[int]] = []
    # The free room of each row, with its number, ascending.
    free: list[tuple[int, int]] = []
    for number in np.argsort(-lengths, kind="stable").tolist():
        needed = int(lengths[number])
        index = bisect.bisect_left(free, (needed, -1))
        if index == len(free):
            rows.append([])
            room, row = length, len(rows) - 1
        else:
            room, row = free.pop(index)
        rows[row].append(number)
        bisect.insort(free, (room - needed, row))
    return sorted(map(sorted, rows))


class Packed(Combination):
    """What `RecordSource.packed` makes. Its records are rows."""

    def __init__(self, source: RecordSource, length: Any, lengths: Any, value: Any) -> None:
        check_part(_CALLER, "the source", source)
        check_plain(_CALLER, source, "packed", "source.packed(...)")
        total = source._check_whole(_CALLER)
        self._length = arguments.whole(_CALLER, "length", length, 1, INT32_MAX, "values of a row")
        self._lengths = checked_lengths(_CALLER, lengths, total)
        outside = np.flatnonzero((self._lengths < 0) | (self._lengths > self._length))
        if outside.size:
            raise ValueError(
                f"{_CALLER} got the length {self._lengths[outside[0]]} of record {outside[0]}, expected lengths from 0 "
                f"to {self._length}. Crop long records, or leave them out: source.select(lengths <= {self._length})."
            )
        rows = packed_rows(self._lengths, self._length)
        self._source = source
        # The places of all records, row by row, and where each row begins.
        self._members = np.concatenate([np.array(row, np.int64) for row in rows])
        self._starts = np.cumsum([0, *map(len, rows)])
        self._padding = Padding(self._length, value)
        self._memo = Memo()
        self._text = f"packed({self._length}, lengths={digest(self._lengths)})"
        self._combine([source], len(rows), source._batching.options)

    def record_spec(self, batch_dim: int | None) -> Any:
        shape, kind = (batch_dim, self._length), np.dtype(np.int32)
        return named_by_path((self._plan().spec(batch_dim), ArraySpec(shape, kind), ArraySpec(shape, kind)))

    def gather(self, records: np.ndarray[Any, Any] | slice) -> Any:
        rows = [self._members[self._starts[row] : self._starts[row + 1]] for row in numbers_of(records).tolist()]
        read = iter(self._source._single(np.concatenate(rows)))
        segments = aligned_empty((len(rows), self._length), np.dtype(np.int32))
        positions = aligned_empty((len(rows), self._length), np.dtype(np.int32))
        segments[...] = positions[...] = 0
        joined = []
        for number, places in enumerate(rows):
            joined.append((number, self._joined([self._arrays(int(place), *next(read)) for place in places])))
            begin = 0
            for segment, size in enumerate(self._lengths[places].tolist(), 1):
                segments[number, begin : begin + size] = segment
                positions[number, begin : begin + size] = np.arange(size)
                begin += size
        return self._plan().stack(joined, lambda row: f"{_CALLER}: row {row}"), segments, positions

    def _arrays(self, place: int, number: int, record: Any) -> list[np.ndarray[Any, Any]]:
        """Return the components of a record, which all have its length."""
        where = self._source._describe(number)
        like, specs = self._specs()
        arrays = []
        for path, array in record_arrays(like, specs, record, where):
            if array.ndim == 0 or len(array) != self._lengths[place]:
                got = describe(array.dtype, array.shape)
                raise SpecError(
                    f"{where}: {component_name(path)} is {got}, but {_CALLER} got the length {self._lengths[place]}. "
                    f"All components of a record must have as many rows as its length says."
                )
            arrays.append(array)
        return arrays

    def _joined(self, records: Sequence[list[np.ndarray[Any, Any]]]) -> Any:
        return pack(self._specs()[0], [np.concatenate(arrays) for arrays in zip(*records, strict=True)])

    def _specs(self) -> tuple[Any, list[ArraySpec]]:
        return self._memo.get("specs", self._read_specs)  # type: ignore[no-any-return]

    def _read_specs(self) -> tuple[Any, list[ArraySpec]]:
        number, first = self._first()
        where = self._source._describe(number)
        like = record_specs(first, where)
        for path, value in flatten_up_to(like, first, where):
            refuse_empty_list(value, f"{where}: {component_name(path)}")
        return like, flatten(like)

    def _plan(self) -> Any:
        return self._memo.get("plan", self._read_plan)

    def _read_plan(self) -> Any:
        number, first = self._first()
        return self._padding.planned(self._joined([self._arrays(0, number, first)]), self._source._describe(number))

    def _first(self) -> tuple[int, Any]:
        return self._source._single(np.zeros(1, np.int64))[0]

    def _describe(self, number: int) -> str:
        return f"{_CALLER}: row {number}"

    def _recipe(self) -> str:
        return self._batching.chosen.text(f"{self._source._recipe()}.{self._text}")
