"""Rows of the table in `test_arguments.py`: sources, their files, and helpers."""

from __future__ import annotations

import os
from collections.abc import Iterator
from functools import partial
from typing import Any

import numpy as np
from argument_rows import FLAGS, INT32, INT64, NONE, NUMPY_SCALARS, SECS, STRINGS, Row, array, ints, rows, untried_rows
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

    for make, owner, inherited in (
        (array, "ArraySource", ()),
        (records, "RecordSource", ()),
        (tf_file, "TFRecordSource", ()),
        (array_file, "ArrayRecordSource", ()),
        (mapped, "MapSource", ()),
        (sequence, "SequenceSource", ("batch_size", "drop_remainder", "across_epochs")),
        (cached, "cached", ()),
        (cache, "CachedSource", ()),
        (array().with_options, "Composable.with_options", ("shard",)),
    ):
        yield from rows(owner, make, {name: takes for name, takes in taken.items() if name not in inherited})
    yield from rows("RecordSource", records, {"num_records": ints(1, INT64)})
    arrays = {"arrays": {"np_1d", "list"}}
    untried = frozenset({"surrogate"})
    yield from rows("ArraySource", array, arrays, "array", "component", untried=untried, shows=False)
    whole = array()
    for method in (whole.batch, whole.epoch_of, whole.record_ids, whole.is_left_out):
        yield from rows(f"RecordSource.{method.__name__}", method, {"index": ints(0, INT64)}, "batch")
    yield "RecordSource.shard(index)", Row(lambda v: array().shard(v, 4), ints(0, 3))
    yield "RecordSource.shard(count)", Row(lambda v: array().shard(0, v), ints(1, INT64))
    for owner, source in (("RecordSource", whole), ("Source", BareSource())):
        yield from rows(f"{owner}.with_seed", source.with_seed, {"seed": ints(0, INT64)})
    # A source that leaves out nothing does not look at the number.
    yield "Source.is_left_out(index)", Row(lambda v: BareSource().is_left_out(v), {*HOSTILE})
    yield "Source.batches(start)", Row(lambda v: BareSource().batches(v), ints(0, INT64))

    yield from _rows_of_compositions()

    def generator(**options: Any) -> Any:
        return sources.GeneratorSource(**{"generator_fn": lambda: iter([[1]]), "resume": "skip", **options})

    iterables = {"np_1d", "np_empty", "list", "empty_list", "tuple", "set", "class"}
    taken = {"generator_fn": iterables, "spec": NONE, "resume": set(), "name": NONE | STRINGS}
    yield from rows("GeneratorSource", generator, taken)
    yield "GeneratorSource.with_spec(spec)", Row(lambda v: generator().with_spec(v), set())
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
    numbers = {"np_1d", "np_empty", "list", "empty_list", "set"}
    yield "Composable.without(records)", Row(lambda v: whole.without(v), numbers, shows=False)
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
        yield from rows(f"Composable.{name}", draw, {values: set()}, shows=False)
        options = {"num_records": NONE | ints(1, INT64), "seed": NONE | ints(0, INT64)}
        yield from rows(f"Composable.{name}", partial(draw, lengths), options)
    for function in (sources.concatenate, sources.mix, sources.zip_records):
        yield (
            f"{function.__name__}(sources)",
            Row(lambda v, function=function: function(v), set(), ("source",), shows=False),
        )
    yield "mix(weights)", Row(lambda v: sources.mix([whole, whole], v), NONE | {"list", "np_1d"})
    yield "mix(seed)", Row(lambda v: sources.mix([whole, whole], seed=v), NONE | ints(0, INT64))
    # The arrays of a value are checked when its batch is delivered.
    ragged, sparse = dict(flat_values=[], nested_row_splits=[0]), dict(indices=[], values=[], dense_shape=[])
    for kind, given in ((sources.RaggedValue, ragged), (sources.SparseValue, sparse)):
        yield from rows(kind.__name__, partial(kind, **given), {name: {*HOSTILE} for name in given})
    rows_of = Row(lambda v: sources.RaggedValue.from_rows(v), {"empty_list", "np_empty"}, ("row",), shows=False)
    yield "RaggedValue.from_rows(rows)", rows_of
    ranks = Row(lambda v: sources.RaggedValue.from_rows([], ragged_rank=v), ints(1, 31))
    yield "RaggedValue.from_rows(ragged_rank)", ranks
    yield from rows("MapSource", mapped, {"dataset": {"list", "tuple", "np_1d"}}, "column", "batch", shows=False)
    taken = {
        "load": NONE | {"class"},
        "collate": {"class"},
        "threads": ints(1, MOST_THREADS),
        "thread_safe": FLAGS,
        "skip_bad_records": FLAGS,
    }
    yield from rows("MapSource", mapped, taken)
    yield from rows("MapSource", partial(mapped, skip_bad_records=True), {"max_ignored": NONE | ints(0, INT64)})
    yield from rows("SequenceSource", sequence, {"sequence": {"list", "tuple"}}, shows=False)
    yield from rows("SequenceSource", sequence, {"thread_safe": FLAGS})


def rows_of_files() -> Iterator[tuple[str, Row]]:
    for make, owner in ((tf_file, "TFRecordSource"), (array_file, "ArrayRecordSource")):
        yield from rows(owner, make, {"files": set()}, "file")
        taken = {
            "features": NONE,
            "parse_fn": {"none", "class"},
            "as_uint8": FLAGS,
            "skip_corrupt": FLAGS,
            "cache_bytes": ints(0, INT64),
        }
        yield from rows(owner, make, taken)
        yield from rows(owner, make, {"local_cache": NONE | {"digit", "word"}})
        limited = partial(make, local_cache="r.copies")
        yield from rows(owner, limited, {"local_cache_bytes": NONE | ints(0, INT64)})
        yield from rows(owner, make, {"timeout_secs": NONE | SECS - {"zero"}})
        yield from rows(owner, partial(make, parse_fn=len), {"skip_bad_records": FLAGS})
        skipping = partial(make, parse_fn=len, skip_bad_records=True)
        yield from rows(owner, skipping, {"max_ignored": NONE | ints(0, INT64)})
    yield from rows("TFRecordSource", tf_file, {"verify": FLAGS, "access": set()})
    yield from _rows_of_caches()
    for write in (sources.write_tfrecords, sources.write_array_records):
        name, to_out = write.__name__, partial(write, out="out")
        yield from rows(name, to_out, {"arrays": {"empty_list", "np_empty"}}, "record", "array", shows=False)
        yield from rows(name, partial(write, RECORDS), {"out": {"digit", "word"}})
        yield from rows(name, partial(to_out, {"x": np.arange(4)}), {"shards": ints(1, 4)})
        yield from rows(name, partial(to_out, RECORDS), {"progress": FLAGS})
    yield "load_images(path)", Row(data.load_images, NONE, ("data file",))


def _rows_of_caches() -> Iterator[tuple[str, Row]]:
    elements = {"data": {"list", "set", "np_1d"}}
    yield from rows("cached", cached, elements, "data", "record", "component", "array", shows=False)
    yield from rows("CachedSource", cache, {"path": set()})
    yield from rows("cached", partial(cached, data=[[1, 2]]), {"batched": FLAGS})
    yield from rows("cached", cached, {"files": NONE}, "file")
    taken = {
        "path": {"digit", "word"},
        "limit": NONE | ints(1, INT64),
        "version": NONE | STRINGS | ints(-INT64, INT64),
        "if_changed": set(),
        "threads": ints(1, MOST_THREADS),
        "thread_safe": FLAGS,
        "progress": FLAGS,
    }
    yield from rows("cached", cached, taken)


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
    yield from rows(
        "assert_resumes_everywhere", partial(testing.assert_resumes_everywhere, finite), {"max_batches": most}
    )
    taken = {"max_batches": most, "threads": ints(1, MOST_THREADS)}
    yield from rows("assert_deterministic", partial(testing.assert_deterministic, finite), taken)
    shards = Row(lambda v: testing.assert_shards_partition(finite, v), ints(1, 10), ("shard",))
    yield "assert_shards_partition(n)", shards
    # Valid values start processes: see test_testing.py.
    works = testing.assert_works_in_processes
    yield "assert_works_in_processes(source)", Row(works, set())
    valid = {"processes": ints(1, MOST_THREADS), "max_batches": most, "allow_tensorflow": FLAGS}
    yield from untried_rows("assert_works_in_processes", partial(works, finite), valid)
    none = {"empty_list", "np_empty"}
    valid = {"packages": none, "stall_secs": SECS | NONE, "only": none}
    valid |= dict.fromkeys(("claim_version", "old_names", "compile_runs"), FLAGS)
    yield from untried_rows("install", legacy.install, valid)
