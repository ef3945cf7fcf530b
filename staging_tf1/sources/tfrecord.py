"""`TFRecordSource`: batches from TFRecord files, with random access."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable
from typing import Any, Literal

from staging_tf1.arguments import choice, flag
from staging_tf1.sources.batches import Options
from staging_tf1.sources.files.local_copies import checked
from staging_tf1.sources.files.record_paths import matching_files
from staging_tf1.sources.files.store import checked_timeout
from staging_tf1.sources.files.tfrecord_index import open_index
from staging_tf1.sources.files.tfrecord_read import RecordFiles
from staging_tf1.sources.serialized import Parsing, SerializedSource
from staging_tf1.sources.transform import Transform


class TFRecordSource(SerializedSource):
    """Batches of records from TFRecord files, with random access.

    The checksum of each record is verified. The first use of a file writes an index of its records next to it, in one
    pass over the record headers. `staging-tf1 index` does this in advance. A file compressed with gzip, zlib or zstd is
    also decompressed there, once, which takes its uncompressed size on disk. The index is memory-mapped, so memory and
    startup time do not grow with the number of records.

    The content of a batch depends on the options:
      by default: the serialized records, an object array of bytes, [batch];
      with `features`: the same. `tf.io.parse_example(batch, source.features)` parses it in the graph;
      with `parse_fn`: the results of `parse_fn` for each record, stacked;
      with `as_uint8`: a uint8 matrix [batch, bytes] of records that have the same length.

    >>> files = write_tfrecords([b"1", b"two", b"3"], "numbers.tfrecord")
    >>> source = TFRecordSource(
    ...     files, batch_size=3, epochs=1, parse_fn=int, skip_bad_records=True
    ... )
    >>> source.batch(0), source.num_skipped
    (array([1, 3]), 1)

    Args:
      files: a path, URL or glob, or several. URLs, such as `s3://bucket/train-*`, need fsspec and the driver of the
        store (docs/sources.md). Files are read in this order, and those of a glob in order of their names. A
        path that is listed twice is read twice. A file that a glob matches is read once, even if it is also listed or
        matched elsewhere; a StagingWarning names it. Files are identified by their absolute paths, without resolving
        links: a program may change its working directory after it has made the source.
      features: the `features` argument of `tf.io.parse_example`: a dict of `tf.io.FixedLenFeature` and the like.
      parse_fn: a function from the bytes of one record to a nest of arrays and numbers, with the same dtypes and shapes
        for all records. It is called from several threads at the same time.
      as_uint8: return records as rows of bytes. All records must have the same length.
      skip_corrupt: skip corrupt records and everything after a broken header, and count them (`num_skipped`,
        `lost_bytes`). Batches with corrupt records are smaller. By default corrupt records raise.
      skip_bad_records: leave out each record for which `parse_fn` raises an exception or returns None. Its batch is
        smaller then, or empty. Each is counted once (`num_skipped`) and named in a warning. By default its exception is
        raised. Records whose dtypes or shapes differ always raise.
      max_ignored: how many bad records may be left out. The exception of the next one is raised. None is no limit.
        Worker processes count for themselves.
      cache_bytes: keep up to this many bytes of records in memory, parsed if `parse_fn` is given.
      verify: verify the checksum of each record. False saves 0.2 us per KB.
      access: "mmap", or "pread" for slow or unreliable storage. See `RecordFiles`.
      local_cache: a folder for whole copies of remote files, which are made when the source is. Their records are read
        as those of local files.
      local_cache_bytes: the size of all copies in that folder. Those of other sources that were used longest ago are
        removed. Files for which there is no room are read by ranges. None has no limit.
      timeout_secs: how long a request for a remote file may take, in seconds, plus one second for each MiB that is read
        at the same time. A listing may take ten times as long. A request that takes longer is tried once more. None
        leaves it to the driver.
      batch_size, shuffle, seed, epochs, shard, drop_remainder, across_epochs, transform: as in `RecordSource`.

    Raises:
      ImportError: a file is compressed with zstd, and the package `zstandard` is not installed; the driver of a URL is
        not installed.
      RecordFileError: a file does not exist, a glob matches nothing, or an index is invalid; (by `batch`) a file has
        changed.
      CorruptRecordError: a file is truncated or corrupt; (by `batch`) a record is corrupt.
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
        verify: bool = True,
        access: Literal["mmap", "pread"] = "mmap",
        local_cache: str | os.PathLike[str] | None = None,
        local_cache_bytes: int | None = None,
        timeout_secs: float | None = 60.0,
    ) -> None:
        options = Options(batch_size, shuffle, seed, epochs, shard, drop_remainder, across_epochs, transform)
        options = options.checked(self._owner)
        parsing = Parsing(features, parse_fn, as_uint8, skip_corrupt, cache_bytes, skip_bad_records, max_ignored)
        parsing = parsing.checked(self._owner, transform)
        verify = flag(self._owner, "verify", verify)
        choice(self._owner, "access", access, ("mmap", "pread"))
        copies = checked(self._owner, local_cache, local_cache_bytes)
        timeout_secs = checked_timeout(self._owner, timeout_secs)
        paths = matching_files(self._owner, files, timeout_secs)
        # A file that is listed twice shares one index.
        indexes = {
            path: open_index(path, skip_corrupt=parsing.skip_corrupt, copies=copies) for path in dict.fromkeys(paths)
        }
        self._indexes = [indexes[path] for path in paths]
        super().__init__(RecordFiles(self._indexes, verify=verify, access=access), parsing, options)

    @property
    def lost_bytes(self) -> int:
        """Bytes after broken or truncated headers, whose records cannot be located."""
        return sum(index.lost_bytes for index in self._indexes)
