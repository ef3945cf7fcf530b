"""`MapSource`: batches from any dataset with a length and numbered records."""

from __future__ import annotations

import contextlib
import dataclasses
import itertools
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any, Literal

import numpy as np

from staging_tf1 import arguments
from staging_tf1.arguments import MOST_THREADS
from staging_tf1.errors import SpecError
from staging_tf1.sources.access import Access, Fetched, access_to, joined
from staging_tf1.sources.bad_records import BadRecords
from staging_tf1.sources.batches import Layout, Memo, Options
from staging_tf1.sources.content import Content
from staging_tf1.sources.files.file_list import ReadFile
from staging_tf1.sources.order import numbers_of
from staging_tf1.sources.own_copy import own_copy
from staging_tf1.sources.padding import Padding
from staging_tf1.sources.ragged_rows import RaggedRows
from staging_tf1.sources.records import RecordSource
from staging_tf1.sources.stacking import aligned_batch, record_specs, stack_columns, stack_records
from staging_tf1.sources.transform import Transform
from staging_tf1.spec import component_name, component_spec, flatten, flatten_with_paths, pack, with_batch_dim

# How many records are collated one by one, to find the dimensions that vary.
_COMPARED = 4
# The layouts that `collate` names.
_LAYOUTS: dict[str, Layout] = {"pad": Padding(None, 0), "ragged": RaggedRows(1)}


class MapSource(RecordSource):
    """Batches from a map-style dataset: any object with `__len__` and `__getitem__`.

    Record `i` is `dataset[i]`: a number, string, array or tensor, or a nest of these. Some datasets are read in another
    way: if the dataset has `__getitems__`, as in torch, it is called with a list of numbers. A pandas table is read by
    row, and its components are its columns. Arrays of h5py and zarr, dicts and groups of these, and a Hugging Face
    dataset are read batch by batch. docs/sources.md has an example of each.

    The source keeps the number of records that the dataset has when the source is made. Of a list of paths, or of pairs
    that begin with a path, checkpoints know the names of the files: see `fingerprint`.

    >>> class Squares:
    ...     def __len__(self):
    ...         return 10
    ...
    ...     def __getitem__(self, i):
    ...         return {"number": i, "square": i * i}
    >>> MapSource(Squares(), batch_size=4, epochs=1).batch(2)
    {'number': array([8, 9]), 'square': array([64, 81])}
    >>> texts = ["1", "two", "3"]
    >>> MapSource(texts, load=int, batch_size=3, epochs=1, skip_bad_records=True).batch(0)
    array([1, 3])

    Args:
      dataset: the dataset.
      load: a function from `dataset[i]` to record `i`, for example from the name of a file to its content. It gets a
        copy of the dicts, lists, sets and arrays in `dataset[i]`, at any depth, and may change them in place. Objects
        of other types are passed as they are.
      collate: how records become a batch. "stack" needs the same dtypes and shapes in all records. "pad" pads the first
        dimension to the longest, and "ragged" keeps the length of each record; `pad` and `ragged` have more choices. A
        function gets a list of records, copied as for `load`, and returns a nest of arrays, sparse or ragged values
        with one row for each record, in their order.
      threads: how many threads read the records of one batch, each a part of them. They are started for each batch.
        `staged(num_threads=...)` reads several batches at the same time, and costs less.
      thread_safe: whether several threads may read the dataset at the same time. False reads it under a lock. `load`
        and `collate` always run in several threads.
      skip_bad_records: leave out each record that is None, or for which the dataset or `load` raises an exception.
        Its batch is smaller then, or empty. Each is counted once (`num_skipped`) and named in a warning. By default its
        exception is raised. Records whose dtypes or shapes differ always raise.
      max_ignored: how many records may be left out. The exception of the next one is raised. None is no limit. Worker
        processes count for themselves.
      batch_size, shuffle, seed, epochs, shard, drop_remainder, across_epochs, transform: as in `RecordSource`.

    Raises:
      SpecError: the dataset is empty; (by `batch`) a record has other components, dtypes or shapes than the first one.
      StagingError: (by `batch`) the dataset has fewer records than before.
      TypeError, ValueError: an argument is invalid.
    """

    def __init__(
        self,
        dataset: Any,
        *,
        batch_size: int,
        load: Callable[[Any], Any] | None = None,
        collate: Literal["stack", "pad", "ragged"] | Callable[[list[Any]], Any] = "stack",
        threads: int = 1,
        thread_safe: bool = True,
        skip_bad_records: bool = False,
        max_ignored: int | None = None,
        shuffle: bool = False,
        seed: int | None = None,
        epochs: int | None = None,
        shard: tuple[int, int] | None = None,
        drop_remainder: bool = False,
        across_epochs: bool = False,
        transform: Transform | None = None,
    ) -> None:
        owner = self._owner
        self._access = access_to(owner, dataset)
        if load is not None:
            arguments.function(owner, "load", load, "a function from dataset[i] to a record")
        if not callable(collate) and not (isinstance(collate, str) and collate in ("stack", *_LAYOUTS)):
            kind = ValueError if isinstance(collate, str) else TypeError
            expected = "'stack', 'pad', 'ragged' or a function of a list of records"
            arguments.refuse(owner, "collate", collate, expected, kind)
        self._collate = collate if callable(collate) else None
        self._makes_batches = self._collate is not None
        self._row_maker = "the dataset" if self._collate is None else "collate"
        self._threads = arguments.whole(owner, "threads", threads, 1, MOST_THREADS)
        safe = arguments.flag(owner, "thread_safe", thread_safe)
        self._lock: Any = contextlib.nullcontext() if safe else threading.Lock()
        self._loaded = None if load is None else access_to(owner, _Loaded(self._access, load, self._lock))
        self._memo = Memo()
        self._bad = BadRecords.checked(owner, skip_bad_records, max_ignored)
        self._drops_records = "" if self._bad is None else "skip_bad_records"
        if not len(self._access):
            raise SpecError(f"{owner} got a dataset without records, expected at least one.")
        options = Options(batch_size, shuffle, seed, epochs, shard, drop_remainder, across_epochs, transform)
        self._set_up(len(self._access), options, _LAYOUTS.get(collate) if isinstance(collate, str) else None)

    @property
    def num_skipped(self) -> int:
        """Bad records left out so far by this process, each counted once, over all shards."""
        return 0 if self._bad is None else len(self._bad.numbers)

    def record_spec(self, batch_dim: int | None) -> Any:
        return with_batch_dim(self._specs(), batch_dim)

    def gather(self, records: np.ndarray[Any, Any] | slice) -> Any:
        numbers, fetched = self._good(numbers_of(records))
        if self._collate is not None:
            if not len(numbers):
                raise SpecError(
                    f"{self._owner}: all records of a batch are bad, so collate gets none. Use a larger batch_size, or "
                    f"skip the batch: staged(ignored_exception_types=staging_tf1.errors.SpecError)."
                )
            return aligned_batch(self._collate(list(fetched.own_records())), f"{self._owner}: collate")
        if fetched.listed is None:
            return aligned_batch(fetched.columns, self._owner)
        specs = self._specs()
        stacked = stack_columns(specs, fetched.listed)
        if stacked is not None:
            return stacked
        paired = zip(numbers.tolist(), fetched.listed, strict=True)
        return stack_records(specs, paired, len(numbers), self._describe)

    def content_sample(self) -> Content:
        return self._access.content()

    def _read_files(self) -> list[ReadFile]:
        return [(path, 1) for path in self._access.paths()]

    def _read_single(self, numbers: np.ndarray[Any, Any]) -> list[tuple[int, Any]]:
        if self._collate is not None:
            # The records are the rows of the batch that the function returns.
            return super()._read_single(numbers)
        numbers, fetched = self._good(numbers)
        return list(zip(numbers.tolist(), fetched.records(), strict=True))

    def _good(self, numbers: np.ndarray[Any, Any]) -> tuple[np.ndarray[Any, Any], Fetched]:
        """Read records, and return the numbers of those that are not left out."""
        if self._bad is None:
            return numbers, self._fetched(numbers)
        numbers = self._bad.without_known(numbers)
        if len(numbers):
            with contextlib.suppress(Exception):
                return numbers, self._fetched(numbers)
        # One of them is bad, so read them one by one.
        listed = numbers.tolist()
        kept, records = self._bad.made(
            listed, lambda row: self._part(np.array([listed[row]])).records()[0], self._describe
        )
        return np.array(kept, np.int64), Fetched(records)

    def _first(self, count: int) -> list[Any]:
        total, left_out = len(self._access), self._batching.left_out
        numbers = itertools.takewhile(lambda number: number < total, left_out.all_outside())
        if self._bad is None:
            return self._fetched(np.array([*itertools.islice(numbers, count)])).records()
        records: list[Any] = []
        for number in numbers:
            if len(records) == count:
                break
            records += self._good(np.array([number]))[1].records()
        if not records:
            raise SpecError(f"{self._owner}: all {total} records are bad.")
        return records

    def _fetched(self, numbers: np.ndarray[Any, Any]) -> Fetched:
        """Read records in their order, by several threads if wanted."""
        threads = min(self._threads, len(numbers))
        if threads == 1:
            return self._part(numbers)
        # New threads for each batch, because a pool would outlive the session.
        with ThreadPoolExecutor(threads, thread_name_prefix="MapSource") as pool:
            return joined(list(pool.map(self._part, np.array_split(numbers, threads))))

    def _part(self, numbers: np.ndarray[Any, Any]) -> Fetched:
        if self._loaded is not None:
            return self._loaded.read(numbers)
        with self._lock:
            return self._access.read(numbers)

    def _specs(self) -> Any:
        return self._memo.get("specs", self._read_specs)

    def _read_specs(self) -> Any:
        if self._collate is not None:
            return self._collated_specs(self._collate)
        first = self._batching.left_out.next_outside(0)
        where = self._describe(first) if self._bad is None else f"{self._owner}: the first record"
        return record_specs(self._first(1)[0], where)

    def _collated_specs(self, collate: Callable[[list[Any]], Any]) -> Any:
        """Collate some records one by one, and all of them: the dimensions that differ vary."""
        records, where = self._first(_COMPARED), f"{self._owner}: collate"
        rows = [1] * len(records) + [len(records)]
        parts = [*([record] for record in records), records]
        batches = [aligned_batch(collate(list(map(own_copy, part))), where) for part in parts]
        for batch, count in zip(batches, rows):
            self._check_rows(batch, count)
        flat = [flatten(batch) for batch in batches]
        leaves = []
        for (path, _), values in zip(flatten_with_paths(batches[0]), zip(*flat, strict=True)):
            specs = [component_spec(value, path or None, where) for value in values]
            shapes = [spec.shape[1:] for spec in specs]
            if len({(type(spec), len(spec.shape)) for spec in specs}) > 1:
                raise SpecError(f"{where} returned {component_name(path)} with different numbers of dimensions.")
            dims = [sizes[0] if len(set(sizes)) == 1 else None for sizes in zip(*shapes)]
            leaves.append(dataclasses.replace(specs[0], shape=(None, *dims)))
        return pack(batches[0], leaves)


class _Loaded:
    """What `load` makes of the records of a dataset. Like a dataset, it may return the same memory for each record."""

    def __init__(self, access: Access, load: Callable[[Any], Any], lock: Any) -> None:
        self._access, self._load, self._lock = access, load, lock

    def __len__(self) -> int:
        return len(self._access)

    def __getitem__(self, number: int) -> Any:
        return self.__getitems__([number])[0]

    def __getitems__(self, numbers: list[int]) -> list[Any]:
        with self._lock:
            fetched = self._access.read(np.array(numbers))
        return [self._load(record) for record in fetched.own_records()]
