"""`ArrayRecordSource`: ArrayRecord files (https://github.com/google/array_record), an optional extra."""

from __future__ import annotations

import os
import warnings
from collections.abc import Callable, Iterable
from typing import Any

from staging_tf1.errors import StagingWarning
from staging_tf1.sources.files.arrayrecord_read import ArrayRecordFiles
from staging_tf1.sources.files.record_paths import matching_files
from staging_tf1.sources.records import Options
from staging_tf1.sources.serialized import Parsing, SerializedSource
from staging_tf1.sources.transform import Transform

__all__ = ["ArrayRecordSource"]


class ArrayRecordSource(SerializedSource):
    """Batches of records from ArrayRecord files, in any order, each record checked by its checksum.

    An ArrayRecord file has an index of its records in itself, at its end, so nothing is to be prepared. The index is
    held in memory, some 20 bytes a record, for up to 128 files at once.

    What a batch is:
      with neither `features` nor `parse_fn`: the serialized records, an object array of bytes, [batch];
      with `features`: the same, and `tf.io.parse_example(batch, source.features)` makes tensors of it in the
      graph; with `parse_fn`: what it returns for each record, stacked.

    >>> files = write_array_records((str(n * n).encode() for n in range(6)), "squares.array_record")
    >>> ArrayRecordSource(files, batch_size=4, parse_fn=int).batch(0)
    array([0, 1, 4, 9])

    Args:
      files: a path or glob, or several, as in `TFRecordSource`; a path that is listed twice is read twice.
      features: the `features` of `tf.io.parse_example`: a dict of `tf.io.FixedLenFeature` and the like.
      parse_fn: from the bytes of one record to a nest of arrays and numbers, alike for all records. Called
        from several threads at once.
      as_uint8: the records, which have one length, as a uint8 matrix, [batch, bytes].
      skip_corrupt: leave out corrupt records, and count them (`num_skipped`); the batches they were in are smaller.
        By default they raise. A file whose end is missing raises in any case, for its index is missing with it.
      cache_bytes: keep up to so many bytes of records in memory, parsed if `parse_fn` parses them.
      batch_size, shuffle, seed, epochs, shard, drop_remainder, across_epochs, transform: as in
        `RecordSource`.

    Raises:
      ImportError: the package `array-record` is not installed.
      RecordFileError: no such file, nothing matches a glob, a file is no ArrayRecord file; (by `batch`) a file
        changed.
      CorruptRecordError: a file is cut off or its index is broken; (by `batch`) a record is. Its `offset` is that of
        the chunk that holds the record, -1 where the reader does not tell.
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
    ) -> None:
        options = Options(batch_size, shuffle, seed, epochs, shard, drop_remainder, across_epochs, transform)
        options = options.checked(self._owner)
        parsing = Parsing(features, parse_fn, as_uint8, skip_corrupt, cache_bytes).checked(self._owner, transform)
        opened = ArrayRecordFiles(matching_files(self._owner, files), self._owner)
        super().__init__(opened, parsing, options)
        if options.shuffle:
            _warn_of_groups(self._owner, opened)


def _warn_of_groups(owner: str, files: ArrayRecordFiles) -> None:
    grouped = [(size, path) for size, path in zip(files.group_sizes, files.paths) if size > 1]
    if grouped:
        size, path = max(grouped)
        warnings.warn(
            f"{owner}: {path} was written in groups of {size} records, and reading one record unpacks its whole group, "
            f"so that a shuffle takes many times as long. Write it again with group_size:1, as "
            f"staging_tf1.sources.write_array_records does, or leave shuffle=True out.",
            StagingWarning,
            stacklevel=3,
        )
