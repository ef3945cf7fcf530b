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
from staging_tf1.sources.map import MapSource
from staging_tf1.sources.records import RecordSource
from staging_tf1.sources.sequence import SequenceSource
from staging_tf1.sources.stacking import rows_of
from staging_tf1.sources.weighted import is_sampling
from staging_tf1.spec import flatten, flatten_with_paths
from staging_tf1.spec.arrays import describe, kind_of

_DATA = (
    "a tf.data.Dataset, a generator function, an iterable of records, a dataset with __len__ and __getitem__, arrays, "
    "or a source"
)
# Records or bytes that are read at once from an input with random access.
_MOST_AT_ONCE, _BYTES_AT_ONCE = 256, 8 << 20


class Block(NamedTuple):
    """A record; or several, stacked."""

    value: Any
    stacked: bool


class ReadOptions(NamedTuple):
    """How to read the data. See `cached`."""

    batched: bool
    limit: int | None
    threads: int
    thread_safe: bool


class CacheInput(NamedTuple):
    """The data of a cache.

    Attributes:
      key: what is known without reading it.
      total: how many records there are, or None.
      blocks: reads it.
    """

    key: dict[str, Any]
    total: int | None
    blocks: Callable[[], Iterator[Block]]


def input_for(data: Any, options: ReadOptions) -> CacheInput:
    """Find out what the data is. A function is called when the cache is built.

    Raises:
      TypeError, ValueError, SpecError: the data cannot be cached.
    """
    if isinstance(data, Source):
        return _of_source(data, options)
    if isinstance(data, StreamSource):
        return CacheInput({}, None, lambda: _stream(data.batches(), True))
    if is_a(data, "tensorflow.DatasetV2"):
        return _of_dataset(data, options)
    if isinstance(data, (str, bytes, bytearray, memoryview, type)):
        arguments.refuse("cached()", "data", data, _DATA)
    if callable(data) and not hasattr(data, "__getitem__"):
        return CacheInput({}, None, lambda: _called(data, options))
    return _of_object(data, options)


def _of_object(data: Any, options: ReadOptions) -> CacheInput:
    is_table = is_a(data, "pandas.DataFrame", "pandas.Series", "zarr.Group", "zarr.Array", "h5py.Group", "h5py.Dataset")
    if isinstance(data, Mapping):
        is_table = is_table or any(is_a(leaf, "h5py.Dataset", "zarr.Array") for leaf in flatten(data))
    is_arrays = is_table or is_nest_of_arrays(data)
    if options.batched and (is_arrays or is_a(data, "datasets.Dataset")):
        kind = "arrays" if is_arrays else "a datasets.Dataset"
        raise ValueError(f"cached() got batched=True, but {kind} as data, whose rows are records. Leave it out.")
    if is_arrays and not is_table:
        return _of_arrays(data, options)
    if is_a(data, "torch.IterableDataset"):
        # Checked first: it inherits a __getitem__ that raises NotImplementedError, and may have a length.
        return CacheInput({}, None, lambda: _stream(data, options.batched))
    if is_table or (hasattr(data, "__getitem__") and hasattr(data, "__len__") and not isinstance(data, np.generic)):
        return _of_map_style(data, options)
    if not hasattr(data, "__iter__") or getattr(data, "ndim", 1) == 0:
        arguments.refuse("cached()", "data", data, _DATA)
    return CacheInput({}, None, lambda: _stream(data, options.batched))


def _stream(elements: Iterable[Any], stacked: bool) -> Iterator[Block]:
    return (Block(element, stacked) for element in elements)


def _called(function: Callable[[], Any], options: ReadOptions) -> Iterator[Block]:
    data = function()
    if callable(data) or data is None:
        raise TypeError(
            f"cached(): data() returned {kind_of(data)}, expected {_DATA}. If it is a generator, use `yield`."
        )
    # Mostly a generator, but a function may return any kind of data.
    return input_for(data, options).blocks()


def _of_dataset(dataset: Any, options: ReadOptions) -> CacheInput:
    # This imports TensorFlow, which a program with such a dataset has imported already.
    from staging_tf1.tf_data import Elements

    elements = Elements(dataset, "cached()")
    if elements.endless and options.limit is None:
        raise ValueError(
            "cached() got a tf.data.Dataset that never ends: its cardinality is infinite. Remove repeat(), "
            "because the source repeats its records itself (epochs=), or pass limit=."
        )
    key = {"spec": _spec_text(elements.spec, tuple), "elements": elements.count}

    def blocks() -> Iterator[Block]:
        for value, stacked in elements.blocks(None if options.batched else options.limit):
            # Each batch of a stack is a block.
            values = rows_of(value) if stacked and options.batched else [value]
            yield from _stream(values, stacked or options.batched)

    return CacheInput(key, None if options.batched else elements.count, blocks)


def _of_arrays(arrays: Any, options: ReadOptions) -> CacheInput:
    source = ArraySource(arrays, batch_size=1)
    total = source.num_records

    def read(first: int, end: int) -> list[Block]:
        return [Block(source.gather(slice(first, end, 1)), True)]

    key = {"spec": _spec_text(source.spec, lambda shape: shape[1:]), "elements": total}
    return CacheInput(key, total, lambda: _in_strides(total, read))


def _of_map_style(dataset: Any, options: ReadOptions) -> CacheInput:
    if is_keras_sequence(dataset):
        if not options.batched:
            raise ValueError(f"cached() got {kind_of(dataset)}, whose elements are batches. Pass batched=True.")
        return _of_source(SequenceSource(dataset, thread_safe=options.thread_safe), options)
    source = MapSource(dataset, batch_size=1, threads=options.threads, thread_safe=options.thread_safe)
    if source.num_records == sys.maxsize and options.limit is None:  # as a Grain dataset with repeat() says
        raise ValueError(f"cached() got {kind_of(dataset)} that never ends: its length is 2**63 - 1. Pass limit=.")
    spec, total = source.spec, source.num_records

    def read(first: int, end: int) -> list[Block]:
        fetched = source._fetched(np.arange(first, end))
        if fetched.listed is None:
            return [Block(fetched.columns, True)]
        return [Block(value, options.batched) for value in fetched.listed]

    key = {"spec": _spec_text(spec, _rank), "elements": total}
    return CacheInput(key, None if options.batched else total, lambda: _in_strides(total, read, options.threads))


def _of_source(source: Source, options: ReadOptions) -> CacheInput:
    check_parsed("cached()", source)
    if isinstance(source, RecordSource):
        source = _in_order(source)
    elif source.num_batches is None and options.limit is None:
        raise ValueError(f"cached() got {source!r}, which never ends. Pass limit=.")
    if isinstance(source, RecordSource) and _reads_records(source):
        return _of_records(source)

    def blocks() -> Iterator[Block]:
        numbers = itertools.count() if source.num_batches is None else range(source.num_batches)
        return _stream((source.batch(number) for number in numbers if not source.is_left_out(number)), True)

    # With the names of the files, caches that exist would be built again.
    named = {key: value for key, value in source.fingerprint().items() if key not in ("seed", "epochs", "file_list")}
    key = {"source": named, "spec": _spec_text(source.spec, _rank), **_order_key(source)}
    return CacheInput(key, None, blocks)


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


def _in_order(source: RecordSource) -> RecordSource:
    arrangement = source._batching.arrangement
    # That of a mixture is part of its records.
    if source._batching.layout is not None or (arrangement is not None and arrangement.text):
        how = "drawn by weights" if is_sampling(arrangement) else "arranged by_length()"
        raise ValueError(
            f"cached() got {source!r}, which is padded, ragged or {how}. Pass the source as it was before, and call "
            f"these methods on the CachedSource."
        )
    if source._batching.wants_rng:
        raise ValueError(
            f"cached() got {source!r} with a transform that draws random numbers, which would be the same in each "
            f"epoch. Pass the transform to cached() instead, and leave it out of the source."
        )
    whole = {} if isinstance(source, SequenceSource) else {"drop_remainder": False, "across_epochs": False}
    return source.with_options(shuffle=False, epochs=1, **whole)  # type: ignore[arg-type]


def _of_records(source: RecordSource) -> CacheInput:
    total = source.num_records

    def read(first: int, end: int) -> list[Block]:
        # In order, because a mixture has one even without a shuffle.
        return [Block(record, False) for _, record in source._single_in_order(first, end)]

    key = {"source": source._recipe(), "elements": total, **_order_key(source)}
    return CacheInput(key, total, lambda: _in_strides(total, read))


def _in_strides(total: int, read: Callable[[int, int], list[Block]], least: int = 1) -> Iterator[Block]:
    """Yield the blocks of `read(first, end)`: of `least` records, and then of as many as fit into little memory.

    A record does not say how large the others are. So no more are read at once than all before.

    >>> [block.value for block in _in_strides(10, lambda first, end: [Block((first, end), True)])]
    [(0, 1), (1, 2), (2, 4), (4, 8), (8, 10)]
    """
    first, most = 0, least
    while first < total:
        end = min(total, first + max(least, min(first, most)))
        blocks = read(first, end)
        size = sum(_bytes_of(leaf) for block in blocks for leaf in flatten(block.value))
        most = min(_MOST_AT_ONCE, _BYTES_AT_ONCE * (end - first) // max(1, size))
        first = end
        yield from blocks


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
    described = []
    for path, leaf in flatten_with_paths(spec):
        dims = None if leaf.shape is None else dims_of(leaf.shape)
        described.append(f"{path or 'record'}: {describe(leaf.dtype, dims)}")
    if not described:
        raise SpecError("cached() got records without components, expected at least one array.")
    return ", ".join(described)
