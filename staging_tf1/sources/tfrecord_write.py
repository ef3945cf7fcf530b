"""Writes TFRecord files, with their indexes."""

from __future__ import annotations

import contextlib
import os
import zipfile
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

import numpy as np
from tqdm import tqdm

from staging_tf1.errors import SpecError
from staging_tf1.sources import arguments
from staging_tf1.sources.crc32c import crc32c_many, mask
from staging_tf1.sources.example_proto import encode_example, kind_of
from staging_tf1.sources.tfrecord_index import RecordIndex, index_file, replacing, save_index
from staging_tf1.sources.tfrecord_scan import FRAMING_BYTES
from staging_tf1.spec import as_array

__all__ = ["load_npz", "shard_names", "write_tfrecords"]

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
    shards = arguments.check_count("write_tfrecords", "shards", shards, "files to write")
    if not isinstance(arrays, Mapping):
        if shards > 1:
            raise ValueError(f"write_tfrecords: shards={shards} needs arrays, whose length is known beforehand.")
        with tqdm(unit=" records", disable=not progress) as bar:
            _write_file(os.fspath(out), arrays, bar)
        return [os.fspath(out)]
    columns = _check_columns(arrays)
    total = len(next(iter(columns.values())))
    if shards > total:
        raise ValueError(f"write_tfrecords: shards={shards} are more than the {total} records.")
    names = shard_names(os.fspath(out), shards)
    with tqdm(total=total, unit=" records", disable=not progress) as bar:
        for number, name in enumerate(names):
            rows = range(total * number // shards, total * (number + 1) // shards)
            _write_file(name, _examples(columns, rows), bar)
    return names


def shard_names(out: str, shards: int) -> list[str]:
    """The names of the files.

    >>> shard_names("train.tfrecord", 2)
    ['train.tfrecord-00000-of-00002', 'train.tfrecord-00001-of-00002']
    """
    return [out] if shards == 1 else [f"{out}-{number:05d}-of-{shards:05d}" for number in range(shards)]


def load_npz(path: str | os.PathLike[str]) -> dict[str, np.ndarray[Any, Any]]:
    """The arrays of an `.npz` file, without pickles.

    Raises:
      SpecError: it is no such file, or holds objects.
    """
    try:
        archive = np.load(path, allow_pickle=False)
        if isinstance(archive, np.lib.npyio.NpzFile):
            with archive:
                return {name: archive[name] for name in archive.files}
    except FileNotFoundError:
        raise
    except (ValueError, EOFError, OSError, zipfile.BadZipFile) as error:
        raise SpecError(f"{path} is no .npz file of plain arrays: {error}") from error
    raise SpecError(f"{path} holds one array, wanted an .npz file of named arrays: np.savez(path, x=...).")


def _check_columns(arrays: Mapping[str, Any]) -> dict[str, np.ndarray[Any, Any]]:
    columns = {str(name): as_array(value, None, f"array '{name}'") for name, value in arrays.items()}
    lengths = {name: len(column) if column.ndim else -1 for name, column in columns.items()}
    if not lengths or max(lengths.values()) < 1:
        raise SpecError(f"there are no records to write: got the arrays {lengths or 'of an empty dict'}.")
    if len(set(lengths.values())) > 1:
        listed = ", ".join(f"'{name}' has {length}" for name, length in lengths.items())
        raise SpecError(f"arrays of different length: {listed}. Record i is row i of each of them; leave some out.")
    for name, column in columns.items():
        try:
            kind_of(column)
        except SpecError as error:
            raise SpecError(f"array '{name}': {error}") from error
    return columns


def _examples(columns: Mapping[str, np.ndarray[Any, Any]], rows: range) -> Iterator[bytes]:
    kinds = {name: kind_of(column) for name, column in columns.items()}
    for row in rows:
        yield encode_example({name: column[row] for name, column in columns.items()}, kinds)


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
