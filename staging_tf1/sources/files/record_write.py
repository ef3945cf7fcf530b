"""Arrays and records on their way into files: what the formats have in common."""

from __future__ import annotations

import os
import zipfile
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any

import numpy as np
from tqdm import tqdm

from staging_tf1.arrays import as_array
from staging_tf1.errors import SpecError
from staging_tf1.sources import arguments
from staging_tf1.sources.files.example_proto import encode_example, kind_of

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
    shards = arguments.check_count(owner, "shards", shards, "files to write")
    if not isinstance(arrays, Mapping):
        if shards > 1:
            raise ValueError(f"{owner}: shards={shards} needs arrays, whose length is known beforehand.")
        with tqdm(unit=" records", disable=not progress) as bar:
            write_file(os.fspath(out), arrays, bar)
        return [os.fspath(out)]
    columns = _check_columns(arrays)
    total = len(next(iter(columns.values())))
    if shards > total:
        raise ValueError(f"{owner}: shards={shards} are more than the {total} records.")
    names = shard_names(os.fspath(out), shards)
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
