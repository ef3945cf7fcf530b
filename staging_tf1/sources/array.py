"""`ArraySource`: numpy arrays and memory-mapped files, a vectorised gather a batch."""

from __future__ import annotations

from typing import Any

import numpy as np

from staging_tf1.errors import SpecError
from staging_tf1.sources.aligned import aligned_empty
from staging_tf1.sources.records import RecordSource
from staging_tf1.sources.transform import Transform
from staging_tf1.spec import (
    ArraySpec,
    as_array,
    component_paths,
    describe,
    flatten,
    flatten_up_to,
    pack,
)

__all__ = ["ArraySource"]

# The numpy dtypes that TensorFlow has a tensor type for; bfloat16 and float8 are ml_dtypes' and of kind V.
_TENSOR_DTYPES = frozenset(
    ["bool", "object", "complex64", "complex128", "float16", "float32", "float64", "bfloat16"]
    + ["float8_e4m3fn", "float8_e5m2"]
    + [f"{sign}int{bits}" for sign in ("", "u") for bits in (8, 16, 32, 64)]
)


class ArraySource(RecordSource):
    """Batches of records from arrays that share their first dimension.

    Nothing is loaded whole: of a `np.memmap` only the records of the batch are read. A batch is fresh memory on a
    64-byte boundary, which TensorFlow takes over without a copy.

    Args:
      arrays: a dict, tuple, namedtuple or nest of arrays, or one array; `np.memmap` as well.
      batch_size, shuffle, seed, epochs, shard, drop_remainder, across_epochs, transform: as in
        `RecordSource`. `epochs=None` goes on without end.

    Raises:
      SpecError: no records, arrays of different length, arrays of objects or of dtypes that TensorFlow lacks.
      TypeError, ValueError: a bad argument.

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
        super().__init__(
            len(self._arrays[0]),
            batch_size=batch_size,
            shuffle=shuffle,
            seed=seed,
            epochs=epochs,
            shard=shard,
            drop_remainder=drop_remainder,
            across_epochs=across_epochs,
            transform=transform,
        )

    def _record_spec(self, batch_dim: int | None) -> Any:
        specs = flatten(self._specs)
        return pack(self._specs, [ArraySpec((batch_dim, *s.shape[1:]), s.dtype, s.name) for s in specs])

    def _gather(self, records: np.ndarray[Any, Any] | slice) -> Any:
        return pack(self._specs, [_take(array, records) for array in self._arrays])


def _take(array: np.ndarray[Any, Any], records: np.ndarray[Any, Any] | slice) -> np.ndarray[Any, Any]:
    if isinstance(records, slice):
        rows = array[records]
        taken = aligned_empty(rows.shape, array.dtype)
        np.copyto(taken, rows)
        return taken
    taken = aligned_empty((len(records), *array.shape[1:]), array.dtype)
    if array.flags.c_contiguous:
        # mode="raise" would gather into a buffer and copy that; the record numbers are in range as they are
        # made.
        array.take(records, axis=0, out=taken, mode="clip")
    else:  # take would first copy the whole array to make it contiguous
        np.copyto(taken, array[records])
    return taken


def _check_arrays(arrays: Any) -> tuple[Any, list[np.ndarray[Any, Any]]]:
    names = component_paths(arrays)
    found = {path: _check_array(path, value) for path, value in flatten_up_to(names, arrays, "ArraySource")}
    if not found:
        raise SpecError(f"ArraySource got {arrays!r}, which holds no array. Give it a dict, a tuple or one array.")
    lengths = {path: len(array) for path, array in found.items()}
    if len(set(lengths.values())) > 1:
        listed = ", ".join(f"{_name(path)} has {length}" for path, length in lengths.items())
        raise SpecError(f"ArraySource got arrays of different length: {listed}. Record i is row i of each of them.")
    for path, array in found.items():
        if not len(array):
            raise SpecError(f"ArraySource got no records: {_name(path)} is {describe(array.dtype, array.shape)}.")
    specs = [ArraySpec(array.shape, array.dtype, path or None) for path, array in found.items()]
    return pack(names, specs), list(found.values())


def _check_array(path: str, value: Any) -> np.ndarray[Any, Any]:
    array = np.asarray(as_array(value, None, f"ArraySource: {_name(path)}"))
    if array.ndim == 0:
        raise SpecError(f"ArraySource: {_name(path)} is one number, wanted an array with a row a record.")
    if array.dtype.names is not None or array.dtype.name not in _TENSOR_DTYPES:
        raise SpecError(
            f"ArraySource: {_name(path)} is of dtype {array.dtype}, which no tensor can have. Cast it, for "
            "example array.astype(np.float32), or give the fields of a structured array one by one."
        )
    if not array.dtype.isnative:
        raise SpecError(
            f"ArraySource: {_name(path)} has the byte order of another machine ({array.dtype.str}). Convert "
            f"it: array.astype(np.{array.dtype.name})."
        )
    return array


def _name(path: str) -> str:
    if not path:
        return "the array"
    return f"component {path}" if path.startswith("[") else f"component '{path}'"
