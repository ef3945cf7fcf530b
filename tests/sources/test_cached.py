"""sources.cached: any dataset becomes a source with random access, with its structure, dtypes, shapes and values."""

from __future__ import annotations

import collections
import itertools
import os
import tracemalloc
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import pytest
import tensorflow as tf2
import tensorflow.compat.v1 as tf

from staging_tf1 import testing
from staging_tf1.errors import RecordFileError, SpecError
from staging_tf1.sources import (
    ArraySource,
    CachedSource,
    GeneratorSource,
    MapSource,
    SequenceSource,
    cached,
    concatenate,
    mix,
    zip_records,
)
from staging_tf1.sources.records import RecordSource
from staging_tf1.spec import flatten, flatten_with_paths
from staging_tf1.tf_data import Elements

Renamed = collections.namedtuple("Renamed", ["a", "class"], rename=True)  # type: ignore[misc]
Point = collections.namedtuple("Point", ["x", "y"])


def record(i: int) -> Any:
    """A record with every kind of structure and dtype, all of the same sizes."""
    return {
        "b": Point(np.float16(i), (i, [np.full((2, 3), i, np.uint8)])),
        "a": {"flag": i % 2 == 0, "text": f"record {i}", "raw": b"\0" + bytes([i % 256]) + b"\0"},
        "words": [b"x" * (i % 3), "\u00e9"],
        "bfloat": np.full(2, i, ml_dtypes.bfloat16),
        "complex": np.complex64(1j * i),
        "nothing": np.zeros((0, 4), np.float32),
        "big": np.arange(3, dtype=">i4") + i,
    }


def uneven(i: int) -> Any:
    """A record whose sizes differ."""
    return {
        "n": i,
        "tokens": np.arange(i % 4),
        "image": np.full((1 + i % 2, 2, 1), i, ml_dtypes.bfloat16),
        "words": np.array(["w" * i] * (i % 3), object),
    }


def records(make: Callable[[int], Any] = record, count: int = 23) -> Callable[[], Iterator[Any]]:
    return lambda: (make(i) for i in range(count))


def same(got: Any, wanted: Any) -> None:
    found, expected = flatten_with_paths(got), flatten_with_paths(wanted)
    assert [path for path, _ in found] == [path for path, _ in expected]
    for (path, array), (_, expected_array) in zip(found, expected):
        assert array.dtype == expected_array.dtype and array.shape == expected_array.shape, path
        assert array.tolist() == expected_array.tolist(), path


OPTIONS: dict[str, Any] = dict(batch_size=4, epochs=2, shuffle=True, seed=1)


def test_a_cache_has_the_records_of_its_data(tmp_path: Path) -> None:
    source = cached(records(), tmp_path / "cache", **OPTIONS)
    wanted = MapSource([record(i) for i in range(23)], **OPTIONS)
    assert source.spec == wanted.spec
    for k in range(source.num_batches or 0):
        same(source.batch(k), wanted.batch(k))
    testing.assert_resumes_everywhere(source)
    testing.assert_deterministic(source)
    testing.assert_shards_partition(source, 3)
    assert list(source.batch(0)) == list(record(0)), "the order of the keys"
    assert type(source.batch(0)["b"]).__name__ == "Point" and source.batch(0)["b"]._fields == ("x", "y")
    assert isinstance(source.batch(0)["b"].y[1], list)


def test_records_may_differ_in_size(tmp_path: Path) -> None:
    source = cached(records(uneven), tmp_path / "cache", **OPTIONS)
    wanted = MapSource([uneven(i) for i in range(23)], **OPTIONS)
    for pad in ({}, {"to": {"image": (2, 2, 1), "tokens": 5, "words": None}}):
        assert source.pad(**pad).spec == wanted.pad(**pad).spec
        for k in range(source.num_batches or 0):
            same(source.pad(**pad).batch(k), wanted.pad(**pad).batch(k))
    message = r"^CachedSource: record \d+: the cache returned component '\w+' as .*must have the same dtype and shape"
    with pytest.raises(SpecError, match=message):
        source.batch(0)


@pytest.mark.parametrize("first", [0, 1, 22])
def test_the_sizes_may_differ_from_any_record_on(tmp_path: Path, first: int) -> None:
    data = [np.full((2, 3) if i < first else (1, 3), i) for i in range(23)]
    source = cached(data, tmp_path / "cache", batch_size=23, epochs=1).pad(to=(None, None))
    same(source.batch(0), MapSource(data, batch_size=23).pad(to=(None, None)).batch(0))


def _stream(values: list[Any]) -> Any:
    return (value for value in values)


# What may be cached, made from the records of `plain`, and the arguments that it needs.
PLAIN = {
    "x": np.arange(14.0, dtype=np.float32).reshape(7, 2),
    "y": np.arange(7),
    "s": np.array(list("abcdefg"), object),
}
ROWS = [{name: column[i] for name, column in PLAIN.items()} for i in range(7)]
BATCHES = [{name: column[i : i + 3] for name, column in PLAIN.items()} for i in range(0, 7, 3)]


class Rows:
    def __len__(self) -> int:
        return 7

    def __getitem__(self, i: int) -> Any:
        return ROWS[i]


class Sequence:
    __module__ = "keras.utils"  # that of the real one, which takes seconds to import

    def __len__(self) -> int:
        return 3

    def __getitem__(self, k: int) -> Any:
        return BATCHES[k]


class IterableDataset:
    __module__ = "torch.utils.data.dataset"  # as torch's, which has __getitem__ of its base class, too

    def __len__(self) -> int:
        return 7

    def __getitem__(self, i: int) -> Any:
        raise NotImplementedError

    def __iter__(self) -> Iterator[Any]:
        return iter(ROWS)


KINDS: dict[str, Callable[[], tuple[Any, dict[str, Any]]]] = {
    "generator function": lambda: (lambda: _stream(ROWS), {}),
    "generator": lambda: (_stream(ROWS), {}),
    "iterator of batches": lambda: (iter(BATCHES), {"batched": True}),
    "list of records": lambda: (ROWS, {}),
    "list of batches": lambda: (BATCHES, {"batched": True}),
    "map-style": lambda: (Rows(), {}),
    "map-style, threads": lambda: (Rows(), {"threads": 3}),
    "map-style, under a lock": lambda: (Rows(), {"threads": 2, "thread_safe": False}),
    "IterableDataset with a length": lambda: (IterableDataset(), {}),
    "Keras Sequence": lambda: (Sequence(), {"batched": True}),
    "arrays": lambda: (PLAIN, {}),
    "function of a dataset": lambda: (lambda: tf2.data.Dataset.from_tensor_slices(PLAIN), {}),
    "function of arrays": lambda: (lambda: PLAIN, {}),
    "ArraySource": lambda: (ArraySource(PLAIN, batch_size=2, shuffle=True), {}),
    "concatenation": lambda: (
        concatenate([ArraySource(PLAIN, batch_size=2).take(3), ArraySource(PLAIN, batch_size=2).skip(3)]),
        {},
    ),
    "MapSource": lambda: (MapSource(Rows(), batch_size=2, epochs=3, drop_remainder=True), {}),
    "SequenceSource": lambda: (SequenceSource(BATCHES), {"batched": True}),
    "GeneratorSource": lambda: (GeneratorSource(lambda: _stream(BATCHES)), {}),
    "tf.data": lambda: (tf2.data.Dataset.from_tensor_slices(PLAIN), {}),
    "tf.data of batches": lambda: (tf2.data.Dataset.from_tensor_slices(PLAIN).batch(3), {"batched": True}),
    "tf.data, too long": lambda: (tf2.data.Dataset.from_tensor_slices(PLAIN).repeat(), {"limit": 7}),
    "endless generator": lambda: (lambda: itertools.cycle(ROWS), {"limit": 7}),
    "endless batches": lambda: (lambda: itertools.cycle(BATCHES), {"limit": 7, "batched": True}),
}


@pytest.mark.parametrize("kind", [*KINDS, *(f"{kind} in a graph" for kind in KINDS if "data" in kind)])
def test_every_kind_of_data_gives_the_same_cache(kind: str, tmp_path: Path, request: pytest.FixtureRequest) -> None:
    if kind.endswith("in a graph"):
        request.getfixturevalue("graph")
    data, options = KINDS[kind.removesuffix(" in a graph")]()
    source = cached(data, tmp_path / "cache", batch_size=7, drop_remainder=True, **options)
    wanted = ArraySource(PLAIN, batch_size=7, drop_remainder=True)
    assert source.spec == wanted.spec
    same(source.batch(0), wanted.batch(0))
    assert sorted(os.listdir(tmp_path)) == ["cache"], "nothing is left beside it"


def test_a_transform_of_a_source_is_applied_before_and_that_of_the_cache_behind(tmp_path: Path) -> None:
    inner = ArraySource(np.arange(10), batch_size=4, transform=lambda batch: batch * 2)
    calls: list[Any] = []

    def augment(batch: Any, rng: np.random.Generator) -> Any:
        calls.append(batch)
        return batch + rng.integers(1, 1000)

    source = cached(inner, tmp_path / "cache", batch_size=10, epochs=2, transform=augment, seed=1)
    first, second = source.batch(0), source.batch(1)
    assert [each.tolist() for each in calls] == [list(range(0, 20, 2))] * 2
    assert first.tolist() != second.tolist(), "each epoch is augmented anew"


def test_the_columns_are_plain_files_of_numpy(tmp_path: Path) -> None:
    cached(PLAIN, tmp_path / "cache", batch_size=1)
    column = np.load(tmp_path / "cache" / "001-x.npy", mmap_mode="r", allow_pickle=False)
    assert column.tolist() == PLAIN["x"].tolist() and column.dtype == np.float32
    assert column.offset == 4096, "records of whole pages begin at a page"


def test_the_data_is_not_read_again(tmp_path: Path) -> None:
    read: list[int] = []

    class Noting(Rows):
        def __getitem__(self, i: int) -> Any:
            read.append(i)
            return i

    def once() -> Iterator[int]:
        yield from map(Noting().__getitem__, range(5))

    for expected in (list(range(5)), []):
        cached(once, tmp_path / "a" / "b" / "cache", batch_size=5)
        assert read == expected
        read.clear()
    assert CachedSource(tmp_path / "a/b/cache", batch_size=5).batch(0).tolist() == [0, 1, 2, 3, 4]
    cached(Noting(), tmp_path / "cache", batch_size=1)
    read.clear()
    cached(Noting(), tmp_path / "cache", batch_size=1)
    assert read == [0], "to learn the components"


def test_checkpoints_tell_caches_with_other_records_apart(tmp_path: Path) -> None:
    first, other = (cached([i, 2], tmp_path / str(i), batch_size=1).fingerprint() for i in (1, 5))
    assert first != other
    assert cached([1, 2], tmp_path / "same", batch_size=1).fingerprint() == first


def test_huge_records_and_odd_names(tmp_path: Path) -> None:
    name = "\u00fc\u4e16" * 40 + "x" * 45
    assert len(name.encode()) == 245, "the longest"
    data = [{"\u00e9\u4e16 /.." + "y" * 300: np.full(3_000_000, i, np.int32)} for i in range(3)]
    source = cached(data, tmp_path / name, batch_size=1, epochs=1)
    assert [int(flatten(source.batch(k))[0].sum()) for k in range(3)] == [0, 3_000_000, 6_000_000]
    assert os.listdir(tmp_path) == [name]
    batch = cached([{np.str_("x"): 1}], tmp_path / "numpy", batch_size=1).batch(0)
    assert batch == {"x": [1]} and type(next(iter(batch))) is str


def test_a_generator_may_reuse_its_buffer(tmp_path: Path) -> None:
    def reusing() -> Iterator[Any]:
        buffer = np.zeros(3)
        for i in range(5):
            buffer[:] = i
            yield buffer

    assert cached(reusing, tmp_path / "cache", batch_size=5).batch(0)[:, 0].tolist() == [0, 1, 2, 3, 4]


# Other sources: a cache has the rows of the source's batches, for one epoch without a shuffle.

ONCE: dict[str, Any] = dict(batch_size=4, epochs=1)
READ: dict[str, Any] = dict(batch_size=1000, epochs=1, progress=False)


def arrays(start: int, count: int) -> RecordSource:
    return ArraySource(np.arange(start, start + count), **ONCE)


def mixture(seed: int | None = 3) -> RecordSource:
    return mix([arrays(0, 12), arrays(100, 5)], weights=[0.5, 0.5], seed=seed)


def collated(start: int = 0) -> RecordSource:
    """Its rows depend on the number of records in their batch."""
    data = list(range(start, start + 10))
    return MapSource(data, collate=lambda records: np.array(records) * 10 + len(records), **ONCE)


SOURCES: dict[str, Callable[[], Any]] = {
    "split": lambda: arrays(0, 10).split(0.6, seed=1)[0],
    "shard": lambda: arrays(0, 10).shard(1, 3),
    "transform": lambda: arrays(0, 10).with_options(transform=lambda batch: batch * 2),
    "concatenation": lambda: concatenate([arrays(0, 5), arrays(100, 6)]),
    "zipped": lambda: zip_records((arrays(0, 9), arrays(100, 9))),
    "collate": collated,
    "shard of collate": lambda: collated().shard(1, 3),
    "zipped with collate": lambda: zip_records((arrays(0, 10), collated())),
    "mixture with collate": lambda: mix([arrays(0, 10), collated()], seed=1),
    "mixture": mixture,
    "shard of a mixture": lambda: mixture().shard(1, 2),
    "mixture with a transform": lambda: mixture().with_options(transform=lambda batch: batch * 2),
}


@pytest.mark.parametrize("kind", SOURCES)
def test_a_cache_has_the_rows_of_the_batches(kind: str, tmp_path: Path) -> None:
    source = SOURCES[kind]()
    batches = [source.batch(k) for k in range(source.num_batches)]
    wanted = np.concatenate([np.stack(b, 1) if isinstance(b, tuple) else b for b in batches]).tolist()
    found = cached(source, tmp_path / "cache", **READ).batch(0)
    assert (np.stack(found, 1) if isinstance(found, tuple) else found).tolist() == wanted


@pytest.mark.parametrize("transform", [None, lambda batch: batch + 0], ids=["records", "batches"])
def test_another_seed_of_a_mixture_is_a_change(tmp_path: Path, transform: Any) -> None:
    options: dict[str, Any] = {**READ, "if_changed": "error"}
    cached(mixture(1).with_options(transform=transform), tmp_path / "cache", **options)
    cached(mixture(1).with_options(transform=transform), tmp_path / "cache", **options)
    with pytest.raises(RecordFileError, match=r"is out of date: seed: 1 in the cache, 2 now"):
        cached(mixture(2).with_options(transform=transform), tmp_path / "cache", **options)
    cached(arrays(0, 9).with_options(seed=1), tmp_path / "other", **options)
    cached(arrays(0, 9).with_options(seed=2), tmp_path / "other", **options)


def test_a_seed_that_a_mixture_drew_is_no_change(tmp_path: Path) -> None:
    path = tmp_path / "cache"
    rows = [cached(mixture(None), path, **{**READ, "if_changed": "error"}).batch(0).tolist() for _ in range(2)]
    assert rows[0] == rows[1]


# Memory: of large records, few are in memory at the same time.


def test_memory_stays_the_same_while_a_cache_is_built_and_read(tmp_path: Path) -> None:
    def batches() -> Iterator[Any]:
        for i in range(40):
            yield {"x": np.full((100, 2500), i, np.float32), "text": [b"abc"] * 100}

    tracemalloc.start()
    try:
        source = cached(batches, tmp_path / "cache", batch_size=100, batched=True, shuffle=True, epochs=1)
        for batch in source.batches():
            del batch
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert source.num_records == 4000
    assert peak < 8 << 20, "the records have 40 MB"


class Dataset:
    """A dataset that notes how many records it was asked for at once."""

    def __init__(self, count: int, size_of: Callable[[int], int]) -> None:
        self.count, self.size_of, self.asked = count, size_of, list[int]()

    def __len__(self) -> int:
        return self.count

    def __getitem__(self, i: int) -> Any:
        return {"text": b"x" * self.size_of(i), "tokens": np.zeros(self.size_of(i), np.uint8)}

    def __getitems__(self, numbers: list[int]) -> list[Any]:
        self.asked.append(len(numbers))
        return [self[i] for i in numbers]


WAYS: dict[str, Callable[[Dataset], Any]] = {
    "map-style": lambda data: data,
    "source": lambda data: MapSource(data, batch_size=2, epochs=1),
}


@pytest.mark.parametrize("way", WAYS)
def test_few_large_records_are_read_at_once(way: str, tmp_path: Path) -> None:
    large = Dataset(20, lambda i: 1 << 20 if i else 1)
    cached(WAYS[way](large), tmp_path / "large", **READ)
    # Two components of 1 MiB: 8 MiB are 4 records.
    assert max(large.asked) <= 4
    small = Dataset(600, lambda i: 1)
    cached(WAYS[way](small), tmp_path / "small", **READ)
    assert max(small.asked) == 256


# Datasets of tf.data.


def test_few_strings_of_a_dataset_are_fetched_at_once() -> None:
    def most(value: Any) -> int:
        elements = Elements(tf2.data.Dataset.from_tensors(value).repeat(300), "cached()")
        return max(len(batch) for batch, _ in elements.blocks(None))

    assert most("text") <= 8 and most(1) == 256


def test_a_dataset_of_a_graph_is_read_without_a_trace_in_the_graph(tmp_path: Path) -> None:
    with tf.Graph().as_default() as graph:
        # No CPU of this process has this name.
        with tf.device("/job:worker/task:7/cpu:0"):
            initializer = tf.lookup.KeyValueTensorInitializer(np.arange(5), np.arange(5) * 10)
            table = tf.lookup.StaticHashTable(initializer, -1)
            dataset = tf2.data.Dataset.range(5).map(
                lambda x: table.lookup(x) + tf.ensure_shape(tf.numpy_function(lambda v: v + 1, [x], tf.int64), [])
            )
        graph.finalize()
        before = graph.as_graph_def().SerializeToString(deterministic=True)
        assert cached(dataset, tmp_path / "cache", batch_size=5).batch(0).tolist() == [1, 12, 23, 34, 45]
        assert graph.as_graph_def().SerializeToString(deterministic=True) == before


def test_an_eager_dataset_is_read_within_a_graph(tmp_path: Path) -> None:
    variable = tf2.Variable(3, dtype=tf.int64)
    dataset = tf2.data.Dataset.range(5).map(lambda x: x + variable)
    with tf.Graph().as_default() as graph:
        assert cached(dataset, tmp_path / "cache", batch_size=5).batch(0).tolist() == [3, 4, 5, 6, 7]
        assert not tf.executing_eagerly() and graph.get_operations() == []


def test_dimensions_that_a_dataset_leaves_open_may_differ(tmp_path: Path, graph: Any) -> None:
    dataset = tf2.data.Dataset.range(1, 6).map(tf.range)
    source = cached(dataset, tmp_path / "cache", batch_size=5).pad()
    assert source.batch(0).tolist() == [[*range(n), *[0] * (5 - n)] for n in range(1, 6)]


def _of_variable() -> Any:
    variable = tf.get_variable("state", initializer=tf.constant(3, tf.int64))
    return tf2.data.Dataset.range(5).map(lambda x: x + variable)


def _of_placeholder() -> Any:
    return tf2.data.Dataset.from_tensor_slices(tf.placeholder(tf.int64, [None], name="given"))


class Endless:
    def __len__(self) -> int:
        return 2**63 - 1

    def __getitem__(self, i: int) -> int:
        return i


def _padded() -> Any:
    return MapSource([[1], [2, 3]], batch_size=1).pad()


def _random() -> Any:
    return ArraySource(np.arange(3), batch_size=1, transform=lambda batch, rng: batch)


def _ragged() -> Any:
    return tf2.data.Dataset.from_tensors({"x": tf.ragged.constant([[1], []])})


def _empty_list_at_first() -> Any:
    return iter([{"ids": []}, {"ids": [2**60 + 1, 7]}])


def _odd_dtype() -> Any:
    return iter([np.zeros(2), np.zeros(2, int)])


def _odd_rank() -> Any:
    return iter([{"x": np.zeros(2)}, {"x": np.zeros((2, 1))}])


# The data, the error and its message.
REFUSED: dict[str, tuple[Callable[[], Any], type[Exception], str]] = {
    "endless dataset": (lambda: tf2.data.Dataset.range(5).repeat(), ValueError, r"never ends.*pass limit="),
    "endless length": (Endless, ValueError, r"that never ends: its length is 2\*\*63 - 1\. Pass limit="),
    "variable": (_of_variable, SpecError, r"the variable 'state', whose value belongs to a session\. Build"),
    "placeholder": (_of_placeholder, SpecError, r"the placeholder 'given', whose value belongs to a session"),
    "ragged": (_ragged, SpecError, r"component 'x' of the dataset is a RaggedTensor, expected a tensor\. Make it dens"),
    "empty dataset": (lambda: tf2.data.Dataset.range(0), SpecError, r"got no records, expected at least one"),
    "empty generator": (lambda: lambda: iter([]), SpecError, r"got no records, expected at least one"),
    "empty list": (list, SpecError, r"without records, expected at least one"),
    "class": (lambda: Rows, TypeError, r"cached\(\) got data=.*, expected a tf.data.Dataset"),
    "function of nothing": (lambda: lambda: None, TypeError, r"data\(\) returned a NoneType.*use `yield`"),
    "None as a record": (lambda: iter([1, None]), SpecError, r"record 1 is None, expected"),
    "objects": (lambda: iter([object()]), SpecError, r"record 0: .*got an object, expected an array"),
    "other keys": (lambda: iter([{"x": 1}, {"y": 1}]), SpecError, r"record 1: the batch lacks the key 'x'.*must have"),
    "other dtype": (_odd_dtype, SpecError, r"record 1: the batch is int64 \[2\], but float64 \[2\] in record 0\. All"),
    "other rank": (_odd_rank, SpecError, r"record 1: component 'x' is float64 \[2, 1\], but float64 \[2\] in record 0"),
    "Keras Sequence": (Sequence, ValueError, r"whose elements are batches\. Pass batched=True"),
    "random transform": (_random, ValueError, r"draws random numbers, .*Pass the transform to cached\(\) instead"),
    "padded source": (_padded, ValueError, r"padded, ragged or arranged by_length\(\)\. .*call these methods on the C"),
    "empty list at first": (_empty_list_at_first, SpecError, r"record 0: component 'ids' is an empty list, which has"),
    "renamed fields": (lambda: iter([Renamed(1, 2)]), SpecError, r"the namedtuple 'Renamed', .*: Field names cannot s"),
    "odd key": (lambda: iter([{1.5: 1}]), SpecError, r"got the key 1.5 in a dict of components, expected a string"),
}
REFUSED_BATCHES: dict[str, tuple[Callable[[], Any], type[Exception], str]] = {
    "empty batches": (lambda: iter([np.zeros((0, 2))]), SpecError, r"got no records"),
    "records": (lambda: iter([1, 2]), SpecError, r"one value, expected a batch with one"),
    "uneven": (lambda: iter([(np.zeros(2), np.zeros(3))]), SpecError, r"components of a batch have \[2, 3\] rows"),
    "arrays": (lambda: PLAIN, ValueError, r"batched=True, but arrays as data, whose rows are records\. Leave it out"),
}
ALL_REFUSED = [(*row, {}) for row in REFUSED.values()] + [(*row, {"batched": True}) for row in REFUSED_BATCHES.values()]


@pytest.mark.parametrize(("make", "error", "message", "options"), ALL_REFUSED, ids=[*REFUSED, *REFUSED_BATCHES])
def test_what_cannot_be_cached_is_refused_and_leaves_nothing(
    make: Callable[[], Any], error: type[Exception], message: str, options: Any, tmp_path: Path, graph: Any
) -> None:
    with pytest.raises(error, match=message):
        cached(make(), tmp_path / "cache", batch_size=1, **options)
    assert os.listdir(tmp_path) == []
