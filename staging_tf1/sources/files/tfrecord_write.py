"""Writes TFRecord files and their indexes."""

from __future__ import annotations

import contextlib
import itertools
import os
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

import numpy as np

from staging_tf1.arguments import scheme_of
from staging_tf1.sources.files.record_write import Output, write_records
from staging_tf1.sources.files.tfrecord_frames import FRAMING_BYTES, masked_crcs
from staging_tf1.sources.files.tfrecord_index import RecordIndex, index_file, save_index

# Checksums of this many records are computed at once.
_BATCH = 256


def write_tfrecords(
    arrays: Mapping[str, Any] | Iterable[bytes],
    out: str | os.PathLike[str],
    *,
    shards: int = 1,
    progress: bool = False,
) -> list[str]:
    """Write records to TFRecord files, each with an index next to it if it is a file of this machine.

    Returns the names of the files. Files appear when they are complete; those with a URL are written to the folder for
    temporary files, and uploaded. Each row of a dict of arrays becomes one
    `tf.train.Example`: integers are stored as int64, floats as float32, and strings as bytes. A uint8 row with more
    than one number, such as an image, is stored as one string, which `tf.io.decode_raw(x, tf.uint8)` decodes.

    Args:
      arrays: a dict of arrays that share their first dimension, or serialized records if `shards` is 1.
      out: the path or URL of the file. Several shards are named `out-00000-of-00004` and so on, as in TensorFlow's
        tools.
      shards: the number of files. Records are written in order, from file to file.
      progress: show a progress bar.

    Raises:
      SpecError: no records, arrays of different lengths, or a dtype or number that an Example cannot hold.
      ImportError: the driver of a URL is not installed.
      OSError: a file cannot be written.
    """
    return write_records(arrays, Output("write_tfrecords", out, shards, progress), _write_file)


def _write_file(output: Output, name: str, records: Iterable[bytes], bar: Any) -> None:
    offsets = [0]
    with output.new_file(name) as temporary, open(temporary, "xb") as file:
        remaining = iter(records)
        while batch := list(itertools.islice(remaining, _BATCH)):
            for frame in _frames(batch):
                file.write(frame)
                offsets.append(offsets[-1] + len(frame))
            bar.update(len(batch))
    if scheme_of(name):
        return
    status = os.stat(name)
    path = index_file(name)
    with contextlib.suppress(OSError):  # the first use of the file creates the index if it is missing
        save_index(
            RecordIndex(name, name, status.st_size, status.st_mtime_ns, np.array(offsets, np.int64), 0, False, path)
        )


def _frames(records: list[bytes]) -> Iterator[bytes]:
    lengths = [len(record).to_bytes(8, "little") for record in records]
    for length, head, record, tail in zip(lengths, masked_crcs(lengths), records, masked_crcs(records)):
        frame = b"".join((length, head.tobytes(), record, tail.tobytes()))
        assert len(frame) == len(record) + FRAMING_BYTES
        yield frame
