"""However a run is stopped, it ends within two seconds (on an idle machine) and leaves no thread running."""

from __future__ import annotations

import os
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tensorflow.compat.v1 as tf
from clusters import until
from forked import ForkServer
from load import slowdown
from processes import RunPython
from running import feed_threads, runs_in

import staging_tf1 as staging
from staging_tf1.background import Background
from staging_tf1.errors import StuckThreadWarning
from staging_tf1.feed.pipeline import pipelines_of
from staging_tf1.feed.pipeline_run import PipelineRun
from staging_tf1.feed.threads import PUTTING
from staging_tf1.sources import ArraySource, GeneratorSource

pytestmark = pytest.mark.usefixtures("quick_graphs")

LIMIT_SECS = 2.0
SPEC = tf.TensorSpec([None], tf.int64)


def endless() -> ArraySource:
    return ArraySource(np.arange(100), batch_size=1)


class Stuck:
    """A source that returns one batch and then blocks until it is released; `waiting` is set while it blocks."""

    def __init__(self) -> None:
        self.waiting, self.let_go = threading.Event(), threading.Event()

    def __call__(self) -> Iterator[Any]:
        yield np.arange(1)
        self.waiting.set()
        self.let_go.wait(30)


PIPELINES = {
    "staged": lambda source: staging.staged(source, num_threads=2),
    "towers": lambda source: staging.staged(source, devices=["/cpu:0", "/cpu:0"])[0],
    "shuffle": lambda source: staging.CustomRunner(source, batch_size=1, num_threads=2).get_inputs(),
    "reproducible": lambda source: staging.CustomRunner(source, batch_size=1, seed=1).get_inputs(),
    "fifo": lambda source: staging.staged(staging.CustomRunner(source, queue="fifo").get_inputs()),
}


def wait_until_full(graph: Any, sess: Any) -> None:
    """Wait until every feed thread waits for a free slot: no put can finish."""
    runs = runs_in(sess, pipelines_of(graph))
    states = [state for run in runs for state in run.states]
    sinks = [run.states_of(tower) for run in runs for tower in range(len(run.sinks))]
    seen: list[Any] = []
    while True:
        now = [(state.doing, state.batches) for state in states]
        # On a busy machine the first put may take that long to begin.
        begun = all(any(state.batches for state in feeding) for feeding in sinks)
        if begun and now == seen and any(doing == PUTTING for doing, _ in now):
            return
        seen = now
        threading.Event().wait(0.05)  # the interval between two checks of the state


@pytest.mark.parametrize("kind", ["staged", "shuffle"])
def test_a_session_may_close_while_feeders_wait_for_room(graph: Any, kind: str) -> None:
    PIPELINES[kind](endless())
    sess = tf.Session()
    coord = tf.train.Coordinator()
    threads = staging.start(sess, coord)
    wait_until_full(graph, sess)
    begun = time.perf_counter()
    sess.close()
    coord.request_stop()
    coord.join(threads, stop_grace_period_secs=60)
    assert time.perf_counter() - begun < LIMIT_SECS * slowdown()
    assert feed_threads() == []


@pytest.mark.parametrize("kind", PIPELINES)
def test_a_step_that_waits_for_input(graph: Any, kind: str) -> None:
    source = Stuck()
    x = PIPELINES[kind](GeneratorSource(source, spec=SPEC))
    stopped: list[float] = []
    with tf.Session() as sess:
        coord = tf.train.Coordinator()
        threads = staging.start(sess, coord)

        def stop() -> None:
            source.waiting.wait(20)
            stopped.append(time.perf_counter())
            coord.request_stop()

        stopper = threading.Thread(target=stop)
        stopper.start()
        with pytest.raises(tf.errors.OutOfRangeError):
            while True:
                sess.run(x)
        took = time.perf_counter() - stopped[0]
        assert took < LIMIT_SECS * slowdown()
        stopper.join()
        source.let_go.set()
        coord.join(threads, stop_grace_period_secs=60)
    assert feed_threads() == []


@pytest.mark.parametrize("kind", PIPELINES)
def test_steps_drain_what_is_staged_when_feeders_that_wait_for_room_are_stopped(graph: Any, kind: str) -> None:
    # Like a queue that a QueueRunner cancelled: loops of TensorFlow 1 expect nothing else.
    x = PIPELINES[kind](ArraySource(np.arange(500), batch_size=1, epochs=1))
    got = []
    with tf.Session() as sess:
        coord = tf.train.Coordinator()
        threads = staging.start(sess, coord)
        wait_until_full(graph, sess)
        begun = time.perf_counter()
        coord.request_stop()
        coord.join(threads, stop_grace_period_secs=60)
        assert time.perf_counter() - begun < LIMIT_SECS * slowdown()
        with pytest.raises(tf.errors.OutOfRangeError):
            while True:
                got.append(int(sess.run(x)[0]))
        with pytest.raises(tf.errors.OutOfRangeError):
            sess.run(x)
    assert feed_threads() == []
    assert 1 <= len(set(got)) == len(got)
    if kind not in ("shuffle", "reproducible"):
        staged = [0, 2] if kind == "towers" else [0, 1]
        assert got in (staged, [*staged, 2]), "all that had been staged, in order, and what waited for room"


@pytest.mark.parametrize("kind", PIPELINES)
def test_a_stop_in_the_middle_of_steps_fails_none_of_them(graph: Any, kind: str) -> None:
    x = PIPELINES[kind](endless())
    towers = [
        output for pipeline in pipelines_of(graph) for sink in pipeline.sinks if sink.get for output in sink.get.outputs
    ]
    ended: list[BaseException] = []
    with tf.Session() as sess:
        coord = tf.train.Coordinator()
        threads = staging.start(sess, coord)
        under_way = threading.Semaphore(0)

        def steps() -> None:
            try:
                while True:
                    sess.run(towers or x)
                    under_way.release()
            except BaseException as error:
                ended.append(error)

        loops = [threading.Thread(target=steps) for _ in range(3)]
        for loop in loops:
            loop.start()
        for _ in range(20):
            under_way.acquire()
        coord.request_stop()
        coord.join(threads, stop_grace_period_secs=60)
        for loop in loops:
            loop.join(10)
    assert [type(error) for error in ended] == [tf.errors.OutOfRangeError] * 3


@pytest.mark.thinned
@pytest.mark.parametrize("way", ["session", "session, after an error", "hook"])
@pytest.mark.parametrize("kind", PIPELINES)
def test_a_source_that_never_returns_is_named_and_left_behind(graph: Any, kind: str, way: str) -> None:
    source = Stuck()
    PIPELINES[kind](GeneratorSource(source, spec=SPEC))
    grace_secs = 0.2
    if way != "hook":
        session: Any = staging.StagingSession(stop_grace_period_secs=grace_secs)
    else:
        hook = staging.StagingHook(stop_grace_period_secs=grace_secs)
        session = tf.train.MonitoredTrainingSession(hooks=[hook], stop_grace_period_secs=grace_secs)
    with pytest.warns(StuckThreadWarning) as caught:
        with suppress(KeyError), session:
            source.waiting.wait(20)
            stopped = time.perf_counter()
            if way == "session, after an error":
                raise KeyError("of the user's")
        took = time.perf_counter() - stopped
    source.let_go.set()
    texts = [str(warning.message) for warning in caught if warning.category is StuckThreadWarning]
    assert took < LIMIT_SECS * slowdown() + 2 * grace_secs
    assert any(" is still in the source after 0.2 s" in text and "__call__()" in text for text in texts)
    for thread in threading.enumerate():
        if thread.name.startswith("feed:"):
            assert thread.daemon, "it keeps no process alive"
            thread.join(10)
    assert feed_threads() == []


def test_a_stop_ends_the_search_for_a_good_batch(graph: Any) -> None:
    begins, may_fail = threading.Semaphore(0), threading.Event()

    def bad() -> Any:
        begins.release()
        may_fail.wait(60)
        raise ValueError("bad")

    numbers = tf.ensure_shape(tf.numpy_function(bad, [], tf.int64), [1])
    staging.staged(numbers, ignored_exception_types=(Exception,))
    with tf.Session() as sess:
        coord = tf.train.Coordinator()
        threads = staging.start(sess, coord)
        assert begins.acquire(timeout=60)
        (run,) = runs_in(sess, pipelines_of(graph))
        coord.request_stop()
        until(lambda: run.sinks[0].cancelled, "the stop has cancelled the puts")
        may_fail.set()
        coord.join(threads, stop_grace_period_secs=60)
    assert not begins.acquire(blocking=False), "no batch after the one that failed"
    assert run.states[0].ignored == 1
    assert feed_threads() == []


def test_a_ctrl_c_while_the_threads_are_started_leaves_none(graph: Any) -> None:
    registered: list[threading.Thread] = []

    class Interrupted(tf.train.Coordinator):  # type: ignore[misc]
        def register_thread(self, thread: threading.Thread) -> None:
            registered.append(thread)
            if len(registered) == 3:
                raise KeyboardInterrupt  # Python may also raise it there

    staging.staged(endless(), num_threads=4)
    coord = Interrupted()
    with tf.Session() as sess:
        with pytest.raises(KeyboardInterrupt):
            staging.start(sess, coord)
        assert coord.should_stop()
        for thread in registered[:2]:
            thread.join(LIMIT_SECS * slowdown())
    assert feed_threads() == []


QUIET_ENDS = """
import runpy
import sys
import numpy as np
import tensorflow.compat.v1 as tf
import staging_tf1 as staging
from running import runs_in
from staging_tf1.feed.pipeline import pipelines_of

tf.disable_v2_behavior()

def until_full(sess):
    # The feed threads hold a batch each, and wait for a slot.
    (run,) = runs_in(sess, pipelines_of(sess.graph))
    (sink,) = run.sinks
    while not (sink.puts()[0] - sink.puts()[1] and sess.run(sink.sink.repair.free) == 0):
        pass

def train(way):
    source = staging.sources.ArraySource(np.arange(9), batch_size=1)
    step = staging.staged(source)
    if way == "session":
        with staging.StagingSession() as sess:
            sess.run(step)
            until_full(sess._hook.session)
        return
    with tf.Session() as sess:
        sess.run(tf.global_variables_initializer())
        coord = tf.train.Coordinator()
        threads = tf.train.start_queue_runners(sess, coord)
        sess.run(step)
        until_full(sess)
        coord.request_stop()
        coord.join(threads)

for way in ("session", "plain"):
    with tf.Graph().as_default():
        train(way)
    print(way, flush=True)
# Towers on two devices.
tf.reset_default_graph()
runpy.run_path(sys.argv[1], run_name="__main__")
"""
TWO_TOWERS = Path(__file__).parents[2] / "examples" / "two_towers.py"


def test_a_run_that_went_well_ends_without_a_word_of_tensorflow(run_python: RunPython) -> None:
    """It warns of each run that fails on several devices, or is cancelled: "Local rendezvous is aborting"."""
    environment = {"TF_CPP_MIN_LOG_LEVEL": "0", "PYTHONPATH": os.pathsep.join(sys.path)}
    done = run_python("-c", QUIET_ENDS, TWO_TOWERS, env=environment)
    assert done.stdout.startswith("session\nplain\n"), done.stderr[-2000:]
    assert done.stdout.endswith("together: 1441 of 1441\n"), done.stderr[-2000:]
    assert "is aborting" not in done.stderr


class Interrupted:
    """A value that Ctrl-C interrupts where TensorFlow holds the lock of all runs of the graph."""

    def __array__(self, dtype: Any = None, copy: Any = None) -> Any:
        tf.get_default_graph()._group_lock._ready.acquire()
        raise KeyboardInterrupt


@pytest.mark.parametrize("takes_a_batch", [True, False])
def test_ctrl_c_that_leaves_the_lock_of_the_runs_locked_ends_the_session(takes_a_batch: bool) -> None:
    with tf.Graph().as_default():
        x = staging.staged(staging.sources.ArraySource(np.arange(8), batch_size=2), name="train")
        fed = tf.placeholder(tf.int64, [])
        with pytest.raises(KeyboardInterrupt), staging.StagingSession() as sess:
            sess.run([x, fed] if takes_a_batch else fed, {fed: Interrupted()})


# Each way runs in a fork, which ends as a program does: with all that Python frees then.
ENDS = """
import os, sys
import numpy as np
import tensorflow.compat.v1 as tf
import staging_tf1 as staging
tf.disable_v2_behavior()
kept = []

class Failing(tf.train.SessionRunHook):
    def after_create_session(self, session, coord):
        raise OSError("the start fails")

def failing(*hooks):
    try:
        tf.train.MonitoredTrainingSession(hooks=hooks)
    except OSError:
        pass

def plain():
    kept.append(tf.Session())
    staging.start(kept[0], tf.train.Coordinator())

def run(sess):
    kept.append(sess)
    sess.run(x)

ways = {
    "hook before ours": lambda: failing(Failing(), staging.StagingHook()),
    "hook after ours": lambda: failing(staging.StagingHook(), Failing()),
    "plain": plain,
    "unclosed": lambda: run(staging.StagingSession()),
    "unclosed monitored": lambda: run(tf.train.MonitoredTrainingSession(hooks=[staging.StagingHook()])),
}
for name, way in ways.items():
    if pid := os.fork():
        print(name, os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]), flush=True)
        continue
    x = staging.staged(staging.sources.ArraySource(np.arange(100), batch_size=1), num_threads=2)
    way()
    break
"""


def test_a_program_that_stops_nothing_ends_without_an_abort(fork_server: ForkServer) -> None:
    ended = fork_server.run("-c", ENDS, whole_end=True)
    ways = ("hook before ours", "hook after ours", "plain", "unclosed", "unclosed monitored")
    assert ended.stdout.splitlines() == [f"{way} 0" for way in ways], ended.stderr
    assert "Traceback" not in ended.stderr


class Unwilling(tf.train.SessionRunHook):  # type: ignore[misc]
    def after_create_session(self, session: Any, coord: Any) -> None:
        raise OSError("the start fails")


@pytest.mark.parametrize("hooks", ["hooks", "chief_only_hooks"])  # after ours, and before it
def test_a_start_that_fails_leaves_no_thread(graph: Any, hooks: str, monkeypatch: pytest.MonkeyPatch) -> None:
    joined = threading.Event()
    join, stop = Background.join, PipelineRun._stop_with_others

    def join_noted(thread: Background, secs: float | None = None) -> None:
        if thread.name.endswith(":stop"):
            joined.set()
        join(thread, secs)

    def stop_when_joined(run: PipelineRun) -> None:
        joined.wait(60)
        stop(run)

    monkeypatch.setattr(Background, "join", join_noted)
    # The thread that waits for the coordinator is the last to end.
    monkeypatch.setattr(PipelineRun, "_stop_with_others", stop_when_joined)
    staging.staged(endless(), num_threads=2)
    with pytest.raises(OSError, match="the start fails"):
        staging.StagingSession(**{hooks: [Unwilling()]})
    assert feed_threads() == []
