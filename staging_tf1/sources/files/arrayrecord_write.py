"""Writes ArrayRecord files."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from typing import Any

from staging_tf1.sources.files.arrayrecord_read import array_record_module
from staging_tf1.sources.files.record_write import Output, write_records

ARRAY_RECORD_SUFFIXES = (".array_record", ".arrayrecord")

# Older releases of array-record default to groups of 65,536 records. Reading one record decompresses its whole group.
_OPTIONS = "group_size:1"


def write_array_records(
    arrays: Mapping[str, Any] | Iterable[bytes],
    out: str | os.PathLike[str],
    *,
    shards: int = 1,
    progress: bool = False,
) -> list[str]:
    """Write records to ArrayRecord files with fast random access.

    Returns the names of the files. Files appear when they are complete. Each row of a dict of arrays becomes one
    `tf.train.Example`, as in `write_tfrecords`.

    Args:
      arrays, out, shards, progress: as in `write_tfrecords`.

    Raises:
      ImportError: the package `array-record` is not installed.
      SpecError: no records, arrays of different lengths, or a dtype that an Example cannot hold.
      OSError: a file cannot be written.
    """
    writer = array_record_module("write_array_records").ArrayRecordWriter

    def write_file(output: Output, name: str, records: Iterable[bytes], bar: Any) -> None:
        with output.new_file(name) as temporary:
            _write(writer, temporary, records, bar)

    return write_records(arrays, Output("write_array_records", out, shards, progress), write_file)


def _write(writer: Any, path: str, records: Iterable[bytes], bar: Any) -> None:
    # Python reports why a file cannot be written. The writer reports less, and only at the first record.
    open(path, "xb").close()
    file = writer(path, _OPTIONS)
    try:
        for record in records:
            file.write(record)
            bar.update(1)
        file.close()
    except RuntimeError as error:
        raise OSError(f"writing ArrayRecord file {path} failed: {error}.") from error
