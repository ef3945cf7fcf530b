"""How the records of a map-style dataset are read: one by one, many at once, or as columns.

What `dataset[...]` returns for a list of numbers differs between libraries: records, a table, a column, or an error. So
only a plain integer is passed to an object of unknown type. Known types are recognized by name, without importing their
libraries.
"""

from __future__ import annotations

import abc
import contextlib
import copy
import itertools
import os
import threading
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from staging_tf1 import arguments
from staging_tf1.errors import SpecError, StagingError
from staging_tf1.sources.content import Content, content_of_columns, content_of_items
from staging_tf1.sources.own_copy import own_copy
from staging_tf1.sources.stacking import rows_of
from staging_tf1.spec import component_name, flatten, flatten_with_paths, map_structure, pack
from staging_tf1.spec.arrays import checked_array, is_named, kind_of

_MAP_STYLE = "a dataset with __len__ and __getitem__: dataset[i] is record i"


class Fetched(NamedTuple):
    """Records as they were read: a list, or columns (a nest of arrays with one row per record).

    The columns are new arrays. Records of a list may be those that the dataset keeps, unless they are `fresh`.
    """

    listed: list[Any] | None
    columns: Any = None
    fresh: bool = False

    def records(self) -> list[Any]:
        """Return the records one by one."""
        return rows_of(self.columns) if self.listed is None else self.listed

    def own_records(self) -> Iterable[Any]:
        """Return the records one by one, for a function that may change them in place."""
        records = self.records()
        if self.fresh or (self.listed is None and not any(leaf.dtype.hasobject for leaf in flatten(self.columns))):
            return records
        # Lazily: each copy may use the memory of the one before.
        return map(own_copy, records)


class Access(abc.ABC):
    """The records of one dataset."""

    @abc.abstractmethod
    def __len__(self) -> int:
        """The number of records."""

    @abc.abstractmethod
    def read(self, numbers: np.ndarray[Any, Any]) -> Fetched:
        """Read records by number, int64 [n], in this order."""

    def paths(self) -> list[str]:
        """Return the string, such as a path, that each record is or begins with. Empty if one has none."""
        return []

    def content(self) -> Content:
        """Return what identifies a sample of the records, as far as they are in memory."""
        return {}


def access_to(caller: str, dataset: Any) -> Access:
    """Find out how to read a dataset. Reads no record.

    Raises TypeError or SpecError if the object is no map-style dataset; the message says what to pass instead.
    """
    for kinds, refusal in _REFUSED.items():
        if is_a(dataset, *kinds.split()):
            raise TypeError(f"{caller} got {kind_of(dataset)} as dataset. {refusal}")
    if is_a(dataset, "pandas.DataFrame"):
        names = _column_names(caller, dataset)
        columns = {name: checked_array(dataset[name], None, f"{caller}: component {name!r}") for name in names}
        return _Columns(caller, columns, dataset)
    if is_a(dataset, "pandas.Series"):
        return _Columns(caller, checked_array(dataset, None, caller), dataset)
    if is_a(dataset, "datasets.Dataset"):
        return _HuggingFace(dataset)
    if _is_column(dataset) or isinstance(dataset, Mapping) or is_a(dataset, "zarr.Group"):
        return _Columns(caller, _as_columns(caller, dataset), dataset)
    is_text = isinstance(dataset, (str, bytes, bytearray, memoryview, type))
    if is_text or not hasattr(dataset, "__getitem__") or not hasattr(dataset, "__len__"):
        arguments.refuse(caller, "dataset", dataset, _MAP_STYLE)
    return _Items(caller, dataset)


def is_keras_sequence(value: Any) -> bool:
    """Whether `value` is a Keras `Sequence` or `PyDataset`, whose elements are batches. Does not import Keras."""
    return is_a(value, *_KERAS)


_KERAS = ("keras.Sequence", "keras.PyDataset", "tf_keras.Sequence", "tensorflow.Sequence")
_KEEP_COLUMNS = "Its [] does not return a record. Pass its columns: {name: numpy_array}."
# Types whose [] or length is not that of records, and what to do.
_REFUSED = {
    " ".join(_KERAS): "Its elements are batches: use SequenceSource.",
    "datasets.DatasetDict datasets.IterableDatasetDict": "Choose a split: dataset['train'].",
    "pyarrow.Table pyarrow.RecordBatch pyarrow.ChunkedArray pyarrow.Array": _KEEP_COLUMNS,
    "polars.DataFrame polars.LazyFrame polars.Series": _KEEP_COLUMNS,
    "xarray.Dataset xarray.DataArray": _KEEP_COLUMNS,
    "dask.DataFrame dask.Series dask.Array": _KEEP_COLUMNS,
    "scipy.spmatrix scipy.sparray": "Make it dense: dataset.toarray().",
    "tensorflow.DatasetV2": "It is read in order: pass it to staged().",
    "pandas.Index": "Pass its values: dataset.to_numpy().",
}


def is_a(value: Any, *names: str) -> bool:
    """Whether a class of `value` has one of the `names`: the library, a dot, and the name of the class."""
    return is_named(type(value), *names)


def _column_names(caller: str, frame: Any) -> list[str]:
    names = list(frame.columns)
    if not all(isinstance(name, str) for name in names) or len(set(names)) < len(names):
        arguments.refuse(caller, "column names", names, "different strings, the names of the components")
    return names


def _is_column(value: Any) -> bool:
    return isinstance(value, np.ndarray) or is_a(value, "h5py.Dataset", "zarr.Array")


def _as_columns(caller: str, dataset: Any) -> Any:
    """The columns of an array, a dict of arrays, or a group of h5py or zarr."""
    if _is_column(dataset):
        return dataset
    # A group of zarr is no Mapping.
    columns = dict(dataset if isinstance(dataset, Mapping) else dataset.arrays())
    for name, column in columns.items():
        if not _is_column(column):
            raise TypeError(
                f"{caller} got {kind_of(column)} as column {name!r}, expected an array of numpy, h5py or zarr. Convert "
                f"it with np.asarray, or pass a dataset with __len__ and __getitem__."
            )
    return columns


class _Columns(Access):
    """Arrays with one row for each record: those of numpy, h5py and zarr, and the columns of a table."""

    def __init__(self, caller: str, columns: Any, dataset: Any) -> None:
        self._columns = columns
        lengths = {}
        for path, column in flatten_with_paths(columns):
            if not column.shape:
                raise SpecError(f"{caller}: {component_name(path)} is one value, expected an array.")
            lengths[path] = int(column.shape[0])
            # Without a row there is no loss, so this only checks the dtype.
            checked_array(np.empty(0, column.dtype), None, f"{caller}: {component_name(path)}")
        if not lengths:
            arguments.refuse(caller, "dataset", dataset, "at least one column", ValueError)
        if len(set(lengths.values())) > 1:
            listed = ", ".join(f"{component_name(path)} has {length}" for path, length in lengths.items())
            raise SpecError(f"{caller} got columns of different lengths: {listed}.")
        self._length = next(iter(lengths.values()))

    def __len__(self) -> int:
        return self._length

    def read(self, numbers: np.ndarray[Any, Any]) -> Fetched:
        return Fetched(None, map_structure(lambda column: _rows(column, numbers), self._columns))

    def paths(self) -> list[str]:
        return _paths_in(self._columns)

    def content(self) -> Content:
        return content_of_columns(self._columns)


def _rows(column: Any, numbers: np.ndarray[Any, Any]) -> Any:
    if isinstance(column, np.ndarray):
        return column[numbers]
    # h5py requires ascending numbers without repetition. Both libraries then read each chunk once.
    ascending, inverse = np.unique(numbers, return_inverse=True)
    first, last = int(ascending[0]), int(ascending[-1])
    if last - first < 2 * len(ascending):
        rows = column[first : last + 1]
        ascending = ascending - first
        return np.asarray(rows)[ascending[inverse]]
    rows = column.oindex[ascending] if hasattr(column, "oindex") else column[ascending]
    return np.asarray(rows)[inverse]


class _HuggingFace(Access):
    """A `datasets.Dataset`: a list of numbers returns a dict of columns."""

    def __init__(self, dataset: Any) -> None:
        self._dataset = dataset

    def __len__(self) -> int:
        return len(self._dataset)

    def read(self, numbers: np.ndarray[Any, Any]) -> Fetched:
        columns = dict(self._dataset[numbers.tolist()])
        if all(isinstance(column, np.ndarray) and column.dtype != object for column in columns.values()):
            return Fetched(None, columns)
        names = list(columns)
        return Fetched([dict(zip(names, row)) for row in zip(*columns.values())], fresh=True)


class _Items(Access):
    """Any other object: `dataset[i]`, or `dataset.__getitems__([i, j])` where it has that.

    A dataset may return the same buffer, dict or list for every record. Then each record is copied before the next one
    is read, by one thread at a time.
    """

    def __init__(self, caller: str, dataset: Any) -> None:
        self._caller, self._dataset, self._length = caller, dataset, len(dataset)
        self._many: Callable[[list[int]], Any] | None = dataset.__getitems__ if _reads_many(dataset) else None
        # Whether two records have shared memory; None before two have been compared.
        self._reuses: bool | None = None
        # The number of the first record that was read, and what may change in it.
        self._first: tuple[int, dict[int, Any]] | None = None
        self._lock = threading.Lock()

    def __len__(self) -> int:
        return self._length

    def __reduce__(self) -> Any:
        # Another process must find out by itself whether memory is reused.
        return _Items, (self._caller, self._dataset)

    def read(self, numbers: np.ndarray[Any, Any]) -> Fetched:
        wanted = numbers.tolist()
        if self._reuses is False:
            records = self._read(wanted)
            different = dict(zip(wanted, records)).values()
            if _are_apart(different) or not _share_memory([_changing(record) for record in different]):
                return Fetched(records)
        with self._lock:
            return Fetched(self._read_alone(wanted))

    def _read_alone(self, wanted: list[int]) -> list[Any]:
        """Read records while no other thread does, and find out whether the dataset reuses memory."""
        if not self._reuses:
            records = self._read(wanted)
            self._compare(wanted, records)
            if self._reuses is False:
                return records
            if self._reuses is None:
                return list(map(_copied, records))
        return [_copied(self._read([number])[0]) for number in wanted]

    def _compare(self, wanted: list[int], records: list[Any]) -> None:
        # A record that is read twice may be the same object.
        changing = {number: _changing(record) for number, record in zip(wanted, records)}
        if self._first is not None:
            changing.setdefault(*self._first)
        if len(changing) > 1 or {} in changing.values():
            self._reuses, self._first = _share_memory([*changing.values()]), None
        elif changing:
            self._first = next(iter(changing.items()))

    def _read(self, wanted: list[int]) -> list[Any]:
        with self._naming_a_change():
            records = [self._dataset[number] for number in wanted] if self._many is None else self._many(wanted)
        if not isinstance(records, Sequence) or len(records) != len(wanted):
            raise SpecError(
                f"{self._caller}: dataset.__getitems__ returned {kind_of(records)} for {len(wanted)} numbers, expected "
                f"a list of {len(wanted)} records."
            )
        for number, record in zip(wanted, records):
            if record is None:
                raise SpecError(f"{self._caller}: record {number} is None, expected a nest of arrays and numbers.")
        return list(records)

    def paths(self) -> list[str]:
        return _paths_in(self._dataset)

    def content(self) -> Content:
        return content_of_items(self._dataset)

    @contextlib.contextmanager
    def _naming_a_change(self) -> Any:
        try:
            yield
        except LookupError as error:
            if len(self._dataset) < self._length:
                raise StagingError(
                    f"{self._caller}: the dataset had {self._length} records when the source was made, and has "
                    f"{len(self._dataset)} now. Records must stay: make a new source for each state of the dataset."
                ) from error
            raise


# Values of these types never change.
_PLAIN = (int, float, complex, str, bytes, type(None), np.generic)
_UNCHANGING = (*_PLAIN, tuple)


def _are_apart(records: Collection[Any]) -> bool:
    """Whether plain records certainly share no memory. Fast, because each batch is checked."""
    containers: list[Any] = []
    arrays = []
    for record in records:
        if type(record) is dict or type(record) is list:
            containers.append(record)
            leaves: Iterable[Any] = record.values() if type(record) is dict else record
        else:
            leaves = record if type(record) is tuple else (record,)
        for leaf in leaves:
            if type(leaf) is np.ndarray:
                arrays.append(leaf)
            elif not isinstance(leaf, _PLAIN):
                return False
    return len({*map(id, containers)}) == len(containers) and _owners_of(arrays) is not None


def _owners_of(arrays: Sequence[np.ndarray[Any, Any]]) -> list[np.ndarray[Any, Any]] | None:
    """Return the arrays that own the memory of others. None if two have one owner, or one has another kind of owner."""
    owners = [array if array.base is None else array.base for array in arrays]
    apart = len({*map(id, owners)}) == len(owners) and all(type(owner) is np.ndarray for owner in owners)
    return owners if apart else None


def _leaves(record: Any) -> Sequence[Any]:
    try:
        return flatten(record)
    except Exception:  # it is refused later
        return ()


def _copied(record: Any) -> Any:
    try:
        # numpy 2.0 crashes when it deep-copies a StringDType array.
        strings = [leaf for leaf in _leaves(record) if isinstance(leaf, np.ndarray) and leaf.dtype.kind == "T"]
        return copy.deepcopy(record, {id(leaf): leaf.copy() for leaf in strings})
    except Exception:  # such as a file handle, which is read when it is converted to an array
        return record


def _changing(record: Any) -> dict[int, Any]:
    """Return what may change in a record, by identity: the record and its leaves, as arrays where possible."""
    changing = {id(value): value for value in (record, *_leaves(record)) if not isinstance(value, _UNCHANGING)}
    for key, value in changing.items():
        if hasattr(value, "__array__"):
            # A leaf without an array, such as a tensor on another device, shares no memory of the host.
            with contextlib.suppress(Exception):
                changing[key] = np.asarray(value)
    return changing


def _byte_span(array: np.ndarray[Any, Any]) -> tuple[int, int]:
    """Return the addresses of the first byte of an array that is not empty, and after its last."""
    start = int(array.__array_interface__["data"][0])
    steps = [(size - 1) * stride for size, stride in zip(array.shape, array.strides)]
    return start + sum(min(0, step) for step in steps), start + sum(max(0, step) for step in steps) + array.itemsize


def _share_memory(changing: Sequence[dict[int, Any]]) -> bool:
    """Whether two records have a dict, a list, an array or some memory in common."""
    if len({key for record in changing for key in record}) < sum(map(len, changing)):
        return True
    arrays = [value for record in changing for value in record.values() if isinstance(value, np.ndarray) and value.size]
    owners = _owners_of(arrays)
    # An owner with a base, such as a result of np.frombuffer, may share it with others.
    if owners is not None and all(owner.base is None for owner in owners):
        return False
    spans = sorted(map(_byte_span, arrays))
    return any(begin < end for (_, end), (begin, _) in itertools.pairwise(spans))


def _paths_in(dataset: Any) -> list[str]:
    """Return the strings of a list of files, or of pairs of a file and something else. Empty for anything else."""
    if isinstance(dataset, np.ndarray) and dataset.ndim == 1 and dataset.dtype.kind in "OU":
        dataset = dataset.tolist()
    if not isinstance(dataset, (list, tuple)):
        return []
    firsts = [item[0] if isinstance(item, (list, tuple)) and item else item for item in dataset]
    if not all(isinstance(first, (str, os.PathLike)) for first in firsts):
        return []
    return [os.fsdecode(first) for first in firsts]


def _reads_many(dataset: Any) -> bool:
    """Whether `__getitems__` returns what `__getitem__` does.

    A subclass may override only `__getitem__`, and inherit a `__getitems__` that does not call it.
    """
    for kind in type(dataset).__mro__:
        if "__getitems__" in vars(kind):
            return callable(getattr(dataset, "__getitems__", None))
        if "__getitem__" in vars(kind):
            return False
    return False


def joined(parts: Sequence[Fetched]) -> Fetched:
    """Join what several threads have read."""
    if len(parts) == 1:
        return parts[0]
    if all(part.listed is None for part in parts):
        leaves = zip(*(flatten(part.columns) for part in parts))
        return Fetched(None, pack(parts[0].columns, [np.concatenate(arrays) for arrays in leaves]))
    return Fetched([record for part in parts for record in part.records()])
