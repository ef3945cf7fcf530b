"""Writes TFRecord files, with their indexes."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

import numpy as np

from staging_tf1.sources.files.crc32c import crc32c_many, mask
from staging_tf1.sources.files.record_write import write_records
from staging_tf1.sources.files.replacing import replacing
from staging_tf1.sources.files.tfrecord_index import RecordIndex, index_file, save_index
from staging_tf1.sources.files.tfrecord_scan import FRAMING_BYTES

__all__ = ["write_tfrecords"]

# Records whose checksums are computed at once.
_BATCH = 256


def write_tfrecords(
    arrays: Mapping[str, Any] | Iterable[bytes],
    out: str | os.PathLike[str],
    *,
    shards: int = 1,
    progress: bool = False,
) -> list[str]:
    """Writes records to TFRecord files with an index beside each, and returns their names.

    Each file appears when it is complete. A row of a dict of arrays becomes one `tf.train.Example`: integers are kept
    as int64, floats as float32, strings as bytes, and rows of uint8 with more than a number in them (images) as one
    string, which `tf.io.decode_raw(x, tf.uint8)` turns back.

    Args:
      arrays: a dict of arrays that share their first dimension; or serialized records, if `shards` is 1.
      out: the file. With several shards, `out-00000-of-00004` and so on, as TensorFlow's own tools name them.
      shards: how many files; record `i` stands before record `i+1`, in the same or the next one.
      progress: show a progress bar.

    Raises:
      SpecError: no records, arrays of different length, a dtype that an Example cannot hold.
      OSError: a file cannot be written.
    """
    return write_records("write_tfrecords", arrays, out, shards, progress, _write_file)


def _write_file(name: str, records: Iterable[bytes], bar: Any) -> None:
    offsets = [0]
    with replacing(name) as file:
        for batch in _batched(records):
            for frame in _frames(batch):
                file.write(frame)
                offsets.append(offsets[-1] + len(frame))
            bar.update(len(batch))
    status = os.stat(name)
    place = index_file(name)
    with contextlib.suppress(OSError):  # it is made at the first use as well
        save_index(
            RecordIndex(name, name, status.st_size, status.st_mtime_ns, np.array(offsets, np.int64), 0, False, place)
        )


def _batched(records: Iterable[bytes]) -> Iterator[list[bytes]]:
    batch: list[bytes] = []
    for record in records:
        batch.append(record)
        if len(batch) == _BATCH:
            yield batch
            batch = []
    if batch:
        yield batch


def _frames(records: list[bytes]) -> Iterator[bytes]:
    lengths = [len(record).to_bytes(8, "little") for record in records]
    heads = mask(np.array(crc32c_many(lengths), np.uint32)).astype("<u4")
    tails = mask(np.array(crc32c_many(records), np.uint32)).astype("<u4")
    for length, head, record, tail in zip(lengths, heads, records, tails):
        frame = b"".join((length, head.tobytes(), record, tail.tobytes()))
        assert len(frame) == len(record) + FRAMING_BYTES
        yield frame
