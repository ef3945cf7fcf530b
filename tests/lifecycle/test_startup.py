"""The cost of a start, a stop and a repair is linear in the number of pipelines: each set of ops is prepared once.

TensorFlow processes the whole graph for every new set of ops that a session runs. So the number of such sets must not
grow with the number of pipelines, except for the put of each feed thread.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest
import tensorflow.compat.v1 as tf

import staging_tf1 as staging
from staging_tf1.sources import ArraySource

pytestmark = pytest.mark.usefixtures("quick_graphs")


def source() -> ArraySource:
    return ArraySource({"x": np.arange(64), "y": np.arange(64)}, batch_size=2)


def staged() -> Any:
    return staging.staged(source())["x"]


def queued() -> Any:
    return staging.CustomRunner(source(), queue="fifo").get_inputs()["x"]


def chained() -> Any:
    return staging.staged(staging.CustomRunner(source(), queue="fifo").get_inputs())["x"]


def towers() -> Any:
    return [tower["x"] for tower in staging.staged(source(), devices=["/cpu:0"] * 2)]


def lockstep() -> Any:
    return staging.staged(source(), lockstep=True)["x"]


def dataset() -> Any:
    return staging.staged(tf.data.Dataset.range(64).batch(2))


# For each kind, its number of sinks with their own put, including releases.
KINDS: dict[str, tuple[Callable[[], Any], int]] = {
    "staged": (staged, 1),
    "queued": (queued, 1),
    "chained": (chained, 2),
    "towers": (towers, 4),
    "lockstep": (lockstep, 0),
    "dataset": (dataset, 1),
}


class Calls:
    """Counts the runs of sessions and the callables made; the originals do the work."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.runs = self.callables = 0
        run, make = tf.Session.run, tf.Session._make_callable_from_options

        def counted_run(*args: Any, **kwargs: Any) -> Any:
            self.runs += 1
            return run(*args, **kwargs)

        def counted_make(*args: Any, **kwargs: Any) -> Any:
            self.callables += 1
            return make(*args, **kwargs)

        monkeypatch.setattr(tf.Session, "run", counted_run)
        monkeypatch.setattr(tf.Session, "_make_callable_from_options", counted_make)


@pytest.fixture
def calls(monkeypatch: pytest.MonkeyPatch) -> Iterator[Calls]:
    yield Calls(monkeypatch)


def by_session(outputs: list[Any], failing: Any) -> None:
    with staging.StagingSession() as sess:
        sess.run(outputs)
        for _ in range(2):
            with pytest.raises(tf.errors.InvalidArgumentError):
                sess.run([outputs, failing])
        sess.run(outputs)
        sess.stats()


def by_hand(outputs: list[Any], failing: Any) -> None:
    with tf.Session() as sess:
        sess.run([tf.global_variables_initializer(), tf.local_variables_initializer()])
        coord = tf.train.Coordinator()
        threads = staging.start(sess, coord)
        sess.run(outputs)
        for _ in range(2):
            with pytest.raises(tf.errors.InvalidArgumentError):
                sess.run([outputs, failing])
        sess.run(outputs)
        coord.request_stop()
        coord.join(threads, stop_grace_period_secs=20)


def counted(kind: str, way: Callable[[list[Any], Any], None], number: int, calls: Calls) -> tuple[int, int]:
    calls.runs = calls.callables = 0
    with tf.Graph().as_default():
        outputs = [KINDS[kind][0]() for _ in range(number)]
        with tf.control_dependencies(tf.nest.flatten(outputs)):
            failing = tf.debugging.Assert(tf.constant(False), ["on purpose"])
        way(outputs, failing)
    return calls.runs, calls.callables


# `queued` has threads and `lockstep` an area; `chained` is a `queued` and a `staged` pipeline.
@pytest.mark.slow_cases("staged-by_session|(staged|chained|dataset|towers)-by_hand|queued-by_session")
@pytest.mark.parametrize(
    ("kind", "way"),
    [*((kind, by_session) for kind in KINDS), *((kind, by_hand) for kind in KINDS if kind != "lockstep")],
)
def test_the_number_of_runs_does_not_grow_with_the_pipelines(kind: str, way: Any, calls: Calls) -> None:
    few_runs, few_callables = counted(kind, way, 1, calls)
    many_runs, many_callables = counted(kind, way, 4, calls)
    # In a failed step, only some pipelines may have lost a slot; those are repaired one by one.
    given_back = 3 * 2 * 2 if kind != "queued" else 0
    assert many_runs <= few_runs + given_back
    assert many_callables - few_callables <= 3 * KINDS[kind][1]


def calls_to_start(build: Callable[[], Any], number: int) -> int:
    """Return how many functions this thread calls to build and start this many pipelines."""
    called = 0

    def count(frame: Any, event: str, argument: Any) -> None:
        nonlocal called
        called += event in ("call", "c_call")

    with tf.Graph().as_default():
        sys.setprofile(count)
        try:
            for _ in range(number):
                build()
            session = staging.StagingSession()
        finally:
            sys.setprofile(None)
        session.close()
    return called


# Calls are counted, because seconds differ by half on a busy machine. A scan of the graph calls for each operation.
# `queued` has threads and `lockstep` an area; `chained` is a `queued` and a `staged` pipeline.
@pytest.mark.slow_cases("staged|chained")
@pytest.mark.parametrize("kind", ["staged", "queued", "chained", "lockstep"])
def test_building_and_starting_takes_calls_in_proportion(kind: str) -> None:
    build, _ = KINDS[kind]
    calls_to_start(build, 1)  # one-time imports
    # Three times as many if they are in proportion, and nine times if they grow with the square of the number.
    assert calls_to_start(build, 12) < 3.3 * calls_to_start(build, 4)
