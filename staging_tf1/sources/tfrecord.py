"""`TFRecordSource`: TFRecord files, read at random."""

from __future__ import annotations

import functools
import glob
import os
import threading
from collections.abc import Callable, Iterable
from typing import Any, Literal

import numpy as np

from staging_tf1.errors import CorruptRecordError, RecordFileError
from staging_tf1.sources import arguments
from staging_tf1.sources.aligned import aligned_copy, aligned_empty
from staging_tf1.sources.cache import RecordCache
from staging_tf1.sources.order import Piece
from staging_tf1.sources.records import RecordSource
from staging_tf1.sources.stack import record_specs, stack
from staging_tf1.sources.tfrecord_index import INDEX_SUFFIX, UNPACKED_SUFFIX, open_index
from staging_tf1.sources.tfrecord_read import RecordFiles
from staging_tf1.sources.tfrecord_scan import FRAMING_BYTES
from staging_tf1.sources.transform import Transform
from staging_tf1.spec import ArraySpec

__all__ = ["TFRecordSource", "matching_files"]


class TFRecordSource(RecordSource):
    """Batches of records from TFRecord files, in any order, each record checked by its checksum.

    The first use of a file makes an index of its records beside it (one pass over the record headers;
    `staging-tf1 index` does it beforehand); a compressed file is also unpacked there, once, at the cost of
    its uncompressed size on disk. The index is mapped, so that memory and start do not grow with the number
    of records.

    What a batch is:
      with neither `features` nor `parse_fn`: the serialized records, an object array of bytes, [batch];
      with `features`: the same, and `tf.io.parse_example(batch, source.features)` makes tensors of it in the
      graph; with `parse_fn`: what it returns for each record, stacked.

    Args:
      files: a path or glob, or several. The files are taken in the order given, those of a glob by name.
      features: the `features` of `tf.io.parse_example`: a dict of `tf.io.FixedLenFeature` and the like.
      parse_fn: from the bytes of one record to a nest of arrays and numbers, alike for all records. Called
        from several threads at once.
      as_uint8: see above.
      skip_corrupt: leave out corrupt records and what lies behind a broken header, and count them
        (`num_skipped`, `lost_bytes`); the batches they were in are smaller. By default they raise.
      cache_bytes: keep up to so many bytes of records in memory, parsed if `parse_fn` parses them.
      verify: check the checksum of each record that is read; False saves 0.2 us for 1 KB.
      access: "mmap", or "pread" for slow or unreliable storage; see `RecordFiles`.
      batch_size, shuffle, seed, epochs, shard, drop_remainder, across_epochs, transform: as in
        `RecordSource`.

    Raises:
      RecordFileError: no such file, nothing matches a glob, an index is no index; (by `batch`) a file
        changed.
      CorruptRecordError: a file is cut off or broken; (by `batch`) a record is.
      TypeError, ValueError: a bad argument.
    """

    def __init__(
        self,
        files: str | os.PathLike[str] | Iterable[str | os.PathLike[str]],
        *,
        batch_size: int,
        features: Any = None,
        parse_fn: Callable[[bytes], Any] | None = None,
        as_uint8: bool = False,
        shuffle: bool = False,
        seed: int | None = None,
        epochs: int | None = None,
        shard: tuple[int, int] | None = None,
        drop_remainder: bool = False,
        across_epochs: bool = False,
        transform: Transform | None = None,
        skip_corrupt: bool = False,
        cache_bytes: int = 0,
        verify: bool = True,
        access: Literal["mmap", "pread"] = "mmap",
    ) -> None:
        _check_options(self._owner, features, parse_fn, as_uint8, transform, cache_bytes, access)
        indexes = [open_index(path, skip_corrupt=skip_corrupt) for path in matching_files(files)]
        self._files = RecordFiles(indexes, verify=verify, access=access)
        if not self._files.num_records:
            named = ", ".join(index.path for index in indexes)
            raise RecordFileError(f"TFRecordSource got no records: there are none in {named}.")
        self.features = features
        self._parse = parse_fn
        self._as_uint8 = bool(as_uint8)
        self._skip_corrupt = skip_corrupt
        self._cache = RecordCache(cache_bytes)
        self._skipped: set[int] = set()
        super().__init__(
            self._files.num_records,
            batch_size=batch_size,
            shuffle=shuffle,
            seed=seed,
            epochs=epochs,
            shard=shard,
            drop_remainder=drop_remainder,
            across_epochs=across_epochs,
            transform=transform,
        )

    def _take_shard(self, index: int, count: int) -> None:
        self._parsed_spec: Any = None
        self._parsed_lock = threading.Lock()
        super()._take_shard(index, count)

    @property
    def num_skipped(self) -> int:
        """Corrupt records that were left out so far, each counted once, those of all shards together."""
        return len(self._skipped)

    @property
    def lost_bytes(self) -> int:
        """Bytes behind broken or cut-off headers, whose records cannot be found."""
        return sum(index.lost_bytes for index in self._files.indexes)

    @property
    def cached_bytes(self) -> int:
        """Bytes of records that are held in memory."""
        return self._cache.held_bytes

    @property
    def files(self) -> list[str]:
        """The record files, in order."""
        return [index.path for index in self._files.indexes]

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
                    _, found = self._records(self._numbers(self._order.records(Piece(0, place, place + 1))))
                    if found:
                        self._parsed_spec = found[0]
                        break
                else:
                    raise RecordFileError(f"TFRecordSource: all {self.num_records} records are corrupt.")
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
            return stack(self._first_parsed(), numbers, found, self._name_record)
        batch = aligned_empty(len(found), np.dtype(object))
        batch[:] = found
        return batch

    def _records(self, numbers: np.ndarray[Any, Any]) -> tuple[list[int], list[Any]]:
        """The records that are not corrupt, parsed if they are to be, and their numbers."""
        if not self._cache.limit_bytes:
            return self._fresh(numbers)
        held = {number: self._cache.get(number) for number in numbers.tolist()}
        missing = [number for number, record in held.items() if record is None]
        if missing:
            for number, record in zip(*self._fresh(np.array(missing, np.int64))):
                held[number] = record
                self._cache.offer(number, record)
        kept = [number for number in held if held[number] is not None]
        return kept, [held[number] for number in kept]

    @functools.cached_property
    def _length(self) -> int:
        """Bytes in the first record of all."""
        index, _ = self._files.locate(0)
        return int(index.offsets[1] - index.offsets[0]) - FRAMING_BYTES

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

    def _fresh(self, numbers: np.ndarray[Any, Any]) -> tuple[list[int], list[Any]]:
        records, errors = self._files.read(numbers)
        kept = numbers.tolist()
        if errors:
            self._note(errors, numbers)
            places = [place for place in range(len(kept)) if place not in errors]
            kept, records = [kept[place] for place in places], [records[place] for place in places]
        return kept, records if self._parse is None else [self._parse(record) for record in records]

    def _name_record(self, number: int) -> str:
        index, local = self._files.locate(number)
        return f"{index.path}: record {local}, at byte {int(index.offsets[local])}"


def matching_files(files: Any) -> list[str]:
    """Paths from a path or glob, or several: those of a glob sorted by name, each file once.

    Raises:
      RecordFileError: nothing matches.
    """
    patterns = [files] if isinstance(files, (str, os.PathLike)) else list(files)
    found: list[str] = []
    for pattern in (os.fspath(path) for path in patterns):
        matches = [pattern] if os.path.exists(pattern) else _matches(pattern)
        if not matches:
            raise RecordFileError(
                f"no file matches {pattern!r} (looked from {os.getcwd()}). Check the path; a glob may hold *, ? and **."
            )
        found += matches
    if not found:
        raise RecordFileError("TFRecordSource got an empty list of files.")
    return list(dict.fromkeys(found))


def _matches(pattern: str) -> list[str]:
    """The files that a glob means: not the indexes that stand beside them."""
    found = sorted(glob.glob(pattern, recursive=True))
    return [path for path in found if not path.endswith((INDEX_SUFFIX, UNPACKED_SUFFIX)) and os.path.isfile(path)]


def _check_options(
    owner: str, features: Any, parse_fn: Any, as_uint8: bool, transform: Any, cache_bytes: Any, access: Any
) -> None:
    given = {"features=": features is not None, "parse_fn=": parse_fn is not None, "as_uint8=": as_uint8}
    chosen = [name for name, is_given in given.items() if is_given]
    if len(chosen) > 1:
        raise ValueError(
            f"{owner} got both {chosen[0]} and {chosen[1]}. features= parses in the graph, parse_fn= in Python, "
            f"as_uint8= not at all: choose one."
        )
    if as_uint8 and cache_bytes:
        raise ValueError(f"{owner} got as_uint8= and cache_bytes=: the system's page cache holds such records as well.")
    if features is not None and transform is not None:
        raise ValueError(
            f"{owner} got features= and transform=: the transform would see serialized records, since "
            "features= parses later, in the graph. Use parse_fn=, or transform the parsed tensors."
        )
    if parse_fn is not None and not callable(parse_fn):
        raise TypeError(f"{owner}: parse_fn={parse_fn!r} must be a function from bytes to arrays.")
    if cache_bytes != 0:
        arguments.check_count(owner, "cache_bytes", cache_bytes, "bytes to keep in memory")
    if access not in ("mmap", "pread"):
        raise ValueError(f"{owner}: access={access!r} must be 'mmap' or 'pread'.")
