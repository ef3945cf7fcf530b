"""`SerializedSource`: records that are bytes in files, and what a batch of them is made into."""

from __future__ import annotations

import functools
import threading
from collections.abc import Callable, Iterable, Mapping
from typing import Any, NamedTuple, Protocol

import numpy as np

from staging_tf1 import arguments
from staging_tf1.errors import CorruptRecordError, RecordFileError
from staging_tf1.sources.aligned import aligned_copy, aligned_empty
from staging_tf1.sources.cache import RecordCache
from staging_tf1.sources.order import Piece
from staging_tf1.sources.records import Options, RecordSource
from staging_tf1.sources.stack import record_specs, stack
from staging_tf1.spec import ArraySpec, map_structure

__all__ = ["Parsing", "SerializedFiles", "SerializedSource"]


class SerializedFiles(Protocol):
    """Records of one or several files, numbered through. Thread-safe."""

    @property
    def num_records(self) -> int:
        """Records in all files."""

    @property
    def paths(self) -> list[str]:
        """The files, in order."""

    def first_length(self) -> int:
        """Bytes in the first record that can be read."""

    def describe(self, record: int) -> str:
        """Names record number `record`, for messages."""

    def read(self, records: np.ndarray[Any, Any]) -> tuple[list[bytes], dict[int, CorruptRecordError]]:
        """Reads records.

        Args:
          records: their numbers, int64 [n].

        Returns:
          Their bytes, in that order; and for the corrupt ones, by their place in it, what is wrong.

        Raises:
          RecordFileError: a file cannot be read any more, or is not what it was.
        """

    def read_rows(
        self, records: np.ndarray[Any, Any], length: int
    ) -> tuple[np.ndarray[Any, Any], dict[int, CorruptRecordError]]:
        """As `read`, for records that all have `length` bytes: a fresh aligned uint8 matrix [n, length].

        Raises:
          SpecError: a record has another length.
        """


class Parsing(NamedTuple):
    """What a batch of serialized records is made into; see `TFRecordSource`."""

    features: Any = None
    parse_fn: Callable[[bytes], Any] | None = None
    as_uint8: bool = False
    skip_corrupt: bool = False
    cache_bytes: int = 0

    def checked(self, owner: str, transform: Any) -> Parsing:
        """The same in the kinds that they are used in.

        Raises:
          TypeError, ValueError: one of them makes no sense, or two of them together.
        """
        as_uint8 = arguments.flag(owner, "as_uint8", self.as_uint8)
        skip_corrupt = arguments.flag(owner, "skip_corrupt", self.skip_corrupt)
        cache_bytes = arguments.whole(
            owner, "cache_bytes", self.cache_bytes, 0, arguments.INT64_MAX, "bytes to keep in memory"
        )
        if self.features is not None:
            _check_features(owner, self.features)
        if self.parse_fn is not None:
            arguments.function(owner, "parse_fn", self.parse_fn, "a function from bytes to arrays")
        given = {"features=": self.features is not None, "parse_fn=": self.parse_fn is not None, "as_uint8=": as_uint8}
        chosen = [name for name, is_given in given.items() if is_given]
        if len(chosen) > 1:
            raise ValueError(
                f"{owner} got both {chosen[0]} and {chosen[1]}. features= parses in the graph, parse_fn= in Python, "
                f"as_uint8= not at all: choose one."
            )
        if as_uint8 and cache_bytes:
            raise ValueError(
                f"{owner} got as_uint8= and cache_bytes=: the system's page cache holds such records as well."
            )
        if self.features is not None and transform is not None:
            raise ValueError(
                f"{owner} got features= and transform=: the transform would see serialized records, since "
                "features= parses later, in the graph. Use parse_fn=, or transform the parsed tensors."
            )
        return Parsing(self.features, self.parse_fn, as_uint8, skip_corrupt, cache_bytes)


def _check_features(owner: str, features: Any) -> None:
    wanted = "a dict of tf.io.FixedLenFeature and the like, as tf.io.parse_example takes it"
    # They are all named tuples with a dtype; this room does not import TensorFlow.
    if not isinstance(features, Mapping) or not all(
        isinstance(name, str) and isinstance(feature, tuple) and hasattr(feature, "dtype")
        for name, feature in features.items()
    ):
        arguments.refuse(owner, "features", features, wanted)


class SerializedSource(RecordSource):
    """Batches of records from files, as they are or parsed.

    What a batch is:
      with neither `features` nor `parse_fn`: the serialized records, an object array of bytes, [batch];
      with `features`: the same, and `tf.io.parse_example(batch, source.features)` makes tensors of it in the graph;
      with `parse_fn`: what it returns for each record, stacked;
      with `as_uint8`: a uint8 matrix [batch, bytes] of records that have one length.

    Args:
      files: what reads the records.
      parsing, options: checked before the files were opened.

    Raises:
      RecordFileError: there are no records.
    """

    def __init__(
        self,
        files: SerializedFiles,
        parsing: Parsing,
        options: Options,
    ) -> None:
        if not files.num_records:
            raise RecordFileError(f"{self._owner} got no records: there are none in {', '.join(files.paths)}.")
        self._files = files
        self.features = parsing.features
        self._parse = parsing.parse_fn
        self._as_uint8 = parsing.as_uint8
        self._skip_corrupt = parsing.skip_corrupt
        self._cache = RecordCache(parsing.cache_bytes)
        self._skipped: set[int] = set()
        super().__init__(files.num_records, **options._asdict())

    def _take_shard(self, index: int, count: int) -> None:
        self._parsed_spec: Any = None
        self._parsed_lock = threading.Lock()
        super()._take_shard(index, count)

    @property
    def num_skipped(self) -> int:
        """Corrupt records that were left out so far, each counted once, those of all shards together."""
        return len(self._skipped)

    @property
    def cached_bytes(self) -> int:
        """Bytes of records that are held in memory."""
        return self._cache.held_bytes

    @property
    def files(self) -> list[str]:
        """The record files, in order."""
        return self._files.paths

    def _record_spec(self, batch_dim: int | None) -> Any:
        if self._skip_corrupt:
            batch_dim = None
        if self._as_uint8:
            return ArraySpec((batch_dim, self._length), np.dtype(np.uint8), "serialized")
        if self._parse is None:
            return ArraySpec((batch_dim,), np.dtype(object), "serialized")
        return record_specs(self._first_parsed(), batch_dim)

    def _first_parsed(self) -> Any:
        """The first record of this shard that is not corrupt: it sets the structure."""
        with self._parsed_lock:
            if self._parsed_spec is None:
                for place in range(self.num_records):
                    kept, found = self._records(self._numbers(self._order.records(Piece(0, place, place + 1))))
                    if kept:
                        (self._parsed_spec,) = found
                        break
                else:
                    raise RecordFileError(f"{self._owner}: all {self.num_records} records are corrupt.")
            return self._parsed_spec

    @staticmethod
    def _numbers(records: np.ndarray[Any, Any] | slice) -> np.ndarray[Any, Any]:
        if isinstance(records, slice):
            return np.arange(records.start, records.stop, records.step, dtype=np.int64)
        return records

    def _gather(self, records: np.ndarray[Any, Any] | slice) -> Any:
        if self._as_uint8:
            return self._rows(self._numbers(records))
        numbers, found = self._records(self._numbers(records))
        if self._parse is not None:
            return stack(self._first_parsed(), numbers, found, self._files.describe)
        batch = aligned_empty(len(numbers), np.dtype(object))
        batch[:] = list(found)
        return batch

    def _records(self, numbers: np.ndarray[Any, Any]) -> tuple[list[int], Iterable[Any]]:
        """The numbers of the records that are not corrupt, and the records, parsed as they are taken if they are to be.

        A `parse_fn` may write each record to the same array: what is to stay has to be copied before the next.
        """
        if not self._cache.limit_bytes:
            return self._fresh(numbers)
        held = {number: self._cache.get(number) for number in numbers.tolist()}
        missing = [number for number, record in held.items() if record is None]
        if missing:
            for number, record in zip(*self._fresh(np.array(missing, np.int64))):
                held[number] = record = map_structure(_copied, record)
                self._cache.offer(number, record)
        kept = [number for number in held if held[number] is not None]
        return kept, [held[number] for number in kept]

    @functools.cached_property
    def _length(self) -> int:
        """Bytes in the first record of all."""
        return self._files.first_length()

    def _rows(self, numbers: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
        rows, errors = self._files.read_rows(numbers, self._length)
        if not errors:
            return rows
        self._note(errors, numbers)
        return aligned_copy(np.delete(rows, list(errors), axis=0))

    def _note(self, errors: dict[int, CorruptRecordError], numbers: np.ndarray[Any, Any]) -> None:
        """Counts corrupt records, or raises for the first."""
        if not self._skip_corrupt:
            raise errors[min(errors)]
        self._skipped.update(int(numbers[place]) for place in errors)

    def _fresh(self, numbers: np.ndarray[Any, Any]) -> tuple[list[int], Iterable[Any]]:
        records, errors = self._files.read(numbers)
        kept = numbers.tolist()
        if errors:
            self._note(errors, numbers)
            places = [place for place in range(len(kept)) if place not in errors]
            kept, records = [kept[place] for place in places], [records[place] for place in places]
        # Not `map`, which a StopIteration of the user's would end.
        return kept, records if self._parse is None else (self._parse(record) for record in records)


def _copied(leaf: Any) -> Any:
    return leaf.copy() if isinstance(leaf, np.ndarray) else leaf
