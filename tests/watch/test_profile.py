"""TensorFlow's profile shows the making of each batch, its put, and the steps, by pipeline and batch."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tensorflow as tf2
import tensorflow.compat.v1 as tf
from tensorflow.tsl.profiler.protobuf import xplane_pb2

import staging_tf1 as staging

pytestmark = pytest.mark.usefixtures("quick_graphs")

_BATCHES = 5
_IN_ORDER = list(range(_BATCHES))
Events = dict[str, list[int | None]]


def source(**options: Any) -> Any:
    return staging.sources.ArraySource(np.arange(2 * _BATCHES), batch_size=2, epochs=1, **options)


@contextlib.contextmanager
def profile(folder: Path) -> Iterator[Callable[[], Events]]:
    """Profile the block. Yield a function that returns the numbers of our events in the one file, by their names."""
    tf2.profiler.experimental.start(str(folder))
    try:
        yield lambda: read(folder)
    finally:
        tf2.profiler.experimental.stop()


def read(folder: Path) -> Events:
    (path,) = folder.rglob("*.xplane.pb")
    space = xplane_pb2.XSpace()
    space.ParseFromString(path.read_bytes())
    found: list[tuple[str, int, int | None]] = []
    for plane in space.planes:
        for line in plane.lines:
            for event in line.events:
                name = plane.event_metadata[event.metadata_id].name
                if name == "run" or name.startswith(("feed ", "put ", "step")):
                    stats = {plane.stat_metadata[stat.metadata_id].name: stat.int64_value for stat in event.stats}
                    began = line.timestamp_ns * 1000 + event.offset_ps
                    found.append((name, began, stats.get("step", stats.get("batch"))))
    events: Events = {}
    for name, _, number in sorted(found, key=lambda each: each[1]):
        events.setdefault(name, []).append(number)
    return events


@contextlib.contextmanager
def with_hook() -> Iterator[Any]:
    with tf.train.MonitoredSession(hooks=[staging.StagingHook()]) as sess:
        yield sess


@pytest.mark.parametrize("session", [staging.StagingSession, with_hook], ids=["session", "hook"])
def test_each_batch_is_made_put_and_taken_in_one_file(graph: Any, tmp_path: Path, session: Any) -> None:
    x = staging.staged(source(), name="train")
    with profile(tmp_path) as events, session() as sess:
        for _ in range(_BATCHES):
            sess.run(x)
    found = events()
    if found["feed train"][-1] is None:
        # The feed thread has found the end of the data.
        found["feed train"].pop()
    assert found == dict.fromkeys(("feed train", "put train", "step train"), _IN_ORDER)


def to_the_end(x: Any, folder: Path, of: Callable[[Any, Any], Any] = lambda sess, x: lambda: sess.run(x)) -> Events:
    with profile(folder) as events, staging.StagingSession() as sess:
        step = of(sess, x)
        while not sess.should_stop():
            step()
    return events()


# The last run finds the end of the data.
_STEPS = list(range(_BATCHES + 1))
WAYS: dict[str, tuple[Callable[[], Any], Events]] = {
    "lockstep": (
        # The put is part of the step.
        lambda: staging.staged(source(), lockstep=True, name="train"),
        {"feed train": [*_IN_ORDER, None], "step train": _IN_ORDER},
    ),
    "processes": (
        lambda: staging.staged(source(), num_processes=1, name="train"),
        {"feed train": [*_IN_ORDER, None], "put train": _IN_ORDER, "step train": _STEPS},
    ),
    "a dataset": (
        # The graph makes the batches, within the put.
        lambda: staging.staged(tf.data.Dataset.range(_BATCHES), name="train"),
        {"put train": [None] * (_BATCHES + 1), "step train": _STEPS},
    ),
    "a queue": (
        # Which runs take from a queue is not known.
        lambda: staging.CustomRunner(source(), queue="fifo", name="train").get_inputs(),
        {"feed train": [*_IN_ORDER, None], "put train": _IN_ORDER, "run": _STEPS},
    ),
    "two pipelines": (
        lambda: [staging.staged(source(), name=name) for name in ("train", "other")],
        {
            **{name: [*_IN_ORDER, None] for name in ("feed train", "feed other")},
            **dict.fromkeys(("put train", "put other"), _IN_ORDER),
            "step train other": _STEPS,
        },
    ),
}


@pytest.mark.parametrize("way", WAYS)
def test_the_events_of_each_way_to_feed(graph: Any, tmp_path: Path, way: str) -> None:
    make, expected = WAYS[way]
    found = to_the_end(make(), tmp_path)
    if way == "processes":
        # Two threads read ahead for each, and both find the end of the data.
        found["feed train"] = [*sorted(number for number in found["feed train"] if number is not None), None]
    assert found == expected


def test_several_threads_and_towers(graph: Any, tmp_path: Path) -> None:
    x = staging.staged(source(), devices=["/cpu:0", "/cpu:0"], num_threads=2, capacity=4, name="train")

    def is_whole(events: Events) -> bool:
        feeds = [events.get(f"feed train/{tower}", []) for tower in range(2)]
        puts = [events.get(f"put train/{tower}", []) for tower in range(2)]
        return all({0, 1} <= {*feed} for feed in feeds) and all(put[:2] == [0, 1] for put in puts)

    # TensorFlow 2.15 sometimes loses the events of a thread that has ended.
    profiles = (to_the_end(x, tmp_path / str(number)) for number in range(10))
    events = next(events for events in profiles if is_whole(events))
    assert events["step train"] == [0, 1, 2]


def test_a_callable_and_runs_that_take_nothing_or_fail(graph: Any, tmp_path: Path) -> None:
    x = staging.staged(source(), name="train")
    other = tf.constant(1)
    bad = tf.debugging.check_numerics(tf.constant(np.nan), "no")
    with profile(tmp_path) as events, staging.StagingSession() as sess:
        sess.make_callable(x)()
        sess.run(other)
        with pytest.raises(tf.errors.InvalidArgumentError):
            sess.run([x, bad])
        sess.run(x)
    assert (events()["step train"], events()["run"]) == ([0, 2, 3], [1])


def test_without_a_profile_no_event_is_made(graph: Any, tmp_path: Path) -> None:
    x = staging.staged(source(), name="train")
    with staging.StagingSession() as sess:
        sess.run(x)
        with profile(tmp_path) as events:
            sess.run(x)
        sess.run(x)
    assert events()["step train"] == [1]
