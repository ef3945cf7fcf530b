"""Every fault in every pipeline. Each test states what must hold afterwards."""

from __future__ import annotations

import os
import signal
import threading
from itertools import chain
from typing import Any

import numpy as np
import pytest
import tensorflow.compat.v1 as tf
from pipelines import INDEXED, PIPELINES, BrokenDiskError, Numbers, build, to_the_end
from running import feed_threads

import staging_tf1 as staging
from staging_tf1.errors import SpecError
from staging_tf1.feed.pipeline import pipelines_of

pytestmark = [
    pytest.mark.usefixtures("quick_graphs"),
    # Towers that are stopped early leave batches behind, and may warn about it.
    pytest.mark.filterwarnings("ignore::staging_tf1.errors.LeftoverWarning"),
]
# Some threads and some towers, where the default run has one of each, and several of both.
SOME_LEFT_OUT = pytest.mark.slow_cases(".*(1 threads, 2 towers|3 threads, 1 towers|lockstep, 1 towers).*")

COUNT = 12


@pytest.mark.thinned
@SOME_LEFT_OUT
@pytest.mark.parametrize("bad", [0, COUNT // 2, COUNT - 1], ids=["first", "middle", "last"])
@pytest.mark.parametrize("name", PIPELINES)
def test_what_a_source_raises_leaves_the_session(graph: Any, name: str, bad: int) -> None:
    raised = []

    def trouble(number: int, batch: Any) -> Any:
        if number != bad:
            return batch
        raised.append(BrokenDiskError(f"record {number}"))
        raise raised[-1] from OSError("a bad block")

    parts = build(name, Numbers(COUNT, trouble))
    got: list[list[int]] = []
    with pytest.raises(BrokenDiskError) as caught, staging.StagingSession() as sess:
        got += to_the_end(sess.run, parts)
    assert caught.value in raised, "the exception itself"
    assert isinstance(caught.value.__cause__, OSError), "and what caused it"
    assert got == [], "no way to the end of the data"
    assert feed_threads() == []


MISFITS = {
    "dtype": (lambda batch: {**batch, "double": batch["double"].astype(np.float64)}, "component 'double' got float64"),
    "rank": (lambda batch: {**batch, "double": batch["double"][None]}, "component 'double' got int64 [1, 1], expected"),
    "missing": (lambda batch: {"id": batch["id"]}, "'double'"),
    "unknown": (lambda batch: {**batch, "treble": batch["id"]}, "the batch has the unknown key 'treble'"),
}


@pytest.mark.thinned
@SOME_LEFT_OUT
@pytest.mark.parametrize("fault", MISFITS)
@pytest.mark.parametrize("name", PIPELINES)
def test_a_batch_that_does_not_fit_is_named(graph: Any, name: str, fault: str) -> None:
    spoil, text = MISFITS[fault]
    parts = build(name, Numbers(COUNT, lambda number, batch: spoil(batch) if number == 5 else batch))
    with pytest.raises(SpecError) as caught, staging.StagingSession() as sess:
        to_the_end(sess.run, parts)
    assert text in str(caught.value) and ": batch " in str(caught.value)
    assert feed_threads() == []


@SOME_LEFT_OUT
@pytest.mark.parametrize("name", INDEXED)
def test_ignored_exceptions_cost_their_batches_only(graph: Any, name: str) -> None:
    def trouble(number: int, batch: Any) -> Any:
        if number % 5 == 3:
            raise BrokenDiskError(f"record {number}")
        return batch

    parts = build(name, Numbers(COUNT, trouble), ignored_exception_types=(BrokenDiskError,), max_ignored=2)
    with staging.StagingSession() as sess:
        got = to_the_end(sess.run, parts)
        ignored = sum(stats.ignored for stats in sess.stats())
    assert all(ids == sorted(ids) for ids in got), "in order"
    assert sorted(chain(*got)) == [n for n in range(COUNT) if n % 5 != 3], "the others once each"
    assert ignored == 2
    assert feed_threads() == []


@pytest.mark.thinned
@SOME_LEFT_OUT
@pytest.mark.parametrize("moment", ["early", "token", "late"])
@pytest.mark.parametrize("name", PIPELINES)
def test_failing_steps_cost_at_most_their_own_batches(graph: Any, name: str, moment: str) -> None:
    count, failing = 40, 15
    parts = build(name, Numbers(count))
    fails = tf.placeholder_with_default(False, [])
    after = {"early": [], "late": [part["id"] for part in parts]}.get(moment)
    if after is None:
        # The step already owns the batch, and its slot is not given back yet.
        towers = [sink for pipeline in pipelines_of(graph) for sink in pipeline.sinks if sink.area is not None]
        after = [tower.take for tower in towers]
    with tf.control_dependencies(after):
        check = tf.raw_ops.Assert(condition=tf.logical_not(fails), data=["NaN"])
    with staging.StagingSession() as sess:
        for _ in range(failing):
            with pytest.raises(tf.errors.InvalidArgumentError, match="NaN"):
                sess.run([parts, check], {fails: True})
        got = to_the_end(sess.run, parts)
        stats = sess.stats()
    everything = [*chain(*got)]
    assert len(set(everything)) == len(everything), "none twice"
    assert all(ids == sorted(ids) for ids in got), "in order"
    assert count - len(everything) <= failing * len(parts), "a failed step takes one batch a tower at most"
    if not name.startswith("queue"):
        failed = sum(len(record.failed_batches) for record in stats)
        assert failed + len(everything) == count, "an account of every batch"
    assert feed_threads() == []


@pytest.mark.thinned
@SOME_LEFT_OUT
@pytest.mark.parametrize("how", ["break", "raise", "close", "request_stop"])
@pytest.mark.parametrize("name", PIPELINES)
def test_a_run_that_is_stopped_leaves_nothing(graph: Any, name: str, how: str) -> None:
    parts = build(name, Numbers(COUNT))

    class Stops(tf.train.SessionRunHook):
        def after_run(self, context: Any, values: Any) -> None:
            if how == "request_stop":
                context.request_stop()

    try:
        with staging.StagingSession(hooks=[Stops()]) as sess:
            first = sess.run(parts)
            assert sess.should_stop() == (how == "request_stop")
            if how == "raise":
                raise BrokenDiskError
            if how == "close":
                sess.close()
                sess.close()
    except BrokenDiskError:
        pass
    assert feed_threads() == []
    with staging.StagingSession() as sess:
        again = to_the_end(sess.run, parts)
    assert sorted(chain(*again)) == list(range(COUNT)), "the next session sees everything, and nothing twice"
    assert [ids[0] for ids in again] == [int(part["id"][0]) for part in first]


WAITING = [name for name in PIPELINES if "lockstep" not in name]


# Ctrl-C may arrive during a `__del__`: Python reports and drops the KeyboardInterrupt, and the step still ends.
# Any other dropped exception stays an error.
MAY_BE_DROPPED = pytest.mark.filterwarnings(
    r"ignore:[\s\S]*\bKeyboardInterrupt\b:pytest.PytestUnraisableExceptionWarning"
)


def monitored_session() -> Any:
    return tf.train.MonitoredTrainingSession(hooks=[staging.StagingHook()], stop_grace_period_secs=20)


@pytest.mark.thinned
@SOME_LEFT_OUT
@MAY_BE_DROPPED
@pytest.mark.parametrize("make", [lambda: staging.StagingSession(stop_grace_period_secs=20), monitored_session])
@pytest.mark.parametrize("name", WAITING)
def test_ctrl_c_reaches_a_step_that_waits(graph: Any, name: str, make: Any) -> None:
    in_loop, let_go = threading.Event(), threading.Event()
    sent: list[int] = []

    def trouble(number: int, batch: Any) -> Any:
        if number >= 4:
            in_loop.wait(30)
            sent.append(number)
            if len(sent) == 1:
                os.kill(os.getpid(), signal.SIGINT)
            let_go.wait(30)
        return batch

    parts = build(name, Numbers(COUNT, trouble))
    with pytest.raises(KeyboardInterrupt):
        try:
            with make() as sess:
                sess.run(parts)
                in_loop.set()
                try:
                    while True:
                        sess.run(parts)
                finally:
                    let_go.set()
        finally:
            in_loop.set()
            let_go.set()
    assert feed_threads() == []


class InterruptedWhileItGoes:
    """Ctrl-C during a `__del__`, where Python reports the KeyboardInterrupt and drops it."""

    def __del__(self) -> None:
        signal.raise_signal(signal.SIGINT)


@MAY_BE_DROPPED
@pytest.mark.parametrize("make", [staging.StagingSession, monitored_session])
def test_ctrl_c_that_python_drops_ends_the_steps_all_the_same(graph: Any, make: Any) -> None:
    x = staging.staged(staging.sources.ArraySource(np.arange(4), batch_size=1))
    with pytest.raises(KeyboardInterrupt):
        with make() as sess:
            sess.run(x)
            dropped = InterruptedWhileItGoes()
            del dropped
            while True:
                sess.run(x)
    assert feed_threads() == []
