"""`SerializedSource`: the base class of sources that read record files."""

from __future__ import annotations

import functools
import os
import sys
import threading
from collections.abc import Callable, Iterable, Mapping
from typing import Any, NamedTuple

import numpy as np

from staging_tf1 import arguments
from staging_tf1.errors import RecordFileError, SpecError
from staging_tf1.sources.aligned import aligned_copy, aligned_empty
from staging_tf1.sources.bad_records import BadRecords
from staging_tf1.sources.batches import Options
from staging_tf1.sources.files.file_list import ReadFile
from staging_tf1.sources.files.many_files import Errors, SerializedFiles
from staging_tf1.sources.files.remote import versions_of
from staging_tf1.sources.order import Piece, count_of, numbers_of
from staging_tf1.sources.records import RecordSource
from staging_tf1.sources.stacking import stack_records
from staging_tf1.spec import ArraySpec, component_name, flatten, flatten_with_paths, map_structure, pack
from staging_tf1.spec.arrays import as_array
from staging_tf1.spec.composite import as_composite, is_composite


class Parsing(NamedTuple):
    """The options of record files: how serialized records become batches. See `TFRecordSource`."""

    features: Any = None
    parse_fn: Callable[[bytes], Any] | None = None
    as_uint8: bool = False
    skip_corrupt: bool = False
    cache_bytes: int = 0
    skip_bad_records: bool = False
    max_ignored: int | None = None

    def checked(self, owner: str, transform: Any) -> Parsing:
        """Check and normalize the options. Two of them may exclude each other."""
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
                f"and as_uint8= does not parse: choose one."
            )
        if as_uint8 and cache_bytes:
            raise ValueError(
                f"{owner} got as_uint8= and cache_bytes=. The page cache of the system already holds such records."
            )
        if self.features is not None and transform is not None:
            raise ValueError(
                f"{owner} got features= and transform=. The transform would get serialized records, because features= "
                "parses later, in the graph. Use parse_fn=, or transform the parsed tensors."
            )
        bad = BadRecords.checked(owner, self.skip_bad_records, self.max_ignored)
        if bad is not None and self.parse_fn is None:
            raise ValueError(
                f"{owner} got skip_bad_records= without parse_fn=. Give the function that fails for bad records. "
                f"skip_corrupt=True skips records whose checksum does not match."
            )
        return Parsing(
            self.features, self.parse_fn, as_uint8, skip_corrupt, cache_bytes, bad is not None, self.max_ignored
        )


def _check_features(owner: str, features: Any) -> None:
    # Duck-typed, because sources do not import TensorFlow. All feature classes are named tuples with a dtype.
    if not isinstance(features, Mapping) or not all(
        isinstance(name, str) and isinstance(feature, tuple) and hasattr(feature, "dtype")
        for name, feature in features.items()
    ):
        expected = "a dict of tf.io.FixedLenFeature and the like, as in tf.io.parse_example"
        arguments.refuse(owner, "features", features, expected)


class SerializedSource(RecordSource):
    """Batches of serialized or parsed records, as in `TFRecordSource`, from files. The options are checked.

    Raises RecordFileError if the files hold no records.
    """

    def __init__(self, files: SerializedFiles, parsing: Parsing, options: Options) -> None:
        if not files.num_records:
            raise RecordFileError(f"{self._owner} found no records in {', '.join(files.paths)}.")
        self._files = files
        # Absolute now, because the fingerprint is made later, and a relative path would then name another file.
        self._listed = list(zip(map(os.path.abspath, files.paths), files.counts, strict=True))
        self.features = parsing.features
        self._parse = parsing.parse_fn
        self._as_uint8 = parsing.as_uint8
        self._skip_corrupt = parsing.skip_corrupt
        self._cache = _RecordCache(parsing.cache_bytes)
        self._skipped: set[int] = set()
        self._bad = BadRecords.checked(self._owner, parsing.skip_bad_records, parsing.max_ignored)
        self._drops_records = "skip_corrupt" if self._skip_corrupt else "skip_bad_records" if self._bad else ""
        self._set_up(files.num_records, options)

    @property
    def num_skipped(self) -> int:
        """Corrupt and bad records left out so far by this process, each counted once, over all shards."""
        return len(self._skipped) + (0 if self._bad is None else len(self._bad.numbers))

    @property
    def cached_bytes(self) -> int:
        """Bytes of records held in memory."""
        return self._cache.held_bytes

    @property
    def files(self) -> list[str]:
        """The record files, in order."""
        return self._files.paths

    def _read_files(self) -> list[ReadFile]:
        return self._listed

    def _file_versions(self) -> str:
        return versions_of(self._files.remote)

    def record_spec(self, batch_dim: int | None) -> Any:
        if self._as_uint8:
            return ArraySpec((batch_dim, self._length), np.dtype(np.uint8), "serialized")
        if self._parse is None:
            return ArraySpec((batch_dim,), np.dtype(object), "serialized")
        return _parsed_spec(self._first_parsed(), batch_dim)

    def _first_parsed(self) -> Any:
        """The first record of this shard that is not left out. It sets the structure of the batches."""
        return self._batching.memo.get("first", self._read_first)

    def _read_first(self) -> Any:
        for place in range(self.num_records):
            number = self._batching.kept(self._batching.order.records(Piece(0, place, place + 1)))
            kept, records = self._records(numbers_of(number)) if count_of(number) else ([], [])
            if kept:
                return next(iter(records))
        if self._bad is not None and self._bad.numbers:
            raise SpecError(f"{self._owner}: all {self.num_records} records are bad.")
        raise RecordFileError(f"{self._owner}: all {self.num_records} records are corrupt.")

    def gather(self, records: np.ndarray[Any, Any] | slice) -> Any:
        if self._as_uint8:
            return self._rows(numbers_of(records))
        numbers, intact = self._records(numbers_of(records))
        if self._parse is not None:
            specs, paired = _parsed_spec(self._first_parsed(), None), zip(numbers, intact, strict=True)
            return stack_records(specs, paired, len(numbers), self._files.describe, "parse_fn")
        batch = aligned_empty(len(numbers), np.dtype(object))
        batch[:] = list(intact)
        return batch

    def _read_single(self, numbers: np.ndarray[Any, Any]) -> list[tuple[int, Any]]:
        if self._parse is None:
            return super()._read_single(numbers)
        kept, records = self._records(numbers)
        return [(number, map_structure(_copied, record)) for number, record in zip(kept, records)]

    def _describe(self, number: int) -> str:
        return self._files.describe(number)

    def _records(self, numbers: np.ndarray[Any, Any]) -> tuple[list[int], Iterable[Any]]:
        """Return the numbers of intact records, and an iterable of the records that parses lazily.

        A `parse_fn` may write each record to the same array, so callers must copy each record before taking the next.
        """
        if self._bad is not None:
            numbers = self._bad.without_known(numbers)
        if not self._cache.limit_bytes:
            return self._fresh(numbers)
        held = {number: self._cache.get(number) for number in numbers.tolist()}
        missing = [number for number, record in held.items() if record is None]
        if missing:
            for number, record in zip(*self._fresh(np.array(missing, np.int64))):
                held[number] = record = map_structure(_copied, record)
                self._cache.offer(number, record)
        # A batch may have a record several times, as after weighted().
        kept = [number for number in numbers.tolist() if held[number] is not None]
        return kept, [held[number] for number in kept]

    @functools.cached_property
    def _length(self) -> int:
        return self._files.first_length()

    def _rows(self, numbers: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
        rows, errors = self._files.read_rows(numbers, self._length)
        if not errors:
            return rows
        self._note(errors, numbers)
        return aligned_copy(np.delete(rows, list(errors), axis=0))

    def _note(self, errors: Errors, numbers: np.ndarray[Any, Any]) -> None:
        """Count corrupt records, or raise the error of the first."""
        if not self._skip_corrupt:
            raise errors[min(errors)]
        self._skipped.update(int(numbers[row]) for row in errors)

    def _fresh(self, numbers: np.ndarray[Any, Any]) -> tuple[list[int], Iterable[Any]]:
        records, errors = self._files.read(numbers)
        kept = numbers.tolist()
        if errors:
            self._note(errors, numbers)
            rows = [row for row in range(len(kept)) if row not in errors]
            kept, records = [kept[row] for row in rows], [records[row] for row in rows]
        if self._parse is None:
            return kept, records
        if self._bad is not None:
            # How many rows a batch has is known when all of them are parsed.
            return self._bad.made(kept, lambda row: self._parsed_copy(records[row]), self._describe)
        # A generator, because a StopIteration of the user's function would silently end a `map`.
        return kept, (self._parse(record) for record in records)

    def _parsed_copy(self, serialized: bytes) -> Any:
        assert self._parse is not None
        record = self._parse(serialized)
        if record is None:
            raise SpecError("parse_fn returned None.")
        return map_structure(_copied, record)


def _copied(leaf: Any) -> Any:
    if is_composite(leaf):
        return as_composite(leaf)._map(np.array)
    return leaf.copy() if isinstance(leaf, np.ndarray) else leaf


def _parsed_spec(record: Any, batch_dim: int | None) -> Any:
    leaves = []
    for path, leaf in flatten_with_paths(record):
        array = as_array(leaf, None, f"parse_fn: {component_name(path)}")
        leaves.append(ArraySpec((batch_dim, *array.shape), array.dtype, path or None))
    return pack(record, leaves)


class _RecordCache:
    """Keeps the first records that fit into `limit_bytes`, counting arrays and strings. Thread-safe.

    Nothing is evicted. Each epoch reads each record once, so a least-recently-used cache smaller than the data would
    evict each record just before its next use and never hit.
    """

    def __init__(self, limit_bytes: int) -> None:
        self.limit_bytes = limit_bytes
        self.held_bytes = 0
        self._records: dict[int, Any] = {}
        self._lock = threading.Lock()

    def __getstate__(self) -> dict[str, Any]:
        # Each process has a cache of its own, which begins empty.
        return {"limit_bytes": self.limit_bytes}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__init__(state["limit_bytes"])  # type: ignore[misc]

    def get(self, number: int) -> Any:
        """Return the record, or None."""
        return self._records.get(number)

    def offer(self, number: int, record: Any) -> None:
        """Store the record if it fits."""
        if self.held_bytes >= self.limit_bytes:
            return
        size = sum(_size(leaf) for leaf in flatten(record))
        with self._lock:
            if number not in self._records and self.held_bytes + size <= self.limit_bytes:
                self._records[number] = record
                self.held_bytes += size


def _size(leaf: Any) -> int:
    if isinstance(leaf, np.ndarray):
        own = leaf.nbytes
        return own + sum(len(value) for value in leaf.flat) if leaf.dtype.hasobject else own
    return len(leaf) if isinstance(leaf, (bytes, str)) else sys.getsizeof(leaf)
