"""Rows of the table in `test_arguments.py`: areas, feeds, sessions and clusters; and what all rows are made of."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import tensorflow.compat.v1 as tf
from hostile import HOSTILE
from slow import with_slow

import staging_tf1 as staging
from staging_tf1 import sources
from staging_tf1.arguments import MOST_QUEUED, MOST_STAGED, MOST_THREADS

INT32, INT64 = 2**31 - 1, 2**63 - 1
FLAGS = {"true", "false", "np_true", "zero", "one"}
NUMPY_SCALARS = {"np_true", "np_int", "np_negative", "np_half", "np_nan", "np_inf", "np_uint64"}
SECS = {"zero", "one", "three", "half", "fraction", "two_point_zero", "np_int", "np_half"}
NONE = {"none"}
STRINGS = {"digit", "word", "blank", "nul", "surrogate"}
OP_NAMES = {"none", "digit"}


def ints(least: int, most: int) -> set[str]:
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


UNPRINTABLE = frozenset({"unprintable", "10**5000"})


def _area(**options: Any) -> Any:
    return staging.StagingArea(**{"dtypes": [tf.int64], **options})


def _map_area(**options: Any) -> Any:
    return staging.MapStagingArea(**{"dtypes": [tf.int64], **options})


def array(**options: Any) -> Any:
    return sources.ArraySource(**{"arrays": np.arange(10), "batch_size": 2, **options})


def _staged(**options: Any) -> Any:
    return staging.staged(**{"values": array(), **options})


def _runner(**options: Any) -> Any:
    return staging.CustomRunner(**{"source": array(), **options})


# Values whose sessions the default run does not open: others of the same kind are accepted there.
_ALIKE = frozenset() if with_slow() else frozenset({"one", "three", "np_int", "np_half", "np_true"})
_ALIKE_AS_NAMES = frozenset() if with_slow() else frozenset({"word"})


def _session(**options: Any) -> Any:
    if "checkpoint_dir" in options:
        # Checkpoints need a global step, which takes longer to build than a value takes to be refused.
        ready(tf.train.get_or_create_global_step())
    return staging.StagingSession(**options)


# The session of one test, in which all values are tried.
opened: list[Any] = []


def _in_session(run: Callable[[Any], Any]) -> Any:
    if not opened:
        with tf.Graph().as_default():
            tf.constant(1, name="fetched")
            opened.append(staging.StagingSession(stall_secs=0))
    run(ready(opened[0]))
    assert opened[0].run("fetched:0") == 1, "the session goes on"


def _start(**options: Any) -> Any:
    with tf.Session() as sess:
        return staging.start(**{"sess": sess, **options})


def _start_threads(**options: Any) -> Any:
    runner = ready(_runner())
    with tf.Session() as sess:
        for thread in runner.start_threads(**{"sess": sess, **options}):
            sess.close()
            thread.join()


# The ops of the graph and the threads, just before the call.
built: list[int] = []
running: set[threading.Thread] = set()


def ready(value: Any) -> Any:
    built.append(len(tf.get_default_graph().get_operations()))
    running.update(threading.enumerate())
    return value


def rows_of_areas() -> Iterator[tuple[str, Row]]:
    for make, owner in ((_area, "BaseStagingArea"), (_map_area, "MapStagingArea")):
        yield f"{owner}(dtypes)", Row(lambda v, make=make: make(dtypes=v), set(), ("dtype",))
        yield f"{owner}(shapes)", Row(lambda v, make=make: make(shapes=v), NONE)
        yield f"{owner}(names)", Row(lambda v, make=make: make(names=v), NONE)
        yield f"{owner}(shared_name)", Row(lambda v, make=make: make(shared_name=v), NONE | STRINGS - {"blank"})
        yield f"{owner}(capacity)", Row(lambda v, make=make: make(capacity=v), ints(0, INT64))
        yield f"{owner}(memory_limit)", Row(lambda v, make=make: make(memory_limit=v), ints(0, INT64))
    yield "MapStagingArea(ordered)", Row(lambda v: _map_area(ordered=v), FLAGS)

    def from_tensors(**options: Any) -> Any:
        return staging.StagingArea.from_tensors(**{"tensors": [np.int64(1)], **options})

    arrays = NUMPY_SCALARS | {"np_0d", "np_1d", "np_empty"}
    yield "BaseStagingArea.from_tensors(tensors)", Row(lambda v: from_tensors(tensors=v), arrays, shows=False)
    yield "BaseStagingArea.from_tensors(names)", Row(lambda v: from_tensors(names=v), NONE)
    yield "BaseStagingArea.from_tensors(capacity)", Row(lambda v: from_tensors(capacity=v), ints(0, INT64))
    yield (
        "BaseStagingArea.from_tensors(memory_limit)",
        Row(lambda v: from_tensors(memory_limit=v), ints(8, INT64) | {"zero"}),
    )
    yield (
        "BaseStagingArea.from_tensors(shared_name)",
        Row(lambda v: from_tensors(shared_name=v), NONE | STRINGS - {"blank"}),
    )
    names = OP_NAMES | {"blank"}
    yield "BaseStagingArea.size(name)", Row(lambda v: ready(_area()).size(name=v), names)
    yield "BaseStagingArea.clear(name)", Row(lambda v: ready(_area()).clear(name=v), names)
    yield "StagingArea.put(name)", Row(lambda v: ready(_area()).put(1, name=v), names)
    yield "StagingArea.get(name)", Row(lambda v: ready(_area()).get(name=v), names)
    yield "StagingArea.peek(name)", Row(lambda v: ready(_area()).peek(0, name=v), names)
    yield "StagingArea.peek(index)", Row(lambda v: ready(_area()).peek(v), ints(0, INT32))
    values = Row(
        lambda v: ready(_area()).put(v),
        ints(-INT64, INT64) - {"np_negative"} | {"np_1d"},
        ("component",),
        shows=False,
    )
    yield "StagingArea.put(values)", values
    map_values = Row(lambda v: ready(_map_area()).put(1, v), values.takes, ("component", "put got"), shows=False)
    yield "MapStagingArea.put(vals)", map_values
    keys = ints(-(2**63), INT64)
    yield "MapStagingArea.put(key)", Row(lambda v: ready(_map_area()).put(v, 1), keys)
    yield "MapStagingArea.get(key)", Row(lambda v: ready(_map_area()).get(v), keys | NONE)
    yield "MapStagingArea.peek(key)", Row(lambda v: ready(_map_area()).peek(v), keys)
    yield "MapStagingArea.put(indices)", Row(lambda v: ready(_map_area()).put(1, 1, indices=v), NONE)
    yield "MapStagingArea.get(indices)", Row(lambda v: ready(_map_area()).get(1, indices=v), NONE)
    yield "MapStagingArea.peek(indices)", Row(lambda v: ready(_map_area()).peek(1, indices=v), NONE)
    yield "MapStagingArea.put(name)", Row(lambda v: ready(_map_area()).put(1, 1, name=v), names)
    yield "MapStagingArea.get(name)", Row(lambda v: ready(_map_area()).get(1, name=v), names)
    yield "MapStagingArea.peek(name)", Row(lambda v: ready(_map_area()).peek(1, name=v), names)
    yield "MapStagingArea.incomplete_size(name)", Row(lambda v: ready(_map_area()).incomplete_size(name=v), names)


def rows_of_feeds() -> Iterator[tuple[str, Row]]:
    for make, owner in ((_staged, "staged"), (_runner, "CustomRunner")):
        autotune = ints(-1, -1)
        threads = Row(lambda v, make=make: make(num_threads=v), ints(1, MOST_THREADS) | autotune)
        yield f"{owner}(num_threads)", threads
        processes = Row(lambda v, make=make: make(num_processes=v), ints(0, MOST_THREADS // 2))
        yield f"{owner}(num_processes)", processes
        yield f"{owner}(nice)", Row(lambda v, make=make: make(nice=v), ints(0, 19))
        ignored = Row(lambda v, make=make: make(ignored_exception_types=v), {"empty_list"})
        yield f"{owner}(ignored_exception_types)", ignored
        most = Row(lambda v, make=make: make(ignored_exception_types=ValueError, max_ignored=v), NONE | ints(0, INT64))
        yield f"{owner}(max_ignored)", most
        yield f"{owner}(cluster)", Row(lambda v, make=make: make(cluster=v), NONE)
        yield f"{owner}(share)", Row(lambda v, make=make: make(share=v), set())
        yield f"{owner}(name)", Row(lambda v, make=make: make(name=v), OP_NAMES)
    yield (
        "staged(values)",
        Row(lambda v: _staged(values=v), {"list", "set"}, ("generator",), frozenset({"surrogate"}), shows=False),
    )
    yield "staged(capacity)", Row(lambda v: _staged(capacity=v), ints(1, MOST_STAGED))
    yield "staged(memory_limit)", Row(lambda v: _staged(memory_limit=v), ints(16, INT64) | {"zero"})
    yield "staged(device)", Row(lambda v: _staged(device=v), NONE | {"blank"})
    yield "staged(devices)", Row(lambda v: _staged(devices=v), NONE, ("device",))
    yield "staged(lockstep)", Row(lambda v: _staged(lockstep=v), FLAGS)
    yield "staged(cast)", Row(lambda v: _staged(cast=v), NONE)
    yield "staged(spec)", Row(lambda v: _staged(spec=v), NONE)
    yield "staged(resume)", Row(lambda v: _staged(resume=v), set())
    source = Row(lambda v: _runner(source=v, queue="fifo"), {"list", "set", "tuple"}, ("generator",), shows=False)
    yield "CustomRunner(source)", source
    yield "CustomRunner(batch_size)", Row(lambda v: _runner(batch_size=v), NONE | ints(1, MOST_QUEUED))
    yield "CustomRunner(queue)", Row(lambda v: _runner(queue=v), set())
    yield "CustomRunner(capacity)", Row(lambda v: _runner(capacity=v), NONE | ints(1, MOST_QUEUED))
    floor = Row(lambda v: _runner(min_after_dequeue=v), NONE | ints(0, MOST_QUEUED))
    yield "CustomRunner(min_after_dequeue)", floor
    yield "CustomRunner(seed)", Row(lambda v: _runner(seed=v), NONE | ints(-(2**63), INT64))
    inputs = Row(lambda v: ready(_runner()).get_inputs(v), NONE | ints(1, 2**20))
    yield "CustomRunner.get_inputs(batch_size)", inputs
    yield "CustomRunner.start_threads(sess)", Row(lambda v: _start_threads(sess=v), set())
    yield "CustomRunner.start_threads(coord)", Row(lambda v: _start_threads(coord=v), NONE)


def rows_of_sessions() -> Iterator[tuple[str, Row]]:
    for make, owner, secs in (
        (staging.StagingHook, "StagingHook", "stop_grace_period_secs"),
        (_session, "StagingSession", "stop_grace_period_secs"),
    ):
        untried = _ALIKE if make is _session else frozenset()
        yield f"{owner}({secs})", Row(lambda v, make=make, secs=secs: make(**{secs: v}), SECS, untried=untried)
        stall = Row(lambda v, make=make: make(stall_secs=v), SECS | NONE, untried=untried)
        yield f"{owner}(stall_secs)", stall
        raises = Row(lambda v, make=make: make(stall_raises=v), FLAGS, untried=untried)
        yield f"{owner}(stall_raises)", raises
    folders = Row(lambda v: _session(checkpoint_dir=v), {"none", "blank", "digit", "word"}, untried=_ALIKE_AS_NAMES)
    yield "StagingSession(checkpoint_dir)", folders
    yield "StagingSession(hooks)", Row(lambda v: _session(hooks=v), {"none", "empty_list", "np_empty"})
    yield "StagingSession(config)", Row(lambda v: _session(config=v), NONE)
    yield "StagingSession(cluster)", Row(lambda v: _session(cluster=v), NONE)
    run = Row(lambda v: _in_session(lambda s: s.run(v)), {"empty_list"}, ("fetch", "Fetch"), UNPRINTABLE)
    yield "StagingSession.run(fetches)", run
    for argument in ("feed_dict", "options", "run_metadata"):
        row = Row(
            lambda v, argument=argument: _in_session(lambda s: s.run("fetched:0", **{argument: v})),
            NONE,
            untried=UNPRINTABLE,
            shows=False,
        )
        yield f"StagingSession.run({argument})", row
    made = Row(lambda v: _in_session(lambda s: s.make_callable(v)), {"empty_list"}, ("fetch", "Fetch"), UNPRINTABLE)
    yield "StagingSession.make_callable(fetches)", made
    fed = Row(
        lambda v: _in_session(lambda s: s.make_callable("fetched:0", v)),
        {"none", "empty_list", "np_empty"},
        ("feed",),
        UNPRINTABLE,
        shows=False,
    )
    yield "StagingSession.make_callable(feed_list)", fed
    yield (
        "StagingSession.run_step_fn(step_fn)",
        Row(lambda v: _in_session(lambda s: s.run_step_fn(v)), set(), shows=False),
    )
    yield "StagingHook(join_secs)", Row(lambda v: staging.StagingHook(join_secs=v), SECS)
    yield "StagingSummaryHook(output_dir)", Row(lambda v: staging.StagingSummaryHook(output_dir=v), {"digit", "word"})
    steps = Row(lambda v: staging.StagingSummaryHook(output_dir="f", save_steps=v), ints(1, INT64))
    yield "StagingSummaryHook(save_steps)", steps
    yield "StagingSummaryHook(folder)", Row(lambda v: staging.StagingSummaryHook(folder=v), {"digit", "word"})
    steps = Row(lambda v: staging.StagingSummaryHook(folder="f", every_steps=v), ints(1, INT64))
    yield "StagingSummaryHook(every_steps)", steps
    yield "start(sess)", Row(lambda v: staging.start(v), set(), ("session",), shows=False)
    yield "start(coord)", Row(lambda v: _start(coord=v), NONE)
    yield "start(daemon)", Row(lambda v: _start(daemon=v), FLAGS)
    yield "start(stall_secs)", Row(lambda v: _start(stall_secs=v), SECS | NONE)
    yield "start(stall_raises)", Row(lambda v: _start(stall_raises=v), FLAGS)


def _exported(**options: Any) -> Any:
    """There is no checkpoint, so that no model is written. The graph is the test's, or a new one with an op."""
    home = tf.Graph()
    with home.as_default():
        x = tf.constant([1.0])
    given = {"folder": "model", "inputs": {"x": x}, "outputs": {"x": x}, "checkpoint": "none", "graph": home}
    return staging.export_saved_model(**{**given, **options})


def rows_of_export_saved_model() -> Iterator[tuple[str, Row]]:
    """Valid values are not tried: they would write a model."""
    valid = {
        "folder": {"digit", "word"},
        "inputs": set[str](),
        "outputs": set[str](),
        "checkpoint": set[str](),
        "batch_size": NONE | ints(1, INT64),
        "graph": NONE,
    }
    for argument, untried in valid.items():
        row = Row(lambda v, name=argument: _exported(**{name: v}), set(), untried=frozenset(untried))
        yield f"export_saved_model({argument})", row


def rows_of_save_on_stop() -> Iterator[tuple[str, Row]]:
    for make, owner in ((staging.StagingHook, "StagingHook"), (_session, "StagingSession")):
        untried = _ALIKE if make is _session else frozenset()
        yield f"{owner}(save_on_stop)", Row(lambda v, make=make: make(save_on_stop=v), FLAGS, untried=untried)


def rows_of_clusters() -> Iterator[tuple[str, Row]]:
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
    yield "Cluster(sync)", Row(lambda v: cluster(sync=v), FLAGS)
    yield "Cluster(save_copies)", Row(lambda v: cluster(save_copies=v), FLAGS)
    yield "Cluster(allow_missing)", Row(lambda v: cluster(allow_missing=v), FLAGS)
    yield "Cluster(start_timeout_secs)", Row(lambda v: cluster(start_timeout_secs=v), SECS)
    yield "Cluster(silence_secs)", Row(lambda v: cluster(silence_secs=v), SECS)
    yield "Cluster.from_resolver(resolver)", Row(staging.Cluster.from_resolver, set())
    yield "Cluster.session_config(config)", Row(lambda v: cluster().session_config(v), NONE)
