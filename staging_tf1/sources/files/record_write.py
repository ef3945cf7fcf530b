"""Writes arrays and records to files of any format."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any, NamedTuple

import numpy as np

from staging_tf1 import arguments
from staging_tf1.errors import SpecError
from staging_tf1.progress import tqdm_bar
from staging_tf1.replacing import replacing_path
from staging_tf1.sources.files.example_proto import encode_example, storage_kind
from staging_tf1.sources.files.store import open_driver, uploaded
from staging_tf1.spec.arrays import as_array

# File names have five digits for the number of the shard.
_MOST_SHARDS = 99_999

# Writes one file of the output from its name, its records, and the progress bar to update.
WriteFile = Callable[["Output", str, Iterable[bytes], Any], None]


class Output(NamedTuple):
    """The files to write, and the `owner`: the function that the user called, for messages.

    `path` is without the suffix of the shard. See `write_tfrecords`.
    """

    owner: str
    path: str | os.PathLike[str]
    shards: int
    progress: bool

    def checked(self) -> Output:
        """Check and normalize the arguments."""
        shards = arguments.whole(self.owner, "shards", self.shards, 1, _MOST_SHARDS, "files to write")
        progress = arguments.flag(self.owner, "progress", self.progress)
        path = arguments.path(self.owner, "out", self.path, schemes=None)
        return Output(self.owner, path, shards, progress)

    def check_file(self, name: str) -> None:
        """Check that one of the files can be written, before there are records."""
        if arguments.scheme_of(name):
            open_driver(self.owner, "out", name)
        else:
            arguments.output_file(self.owner, "out", name)

    def new_file(self, name: str) -> contextlib.AbstractContextManager[str]:
        """Return a context with the path of a new local file, which becomes the file `name` on success."""
        return uploaded(self.owner, name) if arguments.scheme_of(name) else replacing_path(name)


def write_records(arrays: Mapping[str, Any] | Iterable[bytes], output: Output, write_file: WriteFile) -> list[str]:
    """Write arrays or serialized records to files, and return their names. See `write_tfrecords`."""
    output = output.checked()
    no_rows = isinstance(arrays, np.ndarray) and not arrays.ndim
    if isinstance(arrays, (str, bytes)) or not isinstance(arrays, Iterable) or no_rows:
        arguments.refuse(output.owner, "arrays", arrays, "a dict of arrays, or an iterable of serialized records")
    if isinstance(arrays, Mapping):
        return _write_columns(_check_columns(arrays), output, write_file)
    if output.shards > 1:
        raise ValueError(f"{output.owner}: shards={output.shards} needs arrays, whose length is known in advance.")
    output.check_file(name := os.fspath(output.path))
    with tqdm_bar(output.progress, unit=" records") as bar:
        write_file(output, name, _serialized(output.owner, arrays), bar)
    return [name]


def _write_columns(columns: Mapping[str, np.ndarray[Any, Any]], output: Output, write_file: WriteFile) -> list[str]:
    total, shards = len(next(iter(columns.values()))), output.shards
    if shards > total:
        raise ValueError(f"{output.owner}: shards={shards} is more than the {total} records.")
    names = shard_names(os.fspath(output.path), shards)
    for name in names:
        output.check_file(name)
    with tqdm_bar(output.progress, total=total, unit=" records") as bar:
        for number, name in enumerate(names):
            rows = range(total * number // shards, total * (number + 1) // shards)
            write_file(output, name, _examples(columns, rows), bar)
    return names


def shard_names(out: str, shards: int) -> list[str]:
    """Return the names of the files.

    >>> shard_names("train.tfrecord", 2)
    ['train.tfrecord-00000-of-00002', 'train.tfrecord-00001-of-00002']
    """
    return [out] if shards == 1 else [f"{out}-{number:05d}-of-{shards:05d}" for number in range(shards)]


def _serialized(owner: str, records: Iterable[Any]) -> Iterator[bytes]:
    for number, record in enumerate(records):
        if not isinstance(record, (bytes, bytearray, memoryview)):
            raise TypeError(
                f"{owner}: record {number} of arrays is {arguments.shown(record)}, a {type(record).__name__}, expected "
                f"bytes: a serialized record. To write arrays, pass a dict: {{'x': array}}."
            )
        yield bytes(record)


def _check_columns(arrays: Mapping[str, Any]) -> dict[str, np.ndarray[Any, Any]]:
    columns = {str(name): as_array(value, None, f"array '{name}'") for name, value in arrays.items()}
    for name, column in columns.items():
        if not column.ndim:
            raise SpecError(f"array '{name}' is one number, expected an array with one row per record.")
    lengths = {name: len(column) for name, column in columns.items()}
    if not lengths or max(lengths.values()) < 1:
        raise SpecError(f"got no records to write: {f'the lengths are {lengths}' if lengths else 'the dict is empty'}.")
    if len(set(lengths.values())) > 1:
        listed = ", ".join(f"'{name}' has {length}" for name, length in lengths.items())
        raise SpecError(f"arrays have different lengths: {listed}. Record i is row i of each array.")
    for name, column in columns.items():
        try:
            storage_kind(column)
        except SpecError as error:
            raise SpecError(f"array '{name}': {error}") from error
    return columns


def _examples(columns: Mapping[str, np.ndarray[Any, Any]], rows: range) -> Iterator[bytes]:
    kinds = {name: storage_kind(column) for name, column in columns.items()}
    for row in rows:
        # With `...` a row of strings stays an array of objects: numpy's own bytes lose the zeros at their end.
        yield encode_example({name: column[row, ...] for name, column in columns.items()}, kinds)
