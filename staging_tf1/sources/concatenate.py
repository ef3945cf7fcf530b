"""The records of several sources, one source after the other."""

from __future__ import annotations

import functools
from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np

from staging_tf1.errors import SpecError
from staging_tf1.sources.aligned import aligned_empty
from staging_tf1.sources.batches import Arrangement, Options
from staging_tf1.sources.blocks import has_blocks
from staging_tf1.sources.order import numbers_of
from staging_tf1.sources.parts import Combination, agreed_options, check_same_specs, listed_parts
from staging_tf1.sources.records import RecordSource
from staging_tf1.spec import flatten, pack, with_batch_dim


def concatenate(sources: Iterable[RecordSource]) -> RecordSource:
    """Make one source of all records of several sources: first those of the first one, and so on.

    All must have the same options, which the result keeps: `with_options` changes them. With `shuffle=True` the result
    shuffles all records together. Seeds that the sources drew are dropped.

    Raises:
      TypeError: `sources` is not a list of `RecordSource`.
      SpecError: their records have different components, dtypes or shapes.
      ValueError: their options differ, or one is a shard, padded, arranged by length, or may leave out records.

    >>> source = ArraySource(np.arange(3), batch_size=4, epochs=1)
    >>> concatenate([source, source]).batch(0)
    array([0, 1, 2, 0])
    """
    caller = "concatenate()"
    parts = listed_parts(caller, sources)
    options = agreed_options(caller, parts)
    return Concatenation(caller, parts, options, sum(part.num_records for part in parts))


class Concatenation(Combination):
    """What `concatenate` makes. Record numbers go through the sources in order."""

    def __init__(
        self,
        caller: str,
        parts: Sequence[RecordSource],
        options: Options,
        num_records: int,
        arrangement: Arrangement | None = None,
    ) -> None:
        _check_features(caller, parts)
        check_same_specs(caller, parts, shapes=False)
        self._caller = caller
        self._starts = np.cumsum([0, *(part.num_records for part in parts)])
        self._starts_list = self._starts[:-1].tolist()
        self.features = parts[0].features
        self.gives_away = all(part.gives_away for part in parts)
        self._makes_batches = any(part._makes_batches for part in parts)
        self._copies_rows = all(map(has_blocks, parts))
        self._combine(parts, num_records, options, arrangement)

    def record_spec(self, batch_dim: int | None) -> Any:
        return with_batch_dim(self._specs, batch_dim)

    @functools.cached_property
    def _specs(self) -> Any:
        """The specs of batches of any size. Kept, because nested combinations need them at each level."""
        check_same_specs(self._caller, self._parts, shapes=True)
        return self._parts[0].record_spec(None)

    def gather(self, records: np.ndarray[Any, Any] | slice) -> Any:
        if isinstance(records, slice):
            wanted = range(records.start, records.stop, records.step)
            first, last = np.searchsorted(self._starts, (wanted[0], wanted[-1]), side="right") - 1
            if first == last:
                start = self._starts_list[first]
                places = slice(records.start - start, records.stop - start, records.step)
                return self._parts[first]._fetch(places)
        numbers = numbers_of(records)
        parts = self._by_part(numbers)
        if len(parts) == 1:
            part = parts[0][0]
            return self._parts[part]._fetch(numbers - self._starts[part])
        batches = [(rows, self._parts[part]._fetch(places)) for part, rows, places in parts]
        return _joined(self._caller, batches, len(numbers))

    def _by_part(self, numbers: np.ndarray[Any, Any]) -> list[tuple[int, np.ndarray[Any, Any], np.ndarray[Any, Any]]]:
        """Divide record numbers among the sources. Returns for each its index, rows of `numbers`, and places in it."""
        rows = numbers.argsort()
        ascending = numbers[rows]
        cuts = ascending.searchsorted(self._starts).tolist()
        divided = []
        for part, start in enumerate(self._starts_list):
            begin, end = cuts[part], cuts[part + 1]
            if begin < end:
                divided.append((part, rows[begin:end], ascending[begin:end] - start))
        return divided

    def _read_single(self, numbers: np.ndarray[Any, Any]) -> list[tuple[int, Any]]:
        records: list[Any] = [None] * len(numbers)
        for part, rows, places in self._by_part(numbers):
            read = self._parts[part]._single(places)
            for row, (_, record) in zip(rows.tolist(), read, strict=True):
                records[row] = (int(numbers[row]), record)
        return records

    def _describe(self, number: int) -> str:
        part, own = self._own_number(number)
        return f"{self._caller}: source {part}: {self._parts[part]._describe(own)}"

    @property
    def _numbers_end(self) -> int:
        # A mixture may have fewer places in an epoch than there are records.
        return int(self._starts[-1])

    def _own_number(self, number: int) -> tuple[int, int]:
        ((part, _, places),) = self._by_part(np.array([number]))
        own = numbers_of(self._parts[part]._batching.chosen.numbers(places))
        return part, int(own[0])

    def _recipe(self) -> str:
        return self._batching.chosen.text(f"{self._caller[:-1]}{', '.join(part._recipe() for part in self._parts)})")


def _check_features(caller: str, parts: Sequence[RecordSource]) -> None:
    for number, part in enumerate(parts):
        if part.features != parts[0].features:
            raise ValueError(f"{caller} got sources with different features=, source 0 and {number}. Use parse_fn=.")


def _joined(caller: str, batches: Sequence[tuple[np.ndarray[Any, Any], Any]], count: int) -> Any:
    """Join batches: the rows of each go to the given rows of the result."""
    like = batches[0][1]
    flat = [(rows, flatten(batch)) for rows, batch in batches]
    joined = []
    for number, leaf in enumerate(flat[0][1]):
        whole = aligned_empty((count, *leaf.shape[1:]), leaf.dtype)
        for rows, leaves in flat:
            if leaves[number].shape[1:] != leaf.shape[1:]:
                raise SpecError(f"{caller}: the sources have records of different shapes. Pad the result, with pad().")
            whole[rows] = leaves[number]
        joined.append(whole)
    return pack(like, joined)
