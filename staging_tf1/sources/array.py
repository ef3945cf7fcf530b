"""`ArraySource`: batches from numpy arrays and memory-mapped files."""

from __future__ import annotations

from typing import Any

import numpy as np

from staging_tf1.errors import SpecError, StagingError
from staging_tf1.sources.batches import Options
from staging_tf1.sources.content import Content, content_of_columns
from staging_tf1.sources.files.mapped import MappedFile, file_of
from staging_tf1.sources.records import RecordSource
from staging_tf1.sources.stacking import take_rows
from staging_tf1.sources.transform import Transform
from staging_tf1.spec import ArraySpec, component_name, component_paths, flatten_up_to, pack, with_batch_dim
from staging_tf1.spec.arrays import checked_array, describe


class ArraySource(RecordSource):
    """Batches of records from arrays that share their first dimension.

    Only the records of the batch are read from a `np.memmap`. Each batch is new memory on a 64-byte boundary, which
    TensorFlow uses without a copy. Data in non-native byte order is converted batch by batch.

    Args:
      arrays: one array, or a dict, tuple, namedtuple or nest of arrays. Also accepted are `np.memmap` and objects that
        convert to arrays without loss: lists of numbers, pandas objects with numpy dtypes, torch and jax arrays.
      batch_size, shuffle, seed, epochs, shard, drop_remainder, across_epochs, transform: as in `RecordSource`.

    Raises:
      SpecError: the arrays are empty, differ in length, or are not supported: object arrays, dtypes that TensorFlow
        lacks, masked arrays, graph tensors. `staging_tf1.arrays` lists all rejected values.
      TypeError, ValueError: an argument is invalid.

    >>> arrays = {"image": np.zeros((10, 784), np.uint8), "label": np.arange(10)}
    >>> source = ArraySource(arrays, batch_size=4, epochs=1)
    >>> source.num_batches, source.batch(2)["label"].tolist()
    (3, [8, 9])
    """

    def __init__(
        self,
        arrays: Any,
        *,
        batch_size: int,
        shuffle: bool = False,
        seed: int | None = None,
        epochs: int | None = None,
        shard: tuple[int, int] | None = None,
        drop_remainder: bool = False,
        across_epochs: bool = False,
        transform: Transform | None = None,
    ) -> None:
        self._specs, self._arrays = _check_arrays(arrays)
        self._shapes = [array.shape for array in self._arrays]
        mapped = [file for file in map(file_of, self._arrays) if file is not None]
        self._files = [MappedFile(self._owner, file) for file in mapped]
        options = Options(batch_size, shuffle, seed, epochs, shard, drop_remainder, across_epochs, transform)
        self._set_up(len(self._arrays[0]), options)

    @property
    def _copies_rows(self) -> bool:  # type: ignore[override]
        # A subclass may do more.
        return type(self) is ArraySource

    def record_spec(self, batch_dim: int | None) -> Any:
        return with_batch_dim(self._specs, batch_dim)

    def gather(self, records: np.ndarray[Any, Any] | slice) -> Any:
        for file in self._files:
            file.check()
        shapes = [array.shape for array in self._arrays]
        if shapes != self._shapes:
            before, now = (", ".join(map(str, shapes)) for shapes in (self._shapes, shapes))
            raise StagingError(
                f"{self._owner}: an array was resized after the source was made: it had the shape of {before}, and has "
                f"{now}. Make a new source for each state of the arrays."
            )
        return pack(self._specs, [take_rows(array, records) for array in self._arrays])

    def content_sample(self) -> Content:
        for file in self._files:
            file.check()
        return content_of_columns(pack(self._specs, self._arrays))


def _check_arrays(arrays: Any) -> tuple[Any, list[np.ndarray[Any, Any]]]:
    names = component_paths(arrays)
    checked = {path: _check_array(path, value) for path, value in flatten_up_to(names, arrays, "ArraySource")}
    if not checked:
        raise SpecError(f"ArraySource got {arrays!r}, which holds no array. Pass a dict, a tuple or one array.")
    lengths = {path: len(array) for path, array in checked.items()}
    if len(set(lengths.values())) > 1:
        listed = ", ".join(f"{_name(path)} has {length}" for path, length in lengths.items())
        raise SpecError(f"ArraySource got arrays of different lengths: {listed}. Record i is row i of each array.")
    for path, array in checked.items():
        if not len(array):
            raise SpecError(f"ArraySource got no records: {_name(path)} is {describe(array.dtype, array.shape)}.")
    specs = [ArraySpec(array.shape, array.dtype, path or None) for path, array in checked.items()]
    return pack(names, specs), list(checked.values())


def _check_array(path: str, value: Any) -> np.ndarray[Any, Any]:
    array = checked_array(value, None, f"ArraySource: {_name(path)}")
    if array.ndim == 0:
        raise SpecError(f"ArraySource: {_name(path)} is one number, expected an array with one row per record.")
    return array


def _name(path: str) -> str:
    return component_name(path) if path else "the array"
