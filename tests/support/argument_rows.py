"""Rows of the table in `test_arguments.py`: areas, feeds, sessions and clusters; and what all rows are made of."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
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


def rows(
    owner: str, call: Callable[..., Any], taken: dict[str, set[str]], *says: str, **more: Any
) -> Iterator[tuple[str, Row]]:
    """Yield the name and the row of each of these arguments, which `call` takes by name."""
    for argument, takes in taken.items():
        yield f"{owner}({argument})", Row(lambda v, argument=argument: call(**{argument: v}), takes, says, **more)


def untried_rows(owner: str, call: Callable[..., Any], valid: dict[str, set[str]]) -> Iterator[tuple[str, Row]]:
    """Yield rows whose valid values are not tried."""
    for argument, values in valid.items():
        yield from rows(owner, call, {argument: set()}, untried=frozenset(values))


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
    named, limits = NONE | STRINGS - {"blank"}, ints(0, INT64)
    for make, owner in ((_area, "BaseStagingArea"), (_map_area, "MapStagingArea")):
        yield from rows(owner, make, {"dtypes": set()}, "dtype")
        taken = {"shapes": NONE, "names": NONE, "shared_name": named, "capacity": limits, "memory_limit": limits}
        yield from rows(owner, make, taken)
    yield from rows("MapStagingArea", _map_area, {"ordered": FLAGS})

    def from_tensors(**options: Any) -> Any:
        return staging.StagingArea.from_tensors(**{"tensors": [np.int64(1)], **options})

    owner = "BaseStagingArea.from_tensors"
    yield from rows(owner, from_tensors, {"tensors": NUMPY_SCALARS | {"np_0d", "np_1d", "np_empty"}}, shows=False)
    limit = ints(8, INT64) | {"zero"}
    taken = {"names": NONE, "capacity": limits, "memory_limit": limit, "shared_name": named}
    yield from rows(owner, from_tensors, taken)

    def of_area(method: str, *given: Any) -> Callable[..., Any]:
        return lambda *value, **option: getattr(ready(_area()), method)(*given, *value, **option)

    def of_map_area(method: str, *given: Any) -> Callable[..., Any]:
        return lambda *value, **option: getattr(ready(_map_area()), method)(*given, *value, **option)

    named = {"name": OP_NAMES | {"blank"}}
    for method in ("size", "clear"):
        yield from rows(f"BaseStagingArea.{method}", of_area(method), named)
    for method, given in (("put", (1,)), ("get", ()), ("peek", (0,))):
        yield from rows(f"StagingArea.{method}", of_area(method, *given), named)
    yield "StagingArea.peek(index)", Row(of_area("peek"), ints(0, INT32))
    values = ints(-INT64, INT64) - {"np_negative"} | {"np_1d"}
    yield "StagingArea.put(values)", Row(of_area("put"), values, ("component",), shows=False)
    yield "MapStagingArea.put(vals)", Row(of_map_area("put", 1), values, ("component", "put got"), shows=False)
    keys = ints(-(2**63), INT64)
    yield "MapStagingArea.put(key)", Row(lambda v: ready(_map_area()).put(v, 1), keys)
    yield "MapStagingArea.get(key)", Row(of_map_area("get"), keys | NONE)
    yield "MapStagingArea.peek(key)", Row(of_map_area("peek"), keys)
    for method, given in (("put", (1, 1)), ("get", (1,)), ("peek", (1,))):
        yield from rows(f"MapStagingArea.{method}", of_map_area(method, *given), {"indices": NONE, **named})
    yield from rows("MapStagingArea.incomplete_size", of_map_area("incomplete_size"), named)


def rows_of_feeds() -> Iterator[tuple[str, Row]]:
    for make, owner in ((_staged, "staged"), (_runner, "CustomRunner")):
        taken = {
            "num_threads": ints(1, MOST_THREADS) | ints(-1, -1),
            "num_processes": ints(0, MOST_THREADS // 2),
            "nice": ints(0, 19),
            "ignored_exception_types": {"empty_list"},
            "cluster": NONE,
            "share": set(),
            "name": OP_NAMES,
        }
        yield from rows(owner, make, taken)
        skips = {"ignored_exception_types": ValueError}
        most = Row(lambda v, make=make, skips=skips: make(**skips, max_ignored=v), NONE | ints(0, INT64))
        yield f"{owner}(max_ignored)", most
    values = {"values": {"list", "set"}}
    yield from rows("staged", _staged, values, "generator", untried=frozenset({"surrogate"}), shows=False)
    taken = {
        "capacity": ints(1, MOST_STAGED),
        "memory_limit": ints(16, INT64) | {"zero"},
        "device": NONE | {"blank"},
        "lockstep": FLAGS,
        "map_fn": NONE,
        "cast": NONE,
        "spec": NONE,
        "resume": set(),
    }
    yield from rows("staged", _staged, taken)
    yield from rows("staged", _staged, {"devices": NONE}, "device")
    numbers = {"np_1d", "np_empty", "list", "empty_list", "set"}
    yield from rows("staged", _staged, {"skip": numbers}, shows=False)
    source = Row(lambda v: _runner(source=v, queue="fifo"), {"list", "set", "tuple"}, ("generator",), shows=False)
    yield "CustomRunner(source)", source
    taken = {
        "batch_size": NONE | ints(1, MOST_QUEUED),
        "queue": set(),
        "capacity": NONE | ints(1, MOST_QUEUED),
        "min_after_dequeue": NONE | ints(0, MOST_QUEUED),
        "seed": NONE | ints(-(2**63), INT64),
    }
    yield from rows("CustomRunner", _runner, taken)
    inputs = Row(lambda v: ready(_runner()).get_inputs(v), NONE | ints(1, 2**20))
    yield "CustomRunner.get_inputs(batch_size)", inputs
    yield from rows("CustomRunner.start_threads", _start_threads, {"sess": set(), "coord": NONE})


def rows_of_sessions() -> Iterator[tuple[str, Row]]:
    for make, owner, untried in (
        (staging.StagingHook, "StagingHook", frozenset()),
        (_session, "StagingSession", _ALIKE),
    ):
        taken = {
            "stop_grace_period_secs": SECS,
            "stall_secs": SECS | NONE,
            "stall_raises": FLAGS,
            "save_on_stop": FLAGS,
        }
        yield from rows(owner, make, taken, untried=untried)
    folders = {"checkpoint_dir": {"none", "blank", "digit", "word"}}
    yield from rows("StagingSession", _session, folders, untried=_ALIKE_AS_NAMES)
    taken = {"hooks": {"none", "empty_list", "np_empty"}, "config": NONE, "cluster": NONE}
    yield from rows("StagingSession", _session, taken)
    fetches = {"fetches": {"empty_list"}}

    def run(**options: Any) -> None:
        _in_session(lambda sess: sess.run(**{"fetches": "fetched:0", **options}))

    def make_callable(**options: Any) -> None:
        _in_session(lambda sess: sess.make_callable(**{"fetches": "fetched:0", **options}))

    for name, call in (("run", run), ("make_callable", make_callable)):
        yield from rows(f"StagingSession.{name}", call, fetches, "fetch", "Fetch", untried=UNPRINTABLE)
    taken = dict.fromkeys(("feed_dict", "options", "run_metadata"), NONE)
    yield from rows("StagingSession.run", run, taken, untried=UNPRINTABLE, shows=False)
    fed = {"feed_list": {"none", "empty_list", "np_empty"}}
    yield from rows("StagingSession.make_callable", make_callable, fed, "feed", untried=UNPRINTABLE, shows=False)
    step_fn = Row(lambda v: _in_session(lambda s: s.run_step_fn(v)), set(), shows=False)
    yield "StagingSession.run_step_fn(step_fn)", step_fn
    hook = staging.StagingSummaryHook
    yield from rows("StagingSummaryHook", hook, {"output_dir": {"digit", "word"}})
    yield from rows("StagingSummaryHook", partial(hook, output_dir="f"), {"save_steps": ints(1, INT64)})
    for call in (staging.start, staging.stats):
        yield f"{call.__name__}(sess)", Row(call, set(), ("session",), shows=False)
    yield from rows("start", _start, {"coord": NONE, "daemon": FLAGS, "stall_secs": SECS | NONE, "stall_raises": FLAGS})


def rows_of_clusters() -> Iterator[tuple[str, Row]]:
    jobs = {"ps": ["a:1"], "worker": ["b:1"]}

    def cluster(**options: Any) -> Any:
        return staging.Cluster(**{"jobs": jobs, "job_name": "worker", "task_index": 0, **options})

    yield "Cluster(jobs)", Row(lambda v: staging.Cluster(v, "worker", 0), set(), ("cluster", "job"), shows=False)
    yield from rows("Cluster", cluster, {"job_name": set()}, "task type")
    yield from rows("Cluster", cluster, {"task_index": {"none", "zero", "digit_zero"}}, "task index")
    taken = {
        "sync": FLAGS,
        "save_copies": FLAGS,
        "allow_missing": FLAGS,
        "start_timeout_secs": SECS,
        "silence_secs": SECS,
    }
    yield from rows("Cluster", cluster, taken)
    yield "Cluster.from_resolver(resolver)", Row(staging.Cluster.from_resolver, set())
    yield from rows("Cluster.session_config", lambda config: cluster().session_config(config), {"config": NONE})
