"""`ArrayRecordSource`: batches from ArrayRecord files, an optional extra.

See https://github.com/google/array_record.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable
from typing import Any

from staging_tf1.errors import StagingWarning, warn
from staging_tf1.sources.batches import Options
from staging_tf1.sources.files.arrayrecord_read import ArrayRecordFiles
from staging_tf1.sources.files.local_copies import checked
from staging_tf1.sources.files.record_paths import matching_files
from staging_tf1.sources.files.store import checked_timeout
from staging_tf1.sources.serialized import Parsing, SerializedSource
from staging_tf1.sources.transform import Transform


class ArrayRecordSource(SerializedSource):
    """Batches of records from ArrayRecord files, with random access.

    The checksum of each record is verified. An ArrayRecord file ends with an index of its records, so it needs no
    preparation. Up to 128 indexes are held in memory, with about 20 bytes per record.

    The content of a batch depends on the options, as in `TFRecordSource`.

    >>> squares = [str(n * n).encode() for n in range(6)]
    >>> files = write_array_records(squares, "squares.array_record")
    >>> ArrayRecordSource(files, batch_size=4, parse_fn=int).batch(0)
    array([0, 1, 4, 9])

    Args:
      files, features, parse_fn, as_uint8, cache_bytes, local_cache, local_cache_bytes, timeout_secs: as in
        `TFRecordSource`. Remote files are always read from copies, by default in the user's cache folder, and must fit.
      skip_corrupt: skip corrupt records, and count them (`num_skipped`). Batches with corrupt records are smaller. By
        default corrupt records raise. A file whose end is missing always raises, because its index is missing too.
      skip_bad_records, max_ignored: as in `TFRecordSource`.
      batch_size, shuffle, seed, epochs, shard, drop_remainder, across_epochs, transform: as in `RecordSource`.

    Raises:
      ImportError: the package `array-record`, or the driver of a URL, is not installed.
      RecordFileError: a file does not exist, a glob matches nothing, or a file is not an ArrayRecord file; (by `batch`)
        a file has changed.
      CorruptRecordError: a file is truncated or its index is corrupt; (by `batch`) a record is corrupt. Its `offset` is
        that of the chunk with the record, or -1 if the reader does not report it.
      TypeError, ValueError: an argument is invalid.
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
        skip_bad_records: bool = False,
        max_ignored: int | None = None,
        cache_bytes: int = 0,
        local_cache: str | os.PathLike[str] | None = None,
        local_cache_bytes: int | None = None,
        timeout_secs: float | None = 60.0,
    ) -> None:
        options = Options(batch_size, shuffle, seed, epochs, shard, drop_remainder, across_epochs, transform)
        options = options.checked(self._owner)
        parsing = Parsing(features, parse_fn, as_uint8, skip_corrupt, cache_bytes, skip_bad_records, max_ignored)
        parsing = parsing.checked(self._owner, transform)
        copies = checked(self._owner, local_cache, local_cache_bytes)
        timeout_secs = checked_timeout(self._owner, timeout_secs)
        opened = ArrayRecordFiles(matching_files(self._owner, files, timeout_secs), self._owner, copies)
        super().__init__(opened, parsing, options)
        if options.shuffle:
            _warn_of_groups(self._owner, opened)


def _warn_of_groups(owner: str, files: ArrayRecordFiles) -> None:
    grouped = [(size, path) for size, path in zip(files.group_sizes, files.paths) if size > 1]
    if grouped:
        size, path = max(grouped)
        warn(
            f"{owner}: {path} was written in groups of {size} records. Reading one record decompresses its whole "
            f"group, which makes shuffled reads many times slower. Write the file with group_size:1, as "
            f"staging_tf1.sources.write_array_records does, or do not shuffle.",
            StagingWarning,
        )
