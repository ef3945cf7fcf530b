"""What a cache is built from: datasets, generators, sources and arrays, read as blocks of records."""

from __future__ import annotations

import itertools
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any, NamedTuple

import numpy as np

from staging_tf1 import arguments
from staging_tf1.errors import SpecError
from staging_tf1.sources.access import is_a, is_keras_sequence
from staging_tf1.sources.array import ArraySource
from staging_tf1.sources.base import Source, StreamSource, check_parsed
from staging_tf1.sources.coerce import is_nest_of_arrays
from staging_tf1.sources.lengths import Grouping
from staging_tf1.sources.map import MapSource
from staging_tf1.sources.records import RecordSource
from staging_tf1.sources.sequence import SequenceSource
from staging_tf1.sources.stacking import rows_of
from staging_tf1.sources.weighted import Sampling
from staging_tf1.spec import bytes_per_batch, flatten, flatten_with_paths
from staging_tf1.spec.arrays import describe, kind_of

_DATA = (
    "a tf.data.Dataset, a generator function, an iterable of records, a dataset with __len__ and __getitem__, arrays, "
    "or a source"
)
# Records or bytes that are read at once from an input with random access.
_MOST_AT_ONCE, _BYTES_AT_ONCE = 256, 8 << 20


class Block(NamedTuple):
    """A record; or several, stacked.

    `position` is where reading continues after it, if the input has random access; None if it cannot continue here.
    """

    value: Any
    stacked: bool
    position: int | None = None


class ReadOptions(NamedTuple):
    """How to read the data. See `cached`."""

    owner: str
    batched: bool
    limit: int | None
    threads: int
    thread_safe: bool


class CacheInput(NamedTuple):
    """The data of a cache, as blocks.

    Attributes:
      key: what is known without reading it.
      total: how many records there are, or None.
      blocks: reads it from a position. Only an input with random access gets positions other than 0.
      has_random_access: whether its blocks have positions.
    """

    key: dict[str, Any]
    total: int | None
    blocks: Callable[[int], Iterator[Block]]
    has_random_access: bool = False


def input_for(data: Any, options: ReadOptions) -> CacheInput:
    """Find out what the data is. A function is called when the cache is built.

    Raises:
      TypeError, ValueError, SpecError: the data cannot be cached.
    """
    if isinstance(data, Source):
        return _of_source(data, options)
    if isinstance(data, StreamSource):
        return CacheInput({}, None, lambda _: _stream(data.batches(), True))
    if is_a(data, "tensorflow.DatasetV2"):
        return _of_dataset(data, options)
    if isinstance(data, (str, bytes, bytearray, memoryview, type)):
        arguments.refuse(options.owner, "data", data, _DATA)
    if callable(data) and not hasattr(data, "__getitem__"):
        return CacheInput({}, None, lambda _: _called(data, options))
    return _of_object(data, options)


def _of_object(data: Any, options: ReadOptions) -> CacheInput:
    is_table = is_a(data, "pandas.DataFrame", "pandas.Series", "zarr.Group", "zarr.Array", "h5py.Group", "h5py.Dataset")
    if isinstance(data, Mapping):
        is_table = is_table or any(is_a(leaf, "h5py.Dataset", "zarr.Array") for leaf in flatten(data))
    is_arrays = is_table or is_nest_of_arrays(data)
    if options.batched and (is_arrays or is_a(data, "datasets.Dataset")):
        kind = "arrays" if is_arrays else "a datasets.Dataset"
        raise ValueError(f"{options.owner} got batched=True, but {kind} as data, whose rows are records. Leave it out.")
    if is_arrays and not is_table:
        return _of_arrays(data, options)
    if is_a(data, "torch.IterableDataset"):
        # Checked first: it inherits a __getitem__ that raises NotImplementedError, and may have a length.
        return CacheInput({}, None, lambda _: _stream(data, options.batched))
    if is_table or (hasattr(data, "__getitem__") and hasattr(data, "__len__") and not isinstance(data, np.generic)):
        return _of_map_style(data, options)
    if not hasattr(data, "__iter__") or getattr(data, "ndim", 1) == 0:
        arguments.refuse(options.owner, "data", data, _DATA)
    return CacheInput({}, None, lambda _: _stream(data, options.batched))


def _stream(elements: Iterable[Any], stacked: bool) -> Iterator[Block]:
    return (Block(element, stacked) for element in elements)


def _called(function: Callable[[], Any], options: ReadOptions) -> Iterator[Block]:
    data = function()
    if callable(data) or data is None:
        raise TypeError(
            f"{options.owner}: data() returned {kind_of(data)}, expected {_DATA}. If it is a generator, use `yield`."
        )
    # Mostly a generator, but a function may return any kind of data.
    return input_for(data, options).blocks(0)


def _of_dataset(dataset: Any, options: ReadOptions) -> CacheInput:
    # This imports TensorFlow, which a program with such a dataset has imported already.
    from staging_tf1.tf_data import Elements

    elements = Elements(dataset, options.owner)
    if elements.endless and options.limit is None:
        raise ValueError(
            f"{options.owner} got a tf.data.Dataset that never ends: its cardinality is infinite. Remove repeat(), "
            f"because the source repeats its records itself (epochs=), or pass limit=."
        )
    key = {"spec": _spec_text(elements.spec, tuple), "elements": elements.count}

    def blocks(_: int) -> Iterator[Block]:
        for value, stacked in elements.blocks(None if options.batched else options.limit):
            # Each batch of a stack is a block.
            values = rows_of(value) if stacked and options.batched else [value]
            yield from _stream(values, stacked or options.batched)

    return CacheInput(key, None if options.batched else elements.count, blocks)


def _of_arrays(arrays: Any, options: ReadOptions) -> CacheInput:
    source = ArraySource(arrays, batch_size=1)
    total, step = source.num_records, _at_once(bytes_per_batch(source.spec, 1))

    def blocks(start: int) -> Iterator[Block]:
        for first in range(start, total, step):
            end = min(total, first + step)
            yield Block(source.gather(slice(first, end, 1)), True, end)

    key = {"spec": _spec_text(source.spec, lambda shape: shape[1:]), "elements": total}
    return CacheInput(key, total, blocks, True)


def _of_map_style(dataset: Any, options: ReadOptions) -> CacheInput:
    if is_keras_sequence(dataset):
        if not options.batched:
            raise ValueError(f"{options.owner} got {kind_of(dataset)}, whose elements are batches. Pass batched=True.")
        return _of_source(SequenceSource(dataset, thread_safe=options.thread_safe), options)
    source = MapSource(dataset, batch_size=1, threads=options.threads, thread_safe=options.thread_safe)
    if source.num_records == sys.maxsize and options.limit is None:  # as a Grain dataset with repeat() says
        raise ValueError(
            f"{options.owner} got {kind_of(dataset)} that never ends: its length is 2**63 - 1. Pass limit=."
        )
    spec = source.spec
    total = source.num_records

    def blocks(start: int) -> Iterator[Block]:
        strides = _Strides(start, total, options.threads)
        for first, end in strides:
            fetched = source._fetched(np.arange(first, end))
            if fetched.listed is None:
                strides.note(fetched.columns)
                yield Block(fetched.columns, True, end)
                continue
            strides.note(fetched.listed)
            for number, value in enumerate(fetched.listed, first + 1):
                yield Block(value, options.batched, number)

    key = {"spec": _spec_text(spec, _rank), "elements": total}
    return CacheInput(key, None if options.batched else total, blocks, True)


def _of_source(source: Source, options: ReadOptions) -> CacheInput:
    check_parsed(options.owner, source)
    if isinstance(source, RecordSource):
        source = _in_order(source, options)
    elif source.num_batches is None and options.limit is None:
        raise ValueError(f"{options.owner} got {source!r}, which never ends. Pass limit=.")
    if isinstance(source, RecordSource) and _reads_records(source):
        return _of_records(source)

    def blocks(start: int) -> Iterator[Block]:
        numbers = itertools.count(start) if source.num_batches is None else range(start, source.num_batches)
        return (Block(source.batch(number), True, number + 1) for number in numbers if not source.is_left_out(number))

    # With the names of the files, caches that exist would be built again.
    named = {key: value for key, value in source.fingerprint().items() if key not in ("seed", "epochs", "file_list")}
    key = {"source": named, "spec": _spec_text(source.spec, _rank), **_order_key(source)}
    return CacheInput(key, None, blocks, _is_repeatable(source))


def _reads_records(source: RecordSource) -> bool:
    """Whether the records are read one by one, and not in batches that a function makes or changes."""
    transform = source._batching.options.transform
    makes_batches = source._makes_batches or transform is not None or isinstance(source, SequenceSource)
    return not makes_batches and source._batching.shard[1] == 1


def _order_key(source: Source) -> dict[str, int | str]:
    """Return the seed if it decides the order of the records even without a shuffle, as in a mixture."""
    if not isinstance(source, RecordSource) or not source._batching.order_is_random:
        return {}
    # Each process draws another seed. Without a seed any order is acceptable, also that of the cache.
    return {"seed": "drawn" if source.seed_was_drawn else str(source.seed)}


def _is_repeatable(source: Source) -> bool:
    """Whether another process would read the records in the same order."""
    return _order_key(source).get("seed") != "drawn"


def _in_order(source: RecordSource, options: ReadOptions) -> RecordSource:
    """Return the source of the same records, once, in their own order."""
    if source._batching.layout is not None or isinstance(source._batching.arrangement, (Grouping, Sampling)):
        how = "drawn by weights" if isinstance(source._batching.arrangement, Sampling) else "arranged by_length()"
        raise ValueError(
            f"{options.owner} got {source!r}, which is padded, ragged or {how}. Pass the source as it "
            f"was before, and call these methods on the CachedSource."
        )
    if source._batching.wants_rng:
        raise ValueError(
            f"{options.owner} got {source!r} with a transform that draws random numbers, which would be the same in "
            f"each epoch. Pass the transform to {options.owner} instead, and leave it out of the source."
        )
    whole = {} if isinstance(source, SequenceSource) else {"drop_remainder": False, "across_epochs": False}
    return source.with_options(shuffle=False, epochs=1, **whole)  # type: ignore[arg-type]


def _of_records(source: RecordSource) -> CacheInput:
    total = source.num_records

    def blocks(start: int) -> Iterator[Block]:
        strides = _Strides(start, total)
        for first, end in strides:
            # In order, because a mixture has one even without a shuffle.
            records = [record for _, record in source._single_in_order(first, end)]
            strides.note(records)
            # Corrupt records may be left out, so only the end of what was read is a position.
            yield from (Block(record, False) for record in records[:-1])
            yield from (Block(record, False, end) for record in records[-1:])

    key = {"source": source._recipe(), "elements": total, **_order_key(source)}
    return CacheInput(key, total, blocks, _is_repeatable(source))


def _at_once(nbytes: int | None) -> int:
    """Return how many records of `nbytes` to read at once; of strings, whose size is unknown, the most."""
    return _MOST_AT_ONCE if nbytes is None else max(1, min(_MOST_AT_ONCE, _BYTES_AT_ONCE // max(1, nbytes)))


class _Strides:
    """Ranges of record numbers, (first, end): one record at first, and then as many as fit into little memory.

    The first record does not say how large the others are. So each range has at most as many records as all before it,
    and `note` gets what was read.

    >>> list(_Strides(0, 10))
    [(0, 1), (1, 2), (2, 4), (4, 8), (8, 10)]

    Args:
      start, total: the first record, and the number of all.
      least: how many to read at once even if they are large.
    """

    def __init__(self, start: int, total: int, least: int = 1) -> None:
        self._start, self._total, self._least = start, total, least
        self._count, self._most = 0, _MOST_AT_ONCE

    def __iter__(self) -> Iterator[tuple[int, int]]:
        first = self._start
        while first < self._total:
            self._count = max(self._least, min(first - self._start, self._most))
            end = min(self._total, first + self._count)
            yield first, end
            first = end

    def note(self, records: Any) -> None:
        """Note the records of the last range: a list, or a nest of columns."""
        self._most = _at_once(sum(map(_bytes_of, flatten(records))) // self._count)


def _bytes_of(leaf: Any) -> int:
    """Return the size of a leaf. An object of unknown type counts as a number."""
    if isinstance(leaf, (str, bytes)):
        return len(leaf)
    if isinstance(leaf, np.ndarray) and leaf.dtype.hasobject:
        return sum(map(_bytes_of, leaf.flat))
    if isinstance(leaf, (list, tuple)):
        return sum(map(_bytes_of, leaf))
    return int(getattr(leaf, "nbytes", 8))


def _rank(shape: tuple[int | None, ...]) -> tuple[None, ...]:
    """Leave the sizes open: the first record does not say which of them differ."""
    return (None,) * (len(shape) - 1)


def _spec_text(spec: Any, dims_of: Callable[[Any], Any]) -> str:
    """Describe components, with the dimensions that `dims_of` returns for a shape."""
    described = []
    for path, leaf in flatten_with_paths(spec):
        dims = None if leaf.shape is None else dims_of(leaf.shape)
        described.append(f"{path or 'record'}: {describe(leaf.dtype, dims)}")
    if not described:
        raise SpecError("cached() got records without components, expected at least one array.")
    return ", ".join(described)
