"""Rows of the table in `test_arguments.py`: sources, their files, and helpers."""

from __future__ import annotations

import os
from collections.abc import Iterator
from typing import Any

import numpy as np
from argument_rows import FLAGS, INT32, INT64, NONE, NUMPY_SCALARS, SECS, STRINGS, Row, array, ints
from hostile import HOSTILE

from staging_tf1 import data, legacy, sources, testing
from staging_tf1.arguments import MOST_THREADS


def mapped(**options: Any) -> Any:
    return sources.MapSource(**{"dataset": [1, 2, 3, 4, 5, 6, 7, 8, 9, 10], "batch_size": 2, **options})


def cached(**options: Any) -> Any:
    return sources.cached(**{"data": np.arange(10), "path": "r.cache", "batch_size": 2, **options})


def cache(**options: Any) -> Any:
    if "path" not in options and not os.path.exists("r.cache"):
        cached()
    return sources.CachedSource(**{"path": "r.cache", "batch_size": 2, **options})


def sequence(**options: Any) -> Any:
    return sources.SequenceSource(**{"sequence": [[1, 2]] * 10, **options})


class BareRecords(sources.RecordSource):
    """A minimal record source."""

    def record_spec(self, batch_dim: int | None) -> Any:
        raise AssertionError

    def gather(self, records: Any) -> Any:
        raise AssertionError


class BareSource(sources.Source):
    """A minimal source."""

    spec = batch_size = num_records = batches_per_epoch = num_batches = None  # type: ignore[assignment]

    def batch(self, index: int) -> Any:
        raise AssertionError

    def shard(self, index: int, count: int) -> Any:
        raise AssertionError

    def fingerprint(self) -> Any:
        raise AssertionError


RECORDS = [b"1", b"22", b"333"]


def tf_file(**options: Any) -> Any:
    if "files" not in options and not os.path.exists("r.tfrecord"):
        sources.write_tfrecords(RECORDS, "r.tfrecord")
    return sources.TFRecordSource(**{"files": "r.tfrecord", "batch_size": 2, **options})


def array_file(**options: Any) -> Any:
    if "files" not in options and not os.path.exists("r.array_record"):
        sources.write_array_records(RECORDS, "r.array_record")
    return sources.ArrayRecordSource(**{"files": "r.array_record", "batch_size": 2, **options})


def grain_map() -> Any:
    import grain

    return sources.GrainSource(grain.MapDataset.range(6).batch(2))


def grain_iter() -> Any:
    import grain

    return sources.GrainSource(grain.MapDataset.range(6).batch(2).to_iter_dataset())


def rows_of_sources() -> Iterator[tuple[str, Row]]:
    taken: dict[str, set[str]] = {
        "batch_size": ints(1, INT32),
        "shuffle": FLAGS,
        "seed": NONE | ints(0, INT64),
        "epochs": NONE | ints(1, INT64),
        "shard": {"none", "list"},
        "drop_remainder": FLAGS,
        "across_epochs": FLAGS,
        "transform": NONE,
    }

    def records(**options: Any) -> Any:
        return BareRecords(**{"num_records": 10, "batch_size": 2, **options})

    for make, owner in (
        (array, "ArraySource"),
        (records, "RecordSource"),
        (tf_file, "TFRecordSource"),
        (array_file, "ArrayRecordSource"),
        (mapped, "MapSource"),
        (sequence, "SequenceSource"),
        (cached, "cached"),
        (cache, "CachedSource"),
        (array().with_options, "Composable.with_options"),
    ):
        inherited = {"SequenceSource": ("batch_size", "drop_remainder", "across_epochs")}
        inherited["Composable.with_options"] = ("shard",)
        for argument, takes in taken.items():
            if argument in inherited.get(owner, ()):
                continue
            row = Row(lambda v, make=make, argument=argument: make(**{argument: v}), takes)
            yield f"{owner}({argument})", row
    yield "RecordSource(num_records)", Row(lambda v: records(num_records=v), ints(1, INT64))
    yield (
        "ArraySource(arrays)",
        Row(
            lambda v: array(arrays=v), {"np_1d", "list"}, ("array", "component"), frozenset({"surrogate"}), shows=False
        ),
    )
    for argument in ("batch", "epoch_of", "record_ids"):
        row = Row(lambda v, argument=argument: getattr(array(), argument)(v), ints(0, INT64), ("batch",))
        yield f"RecordSource.{argument}(index)", row
    yield "RecordSource.shard(index)", Row(lambda v: array().shard(v, 4), ints(0, 3))
    yield "RecordSource.shard(count)", Row(lambda v: array().shard(0, v), ints(1, INT64))
    yield "RecordSource.with_seed(seed)", Row(lambda v: array().with_seed(v), ints(0, INT64))
    yield "Source.with_seed(seed)", Row(lambda v: BareSource().with_seed(v), ints(0, INT64))
    yield "Source.batches(start)", Row(lambda v: BareSource().batches(v), ints(0, INT64))

    yield from _rows_of_compositions()

    def generator(**options: Any) -> Any:
        return sources.GeneratorSource(**{"generator_fn": lambda: iter([[1]]), "resume": "skip", **options})

    iterables = {"np_1d", "np_empty", "list", "empty_list", "tuple", "set", "class"}
    yield "GeneratorSource(generator_fn)", Row(lambda v: generator(generator_fn=v), iterables)
    yield "GeneratorSource(spec)", Row(lambda v: generator(spec=v), NONE)
    yield "GeneratorSource.with_spec(spec)", Row(lambda v: generator().with_spec(v), set())
    yield "GeneratorSource(resume)", Row(lambda v: generator(resume=v), set())
    yield "GeneratorSource(name)", Row(lambda v: generator(name=v), NONE | STRINGS)
    yield "GeneratorSource.batches(start)", Row(lambda v: generator().batches(v), ints(0, INT64))
    yield "as_source(value)", Row(sources.as_source, iterables - {"np_1d", "np_empty"}, shows=False)
    yield "GrainSource(dataset)", Row(sources.GrainSource, set())
    yield "GrainMapSource.batch(index)", Row(lambda v: grain_map().batch(v), ints(0, 2), ("batch",))
    yield "GrainMapSource.shard(index)", Row(lambda v: grain_map().shard(v, 3), ints(0, 2))
    yield "GrainMapSource.shard(count)", Row(lambda v: grain_map().shard(0, v), ints(1, INT64))
    yield "GrainIterSource.batches(start)", Row(lambda v: grain_iter().batches(v), ints(0, INT64))
    yield "GrainIterSource.state(position)", Row(lambda v: grain_iter().state(v), set())
    yield "GrainIterSource.restore(position)", Row(lambda v: grain_iter().restore(v, b"{}"), ints(0, INT64))
    yield "GrainIterSource.restore(state)", Row(lambda v: grain_iter().restore(1, v), {"bytes"})


def _rows_of_compositions() -> Iterator[tuple[str, Row]]:
    whole = array()
    yield "Composable.take(count)", Row(lambda v: whole.take(v), ints(1, INT64))
    yield "Composable.skip(count)", Row(lambda v: whole.skip(v), ints(0, 9))
    yield "Composable.select(records)", Row(lambda v: whole.select(v), {"np_1d", "list"}, ("record",), shows=False)
    yield "Composable.split(fraction)", Row(lambda v: whole.split(v, 1), {"fraction"})
    yield "Composable.split(seed)", Row(lambda v: whole.split(0.5, v), ints(0, INT64))
    yield "Composable.split(key)", Row(lambda v: whole.split(0.5, 1, key=v), NONE, shows=False)
    yield "Composable.pad(to)", Row(lambda v: whole.pad(v), NONE | {"dict"} | ints(0, INT32))
    # What does not fit the components is refused with the first record.
    values = {
        kind
        for kind, value in HOSTILE.items()
        if isinstance(value, (int, float, complex, str, bytes, np.generic, dict))
    }
    yield "Composable.pad(value)", Row(lambda v: whole.pad(value=v), values)
    yield "Composable.pad(mask)", Row(lambda v: whole.pad(mask=v), FLAGS)
    yield "RecordSource.packed(length)", Row(lambda v: whole.packed(v, [1] * 10), ints(1, INT32))
    yield "RecordSource.packed(lengths)", Row(lambda v: whole.packed(9, v), set(), shows=False)
    yield "RecordSource.packed(value)", Row(lambda v: whole.packed(9, [1] * 10, value=v), values)
    yield "Composable.ragged(rank)", Row(lambda v: whole.ragged(v), {"dict"} | ints(1, 31))
    yield "Composable.by_length(lengths)", Row(lambda v: whole.by_length(v), set(), shows=False)
    lengths = range(10)
    yield "Composable.by_length(group)", Row(lambda v: whole.by_length(lengths, group=v), NONE | ints(1, INT32))
    yield "Composable.by_length(block)", Row(lambda v: whole.by_length(lengths, block=v), ints(1, INT32))
    for name, values in (("weighted", "weights"), ("balanced", "labels")):
        draw = getattr(whole, name)
        row = Row(lambda v, draw=draw: draw(v), set(), shows=False)
        yield f"Composable.{name}({values})", row
        row = Row(lambda v, draw=draw: draw(lengths, num_records=v), NONE | ints(1, INT64))
        yield f"Composable.{name}(num_records)", row
        row = Row(lambda v, draw=draw: draw(lengths, seed=v), NONE | ints(0, INT64))
        yield f"Composable.{name}(seed)", row
    for function in (sources.concatenate, sources.mix, sources.zip_records):
        yield (
            f"{function.__name__}(sources)",
            Row(lambda v, function=function: function(v), set(), ("source",), shows=False),
        )
    yield "mix(weights)", Row(lambda v: sources.mix([whole, whole], v), NONE | {"list", "np_1d"})
    yield "mix(seed)", Row(lambda v: sources.mix([whole, whole], seed=v), NONE | ints(0, INT64))
    datasets = {"list", "tuple", "np_1d"}
    # The arrays of a value are checked when its batch is delivered.
    for argument in ("flat_values", "nested_row_splits"):
        row = Row(
            lambda v, argument=argument: sources.RaggedValue(
                **{**dict(flat_values=[], nested_row_splits=[0]), argument: v}
            ),
            set(HOSTILE),
        )
        yield f"RaggedValue({argument})", row
    for argument in ("indices", "values", "dense_shape"):
        row = Row(
            lambda v, argument=argument: sources.SparseValue(
                **{**dict(indices=[], values=[], dense_shape=[]), argument: v}
            ),
            set(HOSTILE),
        )
        yield f"SparseValue({argument})", row
    rows = Row(lambda v: sources.RaggedValue.from_rows(v), {"empty_list", "np_empty"}, ("row",), shows=False)
    yield "RaggedValue.from_rows(rows)", rows
    ranks = Row(lambda v: sources.RaggedValue.from_rows([], ragged_rank=v), ints(1, 31))
    yield "RaggedValue.from_rows(ragged_rank)", ranks
    yield "MapSource(dataset)", Row(lambda v: mapped(dataset=v), datasets, ("column", "batch"), shows=False)
    yield "MapSource(load)", Row(lambda v: mapped(load=v), NONE | {"class"})
    yield "MapSource(collate)", Row(lambda v: mapped(collate=v), {"class"})
    yield "MapSource(threads)", Row(lambda v: mapped(threads=v), ints(1, MOST_THREADS))
    yield "MapSource(thread_safe)", Row(lambda v: mapped(thread_safe=v), FLAGS)
    yield "MapSource(skip_bad_records)", Row(lambda v: mapped(skip_bad_records=v), FLAGS)
    ignored = Row(lambda v: mapped(skip_bad_records=True, max_ignored=v), NONE | ints(0, INT64))
    yield "MapSource(max_ignored)", ignored
    yield "SequenceSource(sequence)", Row(lambda v: sequence(sequence=v), {"list", "tuple"}, shows=False)
    yield "SequenceSource(thread_safe)", Row(lambda v: sequence(thread_safe=v), FLAGS)


def rows_of_files() -> Iterator[tuple[str, Row]]:
    for make, owner in ((tf_file, "TFRecordSource"), (array_file, "ArrayRecordSource")):
        yield f"{owner}(files)", Row(lambda v, make=make: make(files=v), set(), ("file",))
        yield f"{owner}(features)", Row(lambda v, make=make: make(features=v), NONE)
        yield f"{owner}(parse_fn)", Row(lambda v, make=make: make(parse_fn=v), {"none", "class"})
        yield f"{owner}(as_uint8)", Row(lambda v, make=make: make(as_uint8=v), FLAGS)
        yield f"{owner}(skip_corrupt)", Row(lambda v, make=make: make(skip_corrupt=v), FLAGS)
        yield f"{owner}(cache_bytes)", Row(lambda v, make=make: make(cache_bytes=v), ints(0, INT64))
    yield "TFRecordSource(verify)", Row(lambda v: tf_file(verify=v), FLAGS)
    yield "TFRecordSource(access)", Row(lambda v: tf_file(access=v), set())
    yield from _rows_of_caches()
    for write in (sources.write_tfrecords, sources.write_array_records):
        name = write.__name__
        arrays = Row(
            lambda v, write=write: write(v, "out"), {"empty_list", "np_empty"}, ("record", "array"), shows=False
        )
        yield f"{name}(arrays)", arrays
        yield f"{name}(out)", Row(lambda v, write=write: write(RECORDS, v), {"digit", "word"})
        shards = Row(lambda v, write=write: write({"x": np.arange(4)}, "out", shards=v), ints(1, 4))
        yield f"{name}(shards)", shards
        yield f"{name}(progress)", Row(lambda v, write=write: write(RECORDS, "out", progress=v), FLAGS)
    yield "load_images(path)", Row(data.load_images, NONE, ("data file",))


def _rows_of_caches() -> Iterator[tuple[str, Row]]:
    elements = {"list", "set", "np_1d"}
    names = ("data", "record", "component", "array")
    yield "cached(data)", Row(lambda v: cached(data=v), elements, names, shows=False)
    yield "cached(path)", Row(lambda v: cached(path=v), {"digit", "word"})
    yield "CachedSource(path)", Row(lambda v: cache(path=v), set())
    yield "cached(batched)", Row(lambda v: cached(data=[[1, 2]], batched=v), FLAGS)
    yield "cached(limit)", Row(lambda v: cached(limit=v), NONE | ints(1, INT64))
    yield "cached(version)", Row(lambda v: cached(version=v), NONE | STRINGS | ints(-INT64, INT64))
    yield "cached(files)", Row(lambda v: cached(files=v), NONE, ("file",))
    yield "cached(if_changed)", Row(lambda v: cached(if_changed=v), set())
    yield "cached(threads)", Row(lambda v: cached(threads=v), ints(1, MOST_THREADS))
    yield "cached(thread_safe)", Row(lambda v: cached(thread_safe=v), FLAGS)
    yield "cached(progress)", Row(lambda v: cached(progress=v), FLAGS)


def rows_of_helpers() -> Iterator[tuple[str, Row]]:
    lengths = ints(0, 2**31) | {"list", "empty_list"}
    yield "aligned_empty(shape)", Row(lambda v: sources.aligned_empty(v, np.uint8), lengths)
    # As in np.dtype(), values with a dtype attribute and classes are accepted.
    kinds = NUMPY_SCALARS | {"none", "empty_list", "datetime", "class"}
    dtypes = Row(lambda v: sources.aligned_empty(3, v), kinds)
    yield "aligned_empty(dtype)", dtypes
    row_dtypes = Row(lambda v: sources.RaggedValue.from_rows([], dtype=v), kinds)
    yield "RaggedValue.from_rows(dtype)", row_dtypes
    most = ints(1, 2**20)
    finite = array(epochs=1)
    for function in (testing.assert_resumes_everywhere, testing.assert_deterministic, testing.assert_shards_partition):
        arguments = () if function is not testing.assert_shards_partition else (2,)
        row = Row(lambda v, function=function, arguments=arguments: function(v, *arguments), set())
        yield f"{function.__name__}(source)", row
    batches = Row(lambda v: testing.assert_resumes_everywhere(finite, max_batches=v), most)
    yield "assert_resumes_everywhere(max_batches)", batches
    yield "assert_deterministic(max_batches)", Row(lambda v: testing.assert_deterministic(finite, max_batches=v), most)
    threads = Row(lambda v: testing.assert_deterministic(finite, threads=v), ints(1, MOST_THREADS))
    yield "assert_deterministic(threads)", threads
    yield (
        "assert_shards_partition(n)",
        Row(lambda v: testing.assert_shards_partition(finite, v), ints(1, 10), ("shard",)),
    )
    # Valid values start processes: see test_testing.py.
    works, at_once = testing.assert_works_in_processes, frozenset(ints(1, MOST_THREADS))
    yield "assert_works_in_processes(source)", Row(works, set())
    for argument, valid in {
        "processes": at_once,
        "max_batches": frozenset(most),
        "allow_tensorflow": frozenset(FLAGS),
    }.items():
        row = Row(lambda v, argument=argument: works(finite, **{argument: v}), set(), untried=valid)
        yield f"assert_works_in_processes({argument})", row
    installed = frozenset({"empty_list", "np_empty"})
    yield "install(packages)", Row(lambda v: legacy.install(packages=v), set(), untried=installed)
    valid = frozenset(SECS | NONE)
    yield "install(stall_secs)", Row(lambda v: legacy.install(stall_secs=v), set(), untried=valid)
    yield "install(only)", Row(lambda v: legacy.install(only=v), set(), untried=installed)
    for argument in ("claim_version", "old_names"):
        row = Row(lambda v, argument=argument: legacy.install(**{argument: v}), set(), untried=frozenset(FLAGS))
        yield f"install({argument})", row
