"""How `test_arguments.py` calls each public function: with valid arguments, besides the one that it tries by name."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable
from typing import Any

import numpy as np
import tensorflow.compat.v1 as tf

import staging_tf1 as staging
from staging_tf1 import data, legacy, sources, testing

RECORDS = [b"1", b"22", b"333"]
# The ops of the graph and the threads, just before the call.
built: list[int] = []
running: set[threading.Thread] = set()
# The session of one test, in which all values are tried.
opened: list[Any] = []


def ready(value: Any) -> Any:
    built.append(len(tf.get_default_graph().get_operations()))
    running.update(threading.enumerate())
    return value


def given(function: Callable[..., Any], **valid: Any) -> Callable[..., Any]:
    return lambda **options: function(**{**valid, **options})


def method(make: Callable[[], Any], name: str, **valid: Any) -> Callable[..., Any]:
    return lambda **options: getattr(ready(make()), name)(**{**valid, **options})


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


area = given(staging.StagingArea, dtypes=[tf.int64])
map_area = given(staging.MapStagingArea, dtypes=[tf.int64])
array = given(sources.ArraySource, arrays=np.arange(10), batch_size=2)
mapped = given(sources.MapSource, dataset=[1, 2, 3, 4, 5, 6, 7, 8, 9, 10], batch_size=2)
cached = given(sources.cached, data=np.arange(10), path="r.cache", batch_size=2)
generator = given(sources.GeneratorSource, generator_fn=lambda: iter([[1]]), resume="skip")
cluster = given(staging.Cluster, jobs={"ps": ["a:1"], "worker": ["b:1"]}, job_name="worker", task_index=0)


def staged(**options: Any) -> Any:
    return staging.staged(**{"values": array(), **options})


def runner(**options: Any) -> Any:
    return staging.CustomRunner(**{"source": array(), **options})


def session(**options: Any) -> Any:
    if "checkpoint_dir" in options:
        # Checkpoints need a global step, which takes longer to build than a value takes to be refused.
        ready(tf.train.get_or_create_global_step())
    return staging.StagingSession(**options)


def in_session(name: str, **valid: Any) -> Callable[..., None]:
    def run(**options: Any) -> None:
        if not opened:
            with tf.Graph().as_default():
                tf.constant(1, name="fetched")
                opened.append(staging.StagingSession(stall_secs=0))
        getattr(ready(opened[0]), name)(**{**valid, **options})
        assert opened[0].run("fetched:0") == 1, "the session goes on"

    return run


def start(**options: Any) -> Any:
    with tf.Session() as sess:
        return staging.start(**{"sess": sess, **options})


def start_threads(**options: Any) -> Any:
    started = ready(runner())
    with tf.Session() as sess:
        for thread in started.start_threads(**{"sess": sess, **options}):
            sess.close()
            thread.join()


def cache(**options: Any) -> Any:
    if "path" not in options and not os.path.exists("r.cache"):
        cached()
    return sources.CachedSource(**{"path": "r.cache", "batch_size": 2, **options})


def record_file(kind: Any, write: Any, **options: Any) -> Any:
    path = f"r.{kind.__name__}"
    if "files" not in options and not os.path.exists(path):
        write(RECORDS, path)
    return kind(**{"files": path, "batch_size": 2, **options})


def grain(kind: str) -> Any:
    import grain

    dataset = grain.MapDataset.range(6).batch(2)
    return sources.GrainSource(dataset if kind == "map" else dataset.to_iter_dataset())


def whole(name: str, **valid: Any) -> Callable[..., Any]:
    return method(array, name, **valid)


def grain_method(kind: str, name: str, **valid: Any) -> Callable[..., Any]:
    return method(lambda: grain(kind), name, **valid)


_LENGTHS = range(10)
# By the function, or by the function and the argument.
CALLS: dict[str, Callable[..., Any]] = {
    "BaseStagingArea": area,
    "MapStagingArea": map_area,
    "BaseStagingArea.from_tensors": given(staging.StagingArea.from_tensors, tensors=[np.int64(1)]),
    **{f"BaseStagingArea.{name}": method(area, name) for name in ("size", "clear")},
    "StagingArea.put": method(area, "put", values=1),
    "StagingArea.get": method(area, "get"),
    "StagingArea.peek": method(area, "peek", index=0),
    "MapStagingArea.put": method(map_area, "put", key=1, vals=1),
    **{f"MapStagingArea.{name}": method(map_area, name, key=1) for name in ("get", "peek")},
    "MapStagingArea.incomplete_size": method(map_area, "incomplete_size"),
    "staged": staged,
    "staged(max_ignored)": given(staged, ignored_exception_types=ValueError),
    "CustomRunner": runner,
    "CustomRunner(max_ignored)": given(runner, ignored_exception_types=ValueError),
    "CustomRunner(source)": given(runner, queue="fifo"),
    "CustomRunner.get_inputs": method(runner, "get_inputs"),
    "CustomRunner.start_threads": start_threads,
    "StagingHook": staging.StagingHook,
    "StagingSession": session,
    **{f"StagingSession.{name}": in_session(name, fetches="fetched:0") for name in ("run", "make_callable")},
    "StagingSession.run_step_fn": in_session("run_step_fn"),
    "StagingSummaryHook": given(staging.StagingSummaryHook, output_dir="f"),
    "start": start,
    "start(sess)": staging.start,
    "stats": staging.stats,
    "Cluster": cluster,
    "Cluster.from_resolver": staging.Cluster.from_resolver,
    "Cluster.session_config": method(cluster, "session_config"),
    "ArraySource": array,
    "RecordSource": given(BareRecords, num_records=10, batch_size=2),
    **{f"RecordSource.{name}": whole(name) for name in ("batch", "epoch_of", "record_ids", "is_left_out", "with_seed")},
    "RecordSource.shard": whole("shard", index=0, count=4),
    "RecordSource.packed": whole("packed", length=9, lengths=[1] * 10),
    **{f"Source.{name}": method(BareSource, name) for name in ("with_seed", "is_left_out", "batches")},
    **{
        f"Composable.{name}": whole(name)
        for name in ("with_options", "take", "skip", "select", "without", "pad", "ragged")
    },
    "Composable.split": whole("split", fraction=0.5, seed=1),
    "Composable.by_length": whole("by_length", lengths=_LENGTHS),
    "Composable.weighted": whole("weighted", weights=_LENGTHS),
    "Composable.balanced": whole("balanced", labels=_LENGTHS),
    "concatenate": sources.concatenate,
    "mix": given(sources.mix, sources=[array(), array()]),
    "zip_records": sources.zip_records,
    "RaggedValue": given(sources.RaggedValue, flat_values=[], nested_row_splits=[0]),
    "RaggedValue.from_rows": given(sources.RaggedValue.from_rows, rows=[]),
    "SparseValue": given(sources.SparseValue, indices=[], values=[], dense_shape=[]),
    "MapSource": mapped,
    "MapSource(max_ignored)": given(mapped, skip_bad_records=True),
    "SequenceSource": given(sources.SequenceSource, sequence=[[1, 2]] * 10),
    "cached": cached,
    "cached(batched)": given(cached, data=[[1, 2]]),
    "CachedSource": cache,
    "GeneratorSource": generator,
    **{f"GeneratorSource.{name}": method(generator, name) for name in ("with_spec", "batches")},
    "as_source": sources.as_source,
    "GrainSource": sources.GrainSource,
    "GrainMapSource.batch": grain_method("map", "batch"),
    "GrainMapSource.shard": grain_method("map", "shard", index=0, count=3),
    **{f"GrainIterSource.{name}": grain_method("iter", name) for name in ("batches", "state")},
    "GrainIterSource.restore": grain_method("iter", "restore", position=1, state=b"{}"),
    "load_images": data.load_images,
    "aligned_empty": given(sources.aligned_empty, shape=3, dtype=np.uint8),
    "assert_shards_partition": given(testing.assert_shards_partition, source=array(epochs=1), n=2),
    "install": legacy.install,
}
_KINDS = {sources.TFRecordSource: sources.write_tfrecords, sources.ArrayRecordSource: sources.write_array_records}
for kind, write in _KINDS.items():
    made = given(record_file, kind=kind, write=write)
    CALLS[kind.__name__] = made
    CALLS[f"{kind.__name__}(local_cache_bytes)"] = given(made, local_cache="r.copies")
    CALLS[f"{kind.__name__}(skip_bad_records)"] = given(made, parse_fn=len)
    CALLS[f"{kind.__name__}(max_ignored)"] = given(made, parse_fn=len, skip_bad_records=True)
    CALLS[write.__name__] = given(write, arrays=RECORDS, out="out")
    CALLS[f"{write.__name__}(shards)"] = given(write, arrays={"x": np.arange(4)}, out="out")
for name in ("assert_resumes_everywhere", "assert_deterministic", "assert_works_in_processes"):
    CALLS[name] = given(getattr(testing, name), source=array(epochs=1))
