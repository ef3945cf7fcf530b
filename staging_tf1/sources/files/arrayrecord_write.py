"""Writes ArrayRecord files."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from typing import Any

from staging_tf1.sources.files.arrayrecord_read import array_record_module
from staging_tf1.sources.files.record_write import write_records
from staging_tf1.sources.files.replacing import replacing_path

__all__ = ["ARRAY_RECORD_SUFFIXES", "write_array_records"]

ARRAY_RECORD_SUFFIXES = (".array_record", ".arrayrecord")

# The package's default was groups of 65,536 until lately, each of which is unpacked whole to read one of its records.
_OPTIONS = "group_size:1"


def write_array_records(
    arrays: Mapping[str, Any] | Iterable[bytes],
    out: str | os.PathLike[str],
    *,
    shards: int = 1,
    progress: bool = False,
) -> list[str]:
    """Writes records to ArrayRecord files whose records can be read one by one, and returns their names.

    Each file appears when it is complete. A row of a dict of arrays becomes one `tf.train.Example`, as in
    `write_tfrecords`.

    Args:
      arrays, out, shards, progress: as in `write_tfrecords`.

    Raises:
      ImportError: the package `array-record` is not installed.
      SpecError: no records, arrays of different length, a dtype that an Example cannot hold.
      OSError: a file cannot be written.
    """
    writer = array_record_module("write_array_records").ArrayRecordWriter

    def write_file(name: str, records: Iterable[bytes], bar: Any) -> None:
        with replacing_path(name) as temporary:
            _write(writer, temporary, records, bar)

    return write_records("write_array_records", arrays, out, shards, progress, write_file)


def _write(writer: Any, path: str, records: Iterable[bytes], bar: Any) -> None:
    open(path, "xb").close()  # Python says why a file cannot be written; the writer's word comes with the first record
    file = writer(path, _OPTIONS)
    try:
        for record in records:
            file.write(record)
            bar.update(1)
        file.close()
    except RuntimeError as error:
        raise OSError(f"writing ArrayRecord file {path} failed: {error}.") from error
