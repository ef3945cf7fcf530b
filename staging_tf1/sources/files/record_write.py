"""Arrays and records on their way into files: what the formats have in common."""

from __future__ import annotations

import os
import zipfile
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any

import numpy as np
from tqdm import tqdm

from staging_tf1 import arguments
from staging_tf1.arrays import as_array
from staging_tf1.errors import SpecError
from staging_tf1.sources.files.example_proto import encode_example, kind_of
from staging_tf1.sources.files.tfrecord_index import NPY_MAGIC

# As many as the names have digits for.
_MOST_SHARDS = 99_999

__all__ = ["load_npz", "shard_names", "write_records"]


def write_records(
    owner: str,
    arrays: Mapping[str, Any] | Iterable[bytes],
    out: str | os.PathLike[str],
    shards: int,
    progress: bool,
    write_file: Callable[[str, Iterable[bytes], Any], None],
) -> list[str]:
    """Deals out records to files, and returns their names; see `write_tfrecords`.

    Args:
      owner: the function that the user called, for messages.
      write_file: writes one file, from its name, its records and the progress bar to be updated.
    """
    shards = arguments.whole(owner, "shards", shards, 1, _MOST_SHARDS, "files to write")
    progress = arguments.flag(owner, "progress", progress)
    no_rows = isinstance(arrays, np.ndarray) and not arrays.ndim
    if isinstance(arrays, (str, bytes)) or not isinstance(arrays, Iterable) or no_rows:
        arguments.refuse(owner, "arrays", arrays, "a dict of arrays, or an iterable of serialized records")
    out = arguments.path(owner, "out", out)
    if not isinstance(arrays, Mapping):
        if shards > 1:
            raise ValueError(f"{owner}: shards={shards} needs arrays, whose length is known beforehand.")
        arguments.output_file(owner, "out", out)
        with tqdm(unit=" records", disable=not progress) as bar:
            write_file(out, _serialized(owner, arrays), bar)
        return [out]
    columns = _check_columns(arrays)
    total = len(next(iter(columns.values())))
    if shards > total:
        raise ValueError(f"{owner}: shards={shards} are more than the {total} records.")
    names = shard_names(out, shards)
    for name in names:
        arguments.output_file(owner, "out", name)
    with tqdm(total=total, unit=" records", disable=not progress) as bar:
        for number, name in enumerate(names):
            rows = range(total * number // shards, total * (number + 1) // shards)
            write_file(name, _examples(columns, rows), bar)
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
    wanted = "wanted an .npz file of named arrays: np.savez(path, x=...)"
    if (kind := arguments.kind_of_file(os.fspath(path))) is not None:
        raise SpecError(f"{path} is {kind}, {wanted}.")
    if not zipfile.is_zipfile(path):
        with open(path, "rb") as file:
            if file.read(len(NPY_MAGIC)) == NPY_MAGIC:
                raise SpecError(f"{path} holds one array, {wanted}.")
        raise SpecError(f"{path} is no .npz file of plain arrays: it is no zip archive. Write it with numpy.savez.")
    try:
        # Opened here, because np.load leaves a file open that turns out to be damaged.
        with open(path, "rb") as file, np.load(file, allow_pickle=False) as archive:
            return {name: _plain_array(path, name, archive[name]) for name in archive.files}
    except SpecError:
        raise
    # Whatever zipfile and numpy raise on a damaged file.
    except Exception as error:
        # numpy's own words recommend to load pickles, which can run any code.
        pickled = "an array in it holds Python objects; save numbers, or strings of a fixed length"
        reason = pickled if "allow_pickle" in str(error) else error
        raise SpecError(f"{path} is no .npz file of plain arrays: {reason}") from error


def _plain_array(path: str | os.PathLike[str], name: str, found: Any) -> np.ndarray[Any, Any]:
    if not isinstance(found, np.ndarray):  # a member without the .npy header comes as bytes
        raise SpecError(f"{path} holds {name!r}, which is no array. Write the file with np.savez.")
    return found


def _serialized(owner: str, records: Iterable[Any]) -> Iterator[bytes]:
    for number, record in enumerate(records):
        if not isinstance(record, (bytes, bytearray, memoryview)):
            raise TypeError(
                f"{owner}: record {number} of arrays is {arguments.shown(record)}, a {type(record).__name__}, wanted "
                f"bytes: a serialized record. For arrays, give a dict: {{'x': array}}."
            )
        yield bytes(record)


def _check_columns(arrays: Mapping[str, Any]) -> dict[str, np.ndarray[Any, Any]]:
    columns = {str(name): as_array(value, None, f"array '{name}'") for name, value in arrays.items()}
    for name, column in columns.items():
        if not column.ndim:
            raise SpecError(f"array '{name}' is one number, wanted an array with a row a record.")
    lengths = {name: len(column) for name, column in columns.items()}
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
