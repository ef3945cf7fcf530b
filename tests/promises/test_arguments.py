"""Every argument of every public function against values of the wrong kind, out of range, or huge.

The function must reject a value within a second, with an error that names the argument, the value and what it expects,
and must make no op, thread or file. The table lists the values that an argument accepts.
"""

from __future__ import annotations

import gc
import inspect
import os
import re
import sys
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tensorflow.compat.v1 as tf
from hostile import HOSTILE
from public_arguments import public_arguments
from slow import with_slow

import staging_tf1 as staging
from staging_tf1 import data, legacy, sources, testing
from staging_tf1.arguments import MOST_QUEUED, MOST_STAGED, MOST_THREADS, shown
from staging_tf1.cli.main import main
from staging_tf1.errors import RecordFileError, StagingError
from staging_tf1.lifecycle.monitored import check_monitored
from staging_tf1.sources.files import arrayrecord_read, tfrecord_read

_INT32, _INT64 = 2**31 - 1, 2**63 - 1
# How a message says what is expected, or what to do.
_WANTS = re.compile(
    r"expected|must|takes|declared|out of range|no file|no such file|neither|numbered|interpreted|a component\b"
    r"|may|Cannot be None|\b(give|name|put|write|use|declare|raise|pass|leave|convert|know[ns]|wrap)\b|got no",
    re.IGNORECASE,
)

_FLAGS = {"true", "false", "np_true", "zero", "one"}
_SECS = {"zero", "one", "three", "half", "fraction", "two_point_zero", "np_int", "np_half"}
_NONE = {"none"}
_STRINGS = {"digit", "word", "blank", "nul", "surrogate"}
_OP_NAMES = {"none", "digit"}


def _whole(least: int, most: int) -> set[str]:
    names = ["zero", "one", "three", "minus_one", "2**31", "2**63", "2**70", "-2**70", "np_int", "np_negative", "np_0d"]
    return {name for name in names if least <= int(HOSTILE[name]) <= most}


@dataclass(frozen=True)
class Row:
    """One argument: how to call its function with a value, and which hostile values it accepts."""

    call: Callable[[Any], Any]
    takes: set[str]
    # Other names by which the message may name the argument.
    says: tuple[str, ...] = ()
    # Values that are not tried: they would change this process, or TensorFlow cannot show them.
    untried: frozenset[str] = frozenset()
    # Whether the message shows the value itself or describes it.
    shows: bool = True


_UNPRINTABLE = frozenset({"unprintable", "10**5000"})


def _area(**options: Any) -> Any:
    return staging.StagingArea(**{"dtypes": [tf.int64], **options})


def _map_area(**options: Any) -> Any:
    return staging.MapStagingArea(**{"dtypes": [tf.int64], **options})


def _array(**options: Any) -> Any:
    return sources.ArraySource(**{"arrays": np.arange(10), "batch_size": 2, **options})


def _staged(**options: Any) -> Any:
    return staging.staged(**{"values": _array(), **options})


def _runner(**options: Any) -> Any:
    return staging.CustomRunner(**{"source": _array(), **options})


def _mapped(**options: Any) -> Any:
    return sources.MapSource(**{"dataset": [1, 2, 3, 4, 5, 6, 7, 8, 9, 10], "batch_size": 2, **options})


def _cached(**options: Any) -> Any:
    return sources.cached(**{"data": np.arange(10), "path": "r.cache", "batch_size": 2, **options})


def _cache(**options: Any) -> Any:
    if "path" not in options and not os.path.exists("r.cache"):
        _cached()
    return sources.CachedSource(**{"path": "r.cache", "batch_size": 2, **options})


def _sequence(**options: Any) -> Any:
    return sources.SequenceSource(**{"sequence": [[1, 2]] * 10, **options})


class _Records(sources.RecordSource):
    """A minimal record source."""

    def record_spec(self, batch_dim: int | None) -> Any:
        raise AssertionError

    def gather(self, records: Any) -> Any:
        raise AssertionError


class _Stepped(sources.Source):
    """A minimal source."""

    spec = batch_size = num_records = batches_per_epoch = num_batches = None  # type: ignore[assignment]

    def batch(self, index: int) -> Any:
        raise AssertionError

    def shard(self, index: int, count: int) -> Any:
        raise AssertionError

    def fingerprint(self) -> Any:
        raise AssertionError


_RECORDS = [b"1", b"22", b"333"]


def _tf_file(**options: Any) -> Any:
    if "files" not in options and not os.path.exists("r.tfrecord"):
        sources.write_tfrecords(_RECORDS, "r.tfrecord")
    return sources.TFRecordSource(**{"files": "r.tfrecord", "batch_size": 2, **options})


def _array_file(**options: Any) -> Any:
    if "files" not in options and not os.path.exists("r.array_record"):
        sources.write_array_records(_RECORDS, "r.array_record")
    return sources.ArrayRecordSource(**{"files": "r.array_record", "batch_size": 2, **options})


def _grain_map() -> Any:
    import grain

    return sources.GrainSource(grain.MapDataset.range(6).batch(2))


def _grain_iter() -> Any:
    import grain

    return sources.GrainSource(grain.MapDataset.range(6).batch(2).to_iter_dataset())


# Values whose sessions the default run does not open: others of the same kind are accepted there.
_ALIKE = frozenset() if with_slow() else frozenset({"one", "three", "np_int", "np_half", "np_true"})
_ALIKE_AS_NAMES = frozenset() if with_slow() else frozenset({"word"})


def _session(**options: Any) -> Any:
    if "checkpoint_dir" in options:
        # Checkpoints need a global step, which takes longer to build than a value takes to be refused.
        _ready(tf.train.get_or_create_global_step())
    return staging.StagingSession(**options)


# The session of one test, in which all values are tried.
_opened: list[Any] = []


def _in_session(run: Callable[[Any], Any]) -> Any:
    if not _opened:
        with tf.Graph().as_default():
            tf.constant(1, name="fetched")
            _opened.append(staging.StagingSession(stall_secs=0))
    run(_ready(_opened[0]))
    assert _opened[0].run("fetched:0") == 1, "the session goes on"


@pytest.fixture(autouse=True)
def _close_the_session() -> Iterator[None]:
    yield
    while _opened:
        _opened.pop().close()


def _start(**options: Any) -> Any:
    with tf.Session() as sess:
        return staging.start(**{"sess": sess, **options})


def _start_threads(**options: Any) -> Any:
    runner = _ready(_runner())
    with tf.Session() as sess:
        for thread in runner.start_threads(**{"sess": sess, **options}):
            sess.close()
            thread.join()


def _rows() -> Iterator[tuple[str, Row]]:
    yield from _rows_of_areas()
    yield from _rows_of_feeds()
    yield from _rows_of_sessions()
    yield from _rows_of_save_on_stop()
    yield from _rows_of_export_saved_model()
    yield from _rows_of_clusters()
    yield from _rows_of_sources()
    yield from _rows_of_files()
    yield from _rows_of_helpers()


def _rows_of_areas() -> Iterator[tuple[str, Row]]:
    for make, owner in ((_area, "BaseStagingArea"), (_map_area, "MapStagingArea")):
        yield f"{owner}(dtypes)", Row(lambda v, make=make: make(dtypes=v), set(), ("dtype",))
        yield f"{owner}(shapes)", Row(lambda v, make=make: make(shapes=v), _NONE)
        yield f"{owner}(names)", Row(lambda v, make=make: make(names=v), _NONE)
        yield f"{owner}(shared_name)", Row(lambda v, make=make: make(shared_name=v), _NONE | _STRINGS - {"blank"})
        yield f"{owner}(capacity)", Row(lambda v, make=make: make(capacity=v), _whole(0, _INT64))
        yield f"{owner}(memory_limit)", Row(lambda v, make=make: make(memory_limit=v), _whole(0, _INT64))
    yield "MapStagingArea(ordered)", Row(lambda v: _map_area(ordered=v), _FLAGS)

    def from_tensors(**options: Any) -> Any:
        return staging.StagingArea.from_tensors(**{"tensors": [np.int64(1)], **options})

    arrays = {
        "np_true",
        "np_int",
        "np_negative",
        "np_half",
        "np_nan",
        "np_inf",
        "np_uint64",
        "np_0d",
        "np_1d",
        "np_empty",
    }
    yield "BaseStagingArea.from_tensors(tensors)", Row(lambda v: from_tensors(tensors=v), arrays, shows=False)
    yield "BaseStagingArea.from_tensors(names)", Row(lambda v: from_tensors(names=v), _NONE)
    yield "BaseStagingArea.from_tensors(capacity)", Row(lambda v: from_tensors(capacity=v), _whole(0, _INT64))
    yield (
        "BaseStagingArea.from_tensors(memory_limit)",
        Row(lambda v: from_tensors(memory_limit=v), _whole(8, _INT64) | {"zero"}),
    )
    yield (
        "BaseStagingArea.from_tensors(shared_name)",
        Row(lambda v: from_tensors(shared_name=v), _NONE | _STRINGS - {"blank"}),
    )
    names = _OP_NAMES | {"blank"}
    yield "BaseStagingArea.size(name)", Row(lambda v: _ready(_area()).size(name=v), names)
    yield "BaseStagingArea.clear(name)", Row(lambda v: _ready(_area()).clear(name=v), names)
    yield "StagingArea.put(name)", Row(lambda v: _ready(_area()).put(1, name=v), names)
    yield "StagingArea.get(name)", Row(lambda v: _ready(_area()).get(name=v), names)
    yield "StagingArea.peek(name)", Row(lambda v: _ready(_area()).peek(0, name=v), names)
    yield "StagingArea.peek(index)", Row(lambda v: _ready(_area()).peek(v), _whole(0, _INT32))
    values = Row(
        lambda v: _ready(_area()).put(v),
        _whole(-_INT64, _INT64) - {"np_negative"} | {"np_1d"},
        ("component",),
        shows=False,
    )
    yield "StagingArea.put(values)", values
    map_values = Row(lambda v: _ready(_map_area()).put(1, v), values.takes, ("component", "put got"), shows=False)
    yield "MapStagingArea.put(vals)", map_values
    keys = _whole(-(2**63), _INT64)
    yield "MapStagingArea.put(key)", Row(lambda v: _ready(_map_area()).put(v, 1), keys)
    yield "MapStagingArea.get(key)", Row(lambda v: _ready(_map_area()).get(v), keys | _NONE)
    yield "MapStagingArea.peek(key)", Row(lambda v: _ready(_map_area()).peek(v), keys)
    yield "MapStagingArea.put(indices)", Row(lambda v: _ready(_map_area()).put(1, 1, indices=v), _NONE)
    yield "MapStagingArea.get(indices)", Row(lambda v: _ready(_map_area()).get(1, indices=v), _NONE)
    yield "MapStagingArea.peek(indices)", Row(lambda v: _ready(_map_area()).peek(1, indices=v), _NONE)
    yield "MapStagingArea.put(name)", Row(lambda v: _ready(_map_area()).put(1, 1, name=v), names)
    yield "MapStagingArea.get(name)", Row(lambda v: _ready(_map_area()).get(1, name=v), names)
    yield "MapStagingArea.peek(name)", Row(lambda v: _ready(_map_area()).peek(1, name=v), names)
    yield "MapStagingArea.incomplete_size(name)", Row(lambda v: _ready(_map_area()).incomplete_size(name=v), names)


def _rows_of_feeds() -> Iterator[tuple[str, Row]]:
    for make, owner in ((_staged, "staged"), (_runner, "CustomRunner")):
        autotune = _whole(-1, -1)
        threads = Row(lambda v, make=make: make(num_threads=v), _whole(1, MOST_THREADS) | autotune)
        yield f"{owner}(num_threads)", threads
        processes = Row(lambda v, make=make: make(num_processes=v), _whole(0, MOST_THREADS // 2))
        yield f"{owner}(num_processes)", processes
        yield f"{owner}(nice)", Row(lambda v, make=make: make(nice=v), _whole(0, 19))
        ignored = Row(lambda v, make=make: make(ignored_exception_types=v), {"empty_list"})
        yield f"{owner}(ignored_exception_types)", ignored
        most = Row(
            lambda v, make=make: make(ignored_exception_types=ValueError, max_ignored=v), _NONE | _whole(0, _INT64)
        )
        yield f"{owner}(max_ignored)", most
        yield f"{owner}(cluster)", Row(lambda v, make=make: make(cluster=v), _NONE)
        yield f"{owner}(share)", Row(lambda v, make=make: make(share=v), set())
        yield f"{owner}(name)", Row(lambda v, make=make: make(name=v), _OP_NAMES)
    yield (
        "staged(values)",
        Row(lambda v: _staged(values=v), {"list", "set"}, ("generator",), frozenset({"surrogate"}), shows=False),
    )
    yield "staged(capacity)", Row(lambda v: _staged(capacity=v), _whole(1, MOST_STAGED))
    yield "staged(memory_limit)", Row(lambda v: _staged(memory_limit=v), _whole(16, _INT64) | {"zero"})
    yield "staged(device)", Row(lambda v: _staged(device=v), _NONE | {"blank"})
    yield "staged(devices)", Row(lambda v: _staged(devices=v), _NONE, ("device",))
    yield "staged(lockstep)", Row(lambda v: _staged(lockstep=v), _FLAGS)
    yield "staged(cast)", Row(lambda v: _staged(cast=v), _NONE)
    yield "staged(spec)", Row(lambda v: _staged(spec=v), _NONE)
    yield "staged(resume)", Row(lambda v: _staged(resume=v), set())
    source = Row(lambda v: _runner(source=v, queue="fifo"), {"list", "set", "tuple"}, ("generator",), shows=False)
    yield "CustomRunner(source)", source
    yield "CustomRunner(batch_size)", Row(lambda v: _runner(batch_size=v), _NONE | _whole(1, MOST_QUEUED))
    yield "CustomRunner(queue)", Row(lambda v: _runner(queue=v), set())
    yield "CustomRunner(capacity)", Row(lambda v: _runner(capacity=v), _NONE | _whole(1, MOST_QUEUED))
    floor = Row(lambda v: _runner(min_after_dequeue=v), _NONE | _whole(0, MOST_QUEUED))
    yield "CustomRunner(min_after_dequeue)", floor
    yield "CustomRunner(seed)", Row(lambda v: _runner(seed=v), _NONE | _whole(-(2**63), _INT64))
    inputs = Row(lambda v: _ready(_runner()).get_inputs(v), _NONE | _whole(1, 2**20))
    yield "CustomRunner.get_inputs(batch_size)", inputs
    yield "CustomRunner.start_threads(sess)", Row(lambda v: _start_threads(sess=v), set())
    yield "CustomRunner.start_threads(coord)", Row(lambda v: _start_threads(coord=v), _NONE)


def _rows_of_sessions() -> Iterator[tuple[str, Row]]:
    for make, owner, secs in (
        (staging.StagingHook, "StagingHook", "stop_grace_period_secs"),
        (_session, "StagingSession", "stop_grace_period_secs"),
    ):
        untried = _ALIKE if make is _session else frozenset()
        yield f"{owner}({secs})", Row(lambda v, make=make, secs=secs: make(**{secs: v}), _SECS, untried=untried)
        stall = Row(lambda v, make=make: make(stall_secs=v), _SECS | _NONE, untried=untried)
        yield f"{owner}(stall_secs)", stall
        raises = Row(lambda v, make=make: make(stall_raises=v), _FLAGS, untried=untried)
        yield f"{owner}(stall_raises)", raises
    folders = Row(lambda v: _session(checkpoint_dir=v), {"none", "blank", "digit", "word"}, untried=_ALIKE_AS_NAMES)
    yield "StagingSession(checkpoint_dir)", folders
    yield "StagingSession(hooks)", Row(lambda v: _session(hooks=v), {"none", "empty_list", "np_empty"})
    yield "StagingSession(config)", Row(lambda v: _session(config=v), _NONE)
    yield "StagingSession(cluster)", Row(lambda v: _session(cluster=v), _NONE)
    run = Row(lambda v: _in_session(lambda s: s.run(v)), {"empty_list"}, ("fetch", "Fetch"), _UNPRINTABLE)
    yield "StagingSession.run(fetches)", run
    for argument in ("feed_dict", "options", "run_metadata"):
        row = Row(
            lambda v, argument=argument: _in_session(lambda s: s.run("fetched:0", **{argument: v})),
            _NONE,
            untried=_UNPRINTABLE,
            shows=False,
        )
        yield f"StagingSession.run({argument})", row
    made = Row(lambda v: _in_session(lambda s: s.make_callable(v)), {"empty_list"}, ("fetch", "Fetch"), _UNPRINTABLE)
    yield "StagingSession.make_callable(fetches)", made
    fed = Row(
        lambda v: _in_session(lambda s: s.make_callable("fetched:0", v)),
        {"none", "empty_list", "np_empty"},
        ("feed",),
        _UNPRINTABLE,
        shows=False,
    )
    yield "StagingSession.make_callable(feed_list)", fed
    yield (
        "StagingSession.run_step_fn(step_fn)",
        Row(lambda v: _in_session(lambda s: s.run_step_fn(v)), set(), shows=False),
    )
    yield "StagingHook(join_secs)", Row(lambda v: staging.StagingHook(join_secs=v), _SECS)
    yield "StagingSummaryHook(output_dir)", Row(lambda v: staging.StagingSummaryHook(output_dir=v), {"digit", "word"})
    steps = Row(lambda v: staging.StagingSummaryHook(output_dir="f", save_steps=v), _whole(1, _INT64))
    yield "StagingSummaryHook(save_steps)", steps
    yield "StagingSummaryHook(folder)", Row(lambda v: staging.StagingSummaryHook(folder=v), {"digit", "word"})
    steps = Row(lambda v: staging.StagingSummaryHook(folder="f", every_steps=v), _whole(1, _INT64))
    yield "StagingSummaryHook(every_steps)", steps
    yield "start(sess)", Row(lambda v: staging.start(v), set(), ("session",), shows=False)
    yield "start(coord)", Row(lambda v: _start(coord=v), _NONE)
    yield "start(daemon)", Row(lambda v: _start(daemon=v), _FLAGS)
    yield "start(stall_secs)", Row(lambda v: _start(stall_secs=v), _SECS | _NONE)
    yield "start(stall_raises)", Row(lambda v: _start(stall_raises=v), _FLAGS)


def _exported(**options: Any) -> Any:
    """There is no checkpoint, so that no model is written. The graph is the test's, or a new one with an op."""
    home = tf.Graph()
    with home.as_default():
        x = tf.constant([1.0])
    given = {"folder": "model", "inputs": {"x": x}, "outputs": {"x": x}, "checkpoint": "none", "graph": home}
    return staging.export_saved_model(**{**given, **options})


def _rows_of_export_saved_model() -> Iterator[tuple[str, Row]]:
    """Valid values are not tried: they would write a model."""
    valid = {
        "folder": {"digit", "word"},
        "inputs": set[str](),
        "outputs": set[str](),
        "checkpoint": set[str](),
        "batch_size": _NONE | _whole(1, _INT64),
        "graph": _NONE,
    }
    for argument, untried in valid.items():
        row = Row(lambda v, name=argument: _exported(**{name: v}), set(), untried=frozenset(untried))
        yield f"export_saved_model({argument})", row


def _rows_of_save_on_stop() -> Iterator[tuple[str, Row]]:
    for make, owner in ((staging.StagingHook, "StagingHook"), (_session, "StagingSession")):
        untried = _ALIKE if make is _session else frozenset()
        yield f"{owner}(save_on_stop)", Row(lambda v, make=make: make(save_on_stop=v), _FLAGS, untried=untried)


def _rows_of_clusters() -> Iterator[tuple[str, Row]]:
    jobs = {"ps": ["a:1"], "worker": ["b:1"]}

    def cluster(**options: Any) -> Any:
        return staging.Cluster(**{"jobs": jobs, "job": "worker", "index": 0, **options})

    yield "Cluster(jobs)", Row(lambda v: staging.Cluster(v, "worker", 0), set(), ("cluster", "job"), shows=False)
    named = {"jobs": jobs, "job_name": "worker", "task_index": 0}
    yield "Cluster(job_name)", Row(lambda v: staging.Cluster(**{**named, "job_name": v}), set(), ("task type",))
    yield (
        "Cluster(task_index)",
        Row(lambda v: staging.Cluster(**{**named, "task_index": v}), {"none", "zero", "digit_zero"}, ("task index",)),
    )
    yield "Cluster(job)", Row(lambda v: cluster(job=v), set(), ("task type",))
    yield "Cluster(index)", Row(lambda v: cluster(index=v), {"none", "zero", "digit_zero"})
    yield "Cluster(sync)", Row(lambda v: cluster(sync=v), _FLAGS)
    yield "Cluster(save_copies)", Row(lambda v: cluster(save_copies=v), _FLAGS)
    yield "Cluster(allow_missing)", Row(lambda v: cluster(allow_missing=v), _FLAGS)
    yield "Cluster(start_timeout_secs)", Row(lambda v: cluster(start_timeout_secs=v), _SECS)
    yield "Cluster(silence_secs)", Row(lambda v: cluster(silence_secs=v), _SECS)
    yield "Cluster.from_resolver(resolver)", Row(staging.Cluster.from_resolver, set())
    yield "Cluster.session_config(config)", Row(lambda v: cluster().session_config(v), _NONE)


def _rows_of_sources() -> Iterator[tuple[str, Row]]:
    taken: dict[str, set[str]] = {
        "batch_size": _whole(1, _INT32),
        "shuffle": _FLAGS,
        "seed": _NONE | _whole(0, _INT64),
        "epochs": _NONE | _whole(1, _INT64),
        "shard": {"none", "list"},
        "drop_remainder": _FLAGS,
        "across_epochs": _FLAGS,
        "transform": _NONE,
    }

    def records(**options: Any) -> Any:
        return _Records(**{"num_records": 10, "batch_size": 2, **options})

    for make, owner in (
        (_array, "ArraySource"),
        (records, "RecordSource"),
        (_tf_file, "TFRecordSource"),
        (_array_file, "ArrayRecordSource"),
        (_mapped, "MapSource"),
        (_sequence, "SequenceSource"),
        (_cached, "cached"),
        (_cache, "CachedSource"),
        (_array().with_options, "Composable.with_options"),
    ):
        inherited = {"SequenceSource": ("batch_size", "drop_remainder", "across_epochs")}
        inherited["Composable.with_options"] = ("shard",)
        for argument, takes in taken.items():
            if argument in inherited.get(owner, ()):
                continue
            row = Row(lambda v, make=make, argument=argument: make(**{argument: v}), takes)
            yield f"{owner}({argument})", row
    yield "RecordSource(num_records)", Row(lambda v: records(num_records=v), _whole(1, _INT64))
    yield (
        "ArraySource(arrays)",
        Row(
            lambda v: _array(arrays=v), {"np_1d", "list"}, ("array", "component"), frozenset({"surrogate"}), shows=False
        ),
    )
    for argument in ("batch", "epoch_of", "record_ids"):
        row = Row(lambda v, argument=argument: getattr(_array(), argument)(v), _whole(0, _INT64), ("batch",))
        yield f"RecordSource.{argument}(index)", row
    yield "RecordSource.shard(index)", Row(lambda v: _array().shard(v, 4), _whole(0, 3))
    yield "RecordSource.shard(count)", Row(lambda v: _array().shard(0, v), _whole(1, _INT64))
    yield "RecordSource.with_seed(seed)", Row(lambda v: _array().with_seed(v), _whole(0, _INT64))
    yield "Source.with_seed(seed)", Row(lambda v: _Stepped().with_seed(v), _whole(0, _INT64))
    yield "Source.batches(start)", Row(lambda v: _Stepped().batches(v), _whole(0, _INT64))

    yield from _rows_of_compositions()

    def generator(**options: Any) -> Any:
        return sources.GeneratorSource(**{"generator_fn": lambda: iter([[1]]), "resume": "skip", **options})

    iterables = {"np_1d", "np_empty", "list", "empty_list", "tuple", "set", "class"}
    yield "GeneratorSource(generator_fn)", Row(lambda v: generator(generator_fn=v), iterables)
    yield "GeneratorSource(spec)", Row(lambda v: generator(spec=v), _NONE)
    yield "GeneratorSource.with_spec(spec)", Row(lambda v: generator().with_spec(v), set())
    yield "GeneratorSource(resume)", Row(lambda v: generator(resume=v), set())
    yield "GeneratorSource(name)", Row(lambda v: generator(name=v), _NONE | _STRINGS)
    yield "GeneratorSource.batches(start)", Row(lambda v: generator().batches(v), _whole(0, _INT64))
    yield "as_source(value)", Row(sources.as_source, iterables - {"np_1d", "np_empty"}, shows=False)
    yield "GrainSource(dataset)", Row(sources.GrainSource, set())
    yield "GrainMapSource.batch(index)", Row(lambda v: _grain_map().batch(v), _whole(0, 2), ("batch",))
    yield "GrainMapSource.shard(index)", Row(lambda v: _grain_map().shard(v, 3), _whole(0, 2))
    yield "GrainMapSource.shard(count)", Row(lambda v: _grain_map().shard(0, v), _whole(1, _INT64))
    yield "GrainIterSource.batches(start)", Row(lambda v: _grain_iter().batches(v), _whole(0, _INT64))
    yield "GrainIterSource.state(position)", Row(lambda v: _grain_iter().state(v), set())
    yield "GrainIterSource.restore(position)", Row(lambda v: _grain_iter().restore(v, b"{}"), _whole(0, _INT64))
    yield "GrainIterSource.restore(state)", Row(lambda v: _grain_iter().restore(1, v), {"bytes"})


def _rows_of_compositions() -> Iterator[tuple[str, Row]]:
    whole = _array()
    yield "Composable.take(count)", Row(lambda v: whole.take(v), _whole(1, _INT64))
    yield "Composable.skip(count)", Row(lambda v: whole.skip(v), _whole(0, 9))
    yield "Composable.select(records)", Row(lambda v: whole.select(v), {"np_1d", "list"}, ("record",), shows=False)
    yield "Composable.split(fraction)", Row(lambda v: whole.split(v, 1), {"fraction"})
    yield "Composable.split(seed)", Row(lambda v: whole.split(0.5, v), _whole(0, _INT64))
    yield "Composable.split(key)", Row(lambda v: whole.split(0.5, 1, key=v), _NONE, shows=False)
    yield "Composable.pad(to)", Row(lambda v: whole.pad(v), _NONE | {"dict"} | _whole(0, _INT32))
    # What does not fit the components is refused with the first record.
    values = {
        kind
        for kind, value in HOSTILE.items()
        if isinstance(value, (int, float, complex, str, bytes, np.generic, dict))
    }
    yield "Composable.pad(value)", Row(lambda v: whole.pad(value=v), values)
    yield "Composable.pad(mask)", Row(lambda v: whole.pad(mask=v), _FLAGS)
    yield "RecordSource.packed(length)", Row(lambda v: whole.packed(v, [1] * 10), _whole(1, _INT32))
    yield "RecordSource.packed(lengths)", Row(lambda v: whole.packed(9, v), set(), shows=False)
    yield "RecordSource.packed(value)", Row(lambda v: whole.packed(9, [1] * 10, value=v), values)
    yield "Composable.ragged(rank)", Row(lambda v: whole.ragged(v), {"dict"} | _whole(1, 31))
    yield "Composable.by_length(lengths)", Row(lambda v: whole.by_length(v), set(), shows=False)
    lengths = range(10)
    yield "Composable.by_length(group)", Row(lambda v: whole.by_length(lengths, group=v), _NONE | _whole(1, _INT32))
    yield "Composable.by_length(block)", Row(lambda v: whole.by_length(lengths, block=v), _whole(1, _INT32))
    for name, values in (("weighted", "weights"), ("balanced", "labels")):
        draw = getattr(whole, name)
        row = Row(lambda v, draw=draw: draw(v), set(), shows=False)
        yield f"Composable.{name}({values})", row
        row = Row(lambda v, draw=draw: draw(lengths, num_records=v), _NONE | _whole(1, _INT64))
        yield f"Composable.{name}(num_records)", row
        row = Row(lambda v, draw=draw: draw(lengths, seed=v), _NONE | _whole(0, _INT64))
        yield f"Composable.{name}(seed)", row
    for function in (sources.concatenate, sources.mix, sources.zip_records):
        yield (
            f"{function.__name__}(sources)",
            Row(lambda v, function=function: function(v), set(), ("source",), shows=False),
        )
    yield "mix(weights)", Row(lambda v: sources.mix([whole, whole], v), _NONE | {"list", "np_1d"})
    yield "mix(seed)", Row(lambda v: sources.mix([whole, whole], seed=v), _NONE | _whole(0, _INT64))
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
    ranks = Row(lambda v: sources.RaggedValue.from_rows([], ragged_rank=v), _whole(1, 31))
    yield "RaggedValue.from_rows(ragged_rank)", ranks
    yield "MapSource(dataset)", Row(lambda v: _mapped(dataset=v), datasets, ("column", "batch"), shows=False)
    yield "MapSource(load)", Row(lambda v: _mapped(load=v), _NONE | {"class"})
    yield "MapSource(collate)", Row(lambda v: _mapped(collate=v), {"class"})
    yield "MapSource(threads)", Row(lambda v: _mapped(threads=v), _whole(1, MOST_THREADS))
    yield "MapSource(thread_safe)", Row(lambda v: _mapped(thread_safe=v), _FLAGS)
    yield "MapSource(skip_bad_records)", Row(lambda v: _mapped(skip_bad_records=v), _FLAGS)
    ignored = Row(lambda v: _mapped(skip_bad_records=True, max_ignored=v), _NONE | _whole(0, _INT64))
    yield "MapSource(max_ignored)", ignored
    yield "SequenceSource(sequence)", Row(lambda v: _sequence(sequence=v), {"list", "tuple"}, shows=False)
    yield "SequenceSource(thread_safe)", Row(lambda v: _sequence(thread_safe=v), _FLAGS)


def _rows_of_files() -> Iterator[tuple[str, Row]]:
    for make, owner in ((_tf_file, "TFRecordSource"), (_array_file, "ArrayRecordSource")):
        yield f"{owner}(files)", Row(lambda v, make=make: make(files=v), set(), ("file",))
        yield f"{owner}(features)", Row(lambda v, make=make: make(features=v), _NONE)
        yield f"{owner}(parse_fn)", Row(lambda v, make=make: make(parse_fn=v), {"none", "class"})
        yield f"{owner}(as_uint8)", Row(lambda v, make=make: make(as_uint8=v), _FLAGS)
        yield f"{owner}(skip_corrupt)", Row(lambda v, make=make: make(skip_corrupt=v), _FLAGS)
        yield f"{owner}(cache_bytes)", Row(lambda v, make=make: make(cache_bytes=v), _whole(0, _INT64))
    yield "TFRecordSource(verify)", Row(lambda v: _tf_file(verify=v), _FLAGS)
    yield "TFRecordSource(access)", Row(lambda v: _tf_file(access=v), set())
    yield from _rows_of_caches()
    for write in (sources.write_tfrecords, sources.write_array_records):
        name = write.__name__
        arrays = Row(
            lambda v, write=write: write(v, "out"), {"empty_list", "np_empty"}, ("record", "array"), shows=False
        )
        yield f"{name}(arrays)", arrays
        yield f"{name}(out)", Row(lambda v, write=write: write(_RECORDS, v), {"digit", "word"})
        shards = Row(lambda v, write=write: write({"x": np.arange(4)}, "out", shards=v), _whole(1, 4))
        yield f"{name}(shards)", shards
        yield f"{name}(progress)", Row(lambda v, write=write: write(_RECORDS, "out", progress=v), _FLAGS)
    yield "load_images(path)", Row(data.load_images, _NONE, ("data file",))


def _rows_of_caches() -> Iterator[tuple[str, Row]]:
    elements = {"list", "set", "np_1d"}
    names = ("data", "record", "component", "array")
    yield "cached(data)", Row(lambda v: _cached(data=v), elements, names, shows=False)
    yield "cached(path)", Row(lambda v: _cached(path=v), {"digit", "word"})
    yield "CachedSource(path)", Row(lambda v: _cache(path=v), set())
    yield "cached(batched)", Row(lambda v: _cached(data=[[1, 2]], batched=v), _FLAGS)
    yield "cached(limit)", Row(lambda v: _cached(limit=v), _NONE | _whole(1, _INT64))
    yield "cached(version)", Row(lambda v: _cached(version=v), _NONE | _STRINGS | _whole(-_INT64, _INT64))
    yield "cached(files)", Row(lambda v: _cached(files=v), _NONE, ("file",))
    yield "cached(if_changed)", Row(lambda v: _cached(if_changed=v), set())
    yield "cached(threads)", Row(lambda v: _cached(threads=v), _whole(1, MOST_THREADS))
    yield "cached(thread_safe)", Row(lambda v: _cached(thread_safe=v), _FLAGS)
    yield "cached(progress)", Row(lambda v: _cached(progress=v), _FLAGS)


def _rows_of_helpers() -> Iterator[tuple[str, Row]]:
    lengths = _whole(0, 2**31) | {"list", "empty_list"}
    yield "aligned_empty(shape)", Row(lambda v: sources.aligned_empty(v, np.uint8), lengths)
    # As in np.dtype(), values with a dtype attribute and classes are accepted.
    kinds = {
        "none",
        "empty_list",
        "np_true",
        "np_int",
        "np_negative",
        "np_half",
        "np_nan",
        "np_inf",
        "np_uint64",
        "datetime",
        "class",
    }
    dtypes = Row(lambda v: sources.aligned_empty(3, v), kinds)
    yield "aligned_empty(dtype)", dtypes
    row_dtypes = Row(lambda v: sources.RaggedValue.from_rows([], dtype=v), kinds)
    yield "RaggedValue.from_rows(dtype)", row_dtypes
    most = _whole(1, 2**20)
    finite = _array(epochs=1)
    for function in (testing.assert_resumes_everywhere, testing.assert_deterministic, testing.assert_shards_partition):
        arguments = () if function is not testing.assert_shards_partition else (2,)
        row = Row(lambda v, function=function, arguments=arguments: function(v, *arguments), set())
        yield f"{function.__name__}(source)", row
    batches = Row(lambda v: testing.assert_resumes_everywhere(finite, max_batches=v), most)
    yield "assert_resumes_everywhere(max_batches)", batches
    yield "assert_deterministic(max_batches)", Row(lambda v: testing.assert_deterministic(finite, max_batches=v), most)
    threads = Row(lambda v: testing.assert_deterministic(finite, threads=v), _whole(1, MOST_THREADS))
    yield "assert_deterministic(threads)", threads
    yield (
        "assert_shards_partition(n)",
        Row(lambda v: testing.assert_shards_partition(finite, v), _whole(1, 10), ("shard",)),
    )
    # Valid values start processes: see test_testing.py.
    works, at_once = testing.assert_works_in_processes, frozenset(_whole(1, MOST_THREADS))
    yield "assert_works_in_processes(source)", Row(works, set())
    for argument, valid in {
        "processes": at_once,
        "max_batches": frozenset(most),
        "allow_tensorflow": frozenset(_FLAGS),
    }.items():
        row = Row(lambda v, argument=argument: works(finite, **{argument: v}), set(), untried=valid)
        yield f"assert_works_in_processes({argument})", row
    installed = frozenset({"empty_list", "np_empty"})
    yield "install(packages)", Row(lambda v: legacy.install(packages=v), set(), untried=installed)
    valid = frozenset(_SECS | _NONE)
    yield "install(stall_secs)", Row(lambda v: legacy.install(stall_secs=v), set(), untried=valid)
    yield "install(only)", Row(lambda v: legacy.install(only=v), set(), untried=installed)
    for argument in ("claim_version", "old_names"):
        row = Row(lambda v, argument=argument: legacy.install(**{argument: v}), set(), untried=frozenset(_FLAGS))
        yield f"install({argument})", row


_TABLE = dict(_rows())
_ARGUMENTS = [f"{function}({argument})" for function, argument in public_arguments()]


def test_the_table_has_a_row_for_every_argument() -> None:
    assert set(_ARGUMENTS) - set(_TABLE) == set(), "without a row"
    assert set(_TABLE) - set(_ARGUMENTS) == set(), "of no public function"


@pytest.fixture
def ignored(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[str]]:
    """Collect what Python prints as "Exception ignored in", for example from a `__del__`."""
    found: list[str] = []
    monkeypatch.setattr(sys, "unraisablehook", lambda args: found.append(f"{args.exc_value!r} in {args.object!r}"))
    yield found


@pytest.mark.parametrize("name", sorted(_TABLE))
def test_an_argument_takes_its_values_or_names_them(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, ignored: list[str]
) -> None:
    if name.startswith("Grain"):
        pytest.importorskip("grain")
    monkeypatch.chdir(tmp_path)
    row, argument = _TABLE[name], name[name.index("(") + 1 : -1]
    problems = []
    for kind, value in HOSTILE.items():
        if kind in row.untried:
            continue
        problem = _problem(row, argument, kind, value)
        if problem:
            problems.append(f"{kind}: {problem}")
        for left in os.listdir():
            if not left.startswith("r.") and os.path.isfile(left):
                os.remove(left)
    # Garbage is collected once, below, because a collection takes a quarter of a second.
    assert problems + ignored == []


def test_the_garbage_of_the_table_is_collected_without_a_word(ignored: list[str]) -> None:
    gc.collect()
    assert ignored == []


def _problem(row: Row, argument: str, kind: str, value: Any) -> str:
    """Return what is wrong with the function's answer to the value; "" if nothing is."""
    with tf.Graph().as_default() as graph:
        _built.clear()
        _running.clear()
        _running.update(threading.enumerate())
        began, files = time.thread_time(), set(os.listdir())
        try:
            made = row.call(value)
        except (TypeError, ValueError, IndexError, StagingError) as error:
            text, took = str(error), time.thread_time() - began
        except BaseException as error:
            return f"{type(error).__name__}: {error}"
        else:
            if hasattr(made, "close"):
                made.close()
            return "" if kind in row.takes else "was taken"
        wrong = ["was refused"] if kind in row.takes else []
        if not any(re.search(rf"(?<![a-z_]){re.escape(word)}", text) for word in (argument, *row.says)):
            wrong.append("does not name the argument")
        if row.shows and not any(shape in text for shape in _shapes(value)):
            wrong.append("does not show the value")
        if not _WANTS.search(text):
            wrong.append("does not say what it wants")
        if took > 1:
            wrong.append(f"took {took:.1f} s")
        if len(graph.get_operations()) > max(_built, default=0):
            wrong.append("added ops")
        if left := set(threading.enumerate()) - _running:
            wrong.append(f"left threads {left}")
        if new := {name for name in set(os.listdir()) - files if not name.startswith("r.")}:
            wrong.append(f"left files {new}")
        return f"{', '.join(wrong)}: {text}" if wrong else ""


# The ops of the graph and the threads, just before the call.
_built: list[int] = []
_running: set[threading.Thread] = set()


def _ready(value: Any) -> Any:
    _built.append(len(tf.get_default_graph().get_operations()))
    _running.update(threading.enumerate())
    return value


def _shapes(value: Any) -> list[str]:
    """Return what a message may show for the value: itself, its type, or one of its elements."""
    nothing = ("", b"", [], ())
    if value is None or (isinstance(value, (str, bytes, list, tuple)) and value in nothing):
        return ["None", "no ", "empty", "[]", "0 entries", "''", "not declared"]
    shown_as = [shown(value)[:60], type(value).__name__]
    if isinstance(value, str):
        shown_as.append(value)
    if isinstance(value, type):
        shown_as += [value.__name__, "returns"]
    if isinstance(value, dict):
        value = list(value.values())
    if isinstance(value, (list, tuple, set, bytes)) or (isinstance(value, np.ndarray) and value.ndim):
        shown_as += [shown(each) for each in value] + [f"{len(value)} entries", "no ", "empty"]
    elif isinstance(value, (int, np.integer, np.ndarray)) and abs(int(value)) < 2**64:
        shown_as.append(str(int(value)))
    return shown_as


# Arguments that StagingSession passes to tf.train.MonitoredTrainingSession.

_MONITORED: dict[str, set[str]] = {
    "master": _STRINGS,
    "is_chief": _FLAGS,
    "scaffold": _NONE,
    "chief_only_hooks": {"none", "empty_list", "np_empty"},
    "save_checkpoint_secs": _NONE | _SECS,
    "save_checkpoint_steps": _NONE | _whole(-(2**63), _INT64),
    "save_summaries_secs": _NONE | _SECS,
    "save_summaries_steps": _NONE | _whole(-(2**63), _INT64),
    "log_step_count_steps": _NONE | _whole(-(2**63), _INT64),
    "max_wait_secs": _SECS,
    "summary_dir": {"none", "digit", "word"},
    "save_graph_def": _FLAGS,
}


def test_the_table_of_monitored_arguments_is_whole() -> None:
    own = {"checkpoint_dir", "hooks", "config", "stop_grace_period_secs"}
    assert set(inspect.signature(tf.train.MonitoredTrainingSession).parameters) - own == set(_MONITORED)


@pytest.mark.parametrize("name", sorted(_MONITORED))
def test_a_monitored_argument_takes_its_values_or_names_them(name: str) -> None:
    row = Row(lambda value: check_monitored({name: value}), _MONITORED[name])
    problems = [f"{kind}: {found}" for kind, value in HOSTILE.items() if (found := _problem(row, name, kind, value))]
    assert problems == []


def test_an_unknown_monitored_argument_is_named(graph: Any) -> None:
    with pytest.raises(
        TypeError, match=r"^StagingSession got unknown argument 'max_wait'\. Did you mean 'max_wait_secs'\?"
    ):
        staging.StagingSession(max_wait=3)


# A constructor that fails.


class _TooEarly(staging.StagingSession):
    """Fails before it calls the session's own constructor."""

    def __init__(self) -> None:
        raise ValueError("too early")


def test_a_subclass_that_fails_early_is_collected_without_a_word(ignored: list[str]) -> None:
    with pytest.raises(ValueError, match="too early"):
        _TooEarly()
    gc.collect()
    assert ignored == []


def test_an_open_file_whose_name_cannot_be_is_collected_without_a_word(ignored: list[str]) -> None:
    for opened in (tfrecord_read._OpenFile, arrayrecord_read._OpenFile):
        with pytest.raises(Exception):  # noqa: B017
            opened(object(), "mmap")  # type: ignore[arg-type]
    gc.collect()
    assert ignored == []


@pytest.mark.parametrize("shape", [-1, (-1,), (-1, -1), (-1, 0), (-1, -1, 3), (2, -3), (True, 3), [1.5]])
def test_a_shape_has_no_negative_dimension(shape: Any) -> None:
    for dtype in (np.uint8, np.float64, object):
        with pytest.raises(
            (TypeError, ValueError), match=r"^aligned_empty\(\) got shape=.*, expected a whole number or a tu"
        ):
            sources.aligned_empty(shape, dtype)


# Paths that are not regular files.


@pytest.fixture
def pipe(tmp_path: Path) -> Path:
    path = tmp_path / "pipe"
    os.mkfifo(path)
    return path


def test_a_named_pipe_is_no_record_file(pipe: Path) -> None:
    message = rf"^record file '{pipe}' is a named pipe, expected a regular file\.$"
    for make in (sources.TFRecordSource, sources.ArrayRecordSource):
        with pytest.raises(RecordFileError, match=message):
            make(pipe, batch_size=1)


def test_a_named_pipe_in_place_of_an_index_is_named(tmp_path: Path) -> None:
    path = str(tmp_path / "a.tfrecord")
    sources.write_tfrecords(_RECORDS, path)
    os.unlink(path + ".index.npy")
    os.mkfifo(path + ".index.npy")
    with pytest.raises(RecordFileError, match=r"but is not: it has another format\. Delete it to have it recreated"):
        sources.TFRecordSource(path, batch_size=1)


@pytest.mark.parametrize("place", ["pipe", "device", "folder"])
def test_what_is_written_is_a_regular_file(pipe: Path, place: str) -> None:
    path, kind = {
        "pipe": (str(pipe), "a named pipe"),
        "device": ("/dev/full", "a device"),
        "folder": (str(pipe.parent), "a folder"),
    }[place]
    message = rf"='{path}', which is {kind}, expected the path of a regular file\.$"
    for write in (sources.write_tfrecords, sources.write_array_records):
        with pytest.raises(ValueError, match=rf"^{write.__name__} got out" + message):
            write(_RECORDS, path)
    assert os.path.exists(path) and not os.path.isfile(path)


def test_a_named_pipe_is_no_npz_file(pipe: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(data.DataFileError, match="is not a regular file"):
        data.load_images(pipe)
    assert main(["index", "--write", str(tmp_path / "o"), "--from", str(pipe)]) == 1
    assert f"{pipe} is a named pipe, expected an .npz file of named arrays" in capsys.readouterr().err


# The command line.


@pytest.mark.parametrize(
    "words",
    [
        ["train", flag, value]
        for flag in ("--batch-size", "--epochs")
        for value in ("1.5", "-1", "nan", "", "x", str(2**31), str(2**70), "9" * 5000)
    ]
    + [["index", "--write", "o", "--from", "d", "--shards", value] for value in ("0", "1.5", str(2**70))],
    ids=lambda words: " ".join(words)[:40],
)
def test_a_flag_names_its_value(words: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as caught:
        main(words)
    err = capsys.readouterr().err
    assert caught.value.code == 2 and words[-2] in err and "expected" in err and err.count("\n") == 1
