"""Sessions that are lost and recreated, by MonitoredSession or by the user: nothing is lost, repeated or left."""

from __future__ import annotations

import gc
import re
import threading
import time
from collections.abc import Iterator
from itertools import chain
from typing import Any

import numpy as np
import pytest
import tensorflow.compat.v1 as tf
from pipelines import INDEXED, MIDDLE_SIZES, Numbers, build, to_the_end
from running import feed_threads, run_in

import staging_tf1 as staging
from staging_tf1.feed import feeding
from staging_tf1.feed.feeding import Feeding
from staging_tf1.feed.pipeline import pipelines_of
from staging_tf1.feed.pipeline_run import PipelineRun
from staging_tf1.graph.state import state_of
from staging_tf1.sources import ArraySource, StreamSource
from staging_tf1.spec import ArraySpec

pytestmark = pytest.mark.usefixtures("quick_graphs")

COUNT = 24
_QUIET: dict[str, Any] = dict(
    log_step_count_steps=0, save_summaries_steps=0, save_checkpoint_steps=4, save_graph_def=False
)


class Preempted(tf.train.SessionRunHook):  # type: ignore[misc]
    """Loses the session after three of its runs, twice in a row and once later; records the total at the end."""

    def __init__(self, total: Any = (), at: tuple[int, ...] = (3, 4, 9)) -> None:
        self._variable, self._at = total, at
        self.runs = self.total = 0

    def after_run(self, context: Any, values: Any) -> None:
        self.runs += 1
        if self.runs in self._at:
            raise (tf.errors.AbortedError if self.runs % 2 else tf.errors.UnavailableError)(None, None, "preempted")

    def end(self, session: Any) -> None:
        self.total = session.run(self._variable)


@pytest.mark.thinned
@pytest.mark.slow_cases(MIDDLE_SIZES)
@pytest.mark.parametrize("way", ["session", "hook"])
@pytest.mark.parametrize("name", INDEXED)
def test_a_recovery_loses_and_repeats_nothing(graph: Any, tmp_path: Any, name: str, way: str) -> None:
    parts = build(name, Numbers(COUNT))
    total = tf.get_variable("total", [], tf.int64, initializer=tf.zeros_initializer(), use_resource=True)
    seen = tf.add_n([tf.reduce_sum(part["id"]) for part in parts])
    train = tf.group(total.assign_add(seen), tf.train.get_or_create_global_step().assign_add(1))
    hook = Preempted(total)
    # A queue has no position that a checkpoint could hold: a lost run starts again, with model and data.
    folder = str(tmp_path) if name.startswith("staged") else None
    if way == "session":
        session: Any = staging.StagingSession(checkpoint_dir=folder, hooks=[hook], **_QUIET)
    else:
        session = tf.train.MonitoredTrainingSession(
            checkpoint_dir=folder, hooks=[staging.StagingHook(), hook], **_QUIET
        )
    with session as sess:
        while not sess.should_stop():
            sess.run(train)
    assert hook.runs >= COUNT // len(parts) + 3, "steps that no checkpoint held came again"
    assert hook.total == sum(range(COUNT)), "each record is in the model once"
    assert feed_threads() == []


class FailsAtTheStart(tf.train.SessionRunHook):  # type: ignore[misc]
    """Makes MonitoredSession create the session again, when the feed threads of the first one wait for room."""

    def __init__(self, capacity: int) -> None:
        self._puts = (capacity + 1, capacity)
        self.starts = 0

    def after_create_session(self, session: Any, coord: Any) -> None:
        self.starts += 1
        if self.starts > 1:
            return
        runs = [run_in(session, pipeline) for pipeline in pipelines_of(session.graph)]
        while not all(run is not None and sink.puts() == self._puts for run in runs for sink in run.sinks):
            time.sleep(0.001)
        raise tf.errors.AbortedError(None, None, "preempted")


@pytest.mark.parametrize("first", ["failing hook", "our hook"])
@pytest.mark.parametrize("towers", [1, 2])
def test_an_area_on_a_server_gets_nothing_of_an_abandoned_session(graph: Any, first: str, towers: int) -> None:
    server = tf.train.Server.create_local_server()
    parts = staging.staged(Numbers(COUNT), capacity=2, devices=["/cpu:0"] * towers)
    failing = FailsAtTheStart(capacity=2)
    hooks = [staging.StagingHook(), failing] if first == "our hook" else [failing, staging.StagingHook()]
    creator = tf.train.ChiefSessionCreator(master=server.target)
    with tf.train.MonitoredSession(creator, hooks=hooks) as sess:
        got = to_the_end(sess.run, parts)
    assert failing.starts == 2
    assert list(chain(*zip(*got, strict=True))) == list(range(COUNT))


class Refuses(tf.train.SessionRunHook):  # type: ignore[misc]
    """Fails before the session is created, or after its feed threads have started."""

    def __init__(self, when: str) -> None:
        self._when = when

    def begin(self) -> None:
        self._refuse("begin")

    def after_create_session(self, session: Any, coord: Any) -> None:
        self._refuse("after_create_session")

    def _refuse(self, now: str) -> None:
        if now == self._when:
            raise ValueError("refused")


@pytest.mark.parametrize("when", ["begin", "after_create_session"])
def test_a_session_that_cannot_be_created_leaves_the_graph_to_the_next_one(graph: Any, when: str) -> None:
    x = staging.staged(Numbers(3))
    staging.staged(Numbers(3), name="other")
    with pytest.raises(ValueError, match="refused"):
        staging.StagingSession(hooks=[Refuses(when)])
    assert feed_threads() == []
    assert not state_of(graph).start_together
    with staging.StagingSession() as sess:
        assert to_the_end(sess.run, [x]) == [[0, 1, 2]]


class FailsBesideASlowPut(tf.train.SessionRunHook):  # type: ignore[misc]
    """Makes MonitoredSession create the session again, while the first one computes what it puts."""

    def __init__(self, computes: threading.Event) -> None:
        self._computes = computes

    def after_create_session(self, session: Any, coord: Any) -> None:
        assert self._computes.wait(60)
        raise tf.errors.AbortedError(None, None, "preempted")


def test_a_put_of_an_abandoned_session_that_does_not_end_is_named(graph: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(feeding, "_END_SECS", 1.0)
    computes, may_end = threading.Event(), threading.Event()

    def slow(number: Any) -> Any:
        computes.set()
        may_end.wait(60)
        return number

    server = tf.train.Server.create_local_server()
    staging.staged(tf.data.Dataset.range(3).map(lambda n: tf.numpy_function(slow, [n], tf.int64)), name="slow")
    hook = staging.StagingHook()
    creator = tf.train.ChiefSessionCreator(master=server.target)
    try:
        with pytest.raises(staging.errors.ClusterError) as caught:
            tf.train.MonitoredSession(creator, hooks=[hook, FailsBesideASlowPut(computes)])
    finally:
        may_end.set()
        hook.stop()
    assert re.sub(r"(?<=py:)\d+", "LINE", str(caught.value)) == (
        f"'slow' (made at test_recovery.py:LINE): a put of an earlier session on {server.target} is still running "
        "after 1 s. Its batch would go into this session's area. Close the earlier session, or restart the process."
    )


def test_pipelines_of_every_kind_run_again_and_again_without_growing(graph: Any) -> None:
    names = ["queue", "classic, 3 threads, 2 towers", "staged, 1 threads, 2 towers", "stream, 3 threads, 1 towers"]
    pipelines = [build(name, Numbers(4)) for name in [*names, "staged in lockstep, 2 towers"]]
    sizes = []
    for _ in range(4):
        with staging.StagingSession() as sess:
            got = [to_the_end(sess.run, parts) for parts in pipelines]
        assert all(sorted(chain(*each)) == [0, 1, 2, 3] for each in got)
        assert feed_threads() == []
        sizes.append(len(graph.get_operations()))
    assert sizes[0] == sizes[-1]
    gc.collect()
    of_graph = set(pipelines_of(graph))
    live = [obj for obj in gc.get_objects() if isinstance(obj, PipelineRun) and obj.pipeline in of_graph]
    assert len(live) <= 2 * len(names), "the runs of closed sessions are collected"


def broken(number: Any) -> Any:
    if number % 10 == 7:
        raise OSError(f"no record {number}")
    return np.int64(number)


@pytest.mark.thinned
@pytest.mark.parametrize(("threads", "towers", "lockstep"), [(1, 1, 0), (3, 1, 0), (1, 2, 0), (1, 1, 1), (1, 2, 1)])
@pytest.mark.parametrize("ignores", [False, True])
def test_a_python_worker_of_a_parallel_map(graph: Any, threads: int, towers: int, lockstep: int, ignores: bool) -> None:
    numbers = tf.data.Dataset.range(20).map(lambda n: tf.numpy_function(broken, [n], tf.int64), num_parallel_calls=2)
    options: dict[str, Any] = dict(num_threads=threads, lockstep=bool(lockstep), devices=["/cpu:0"] * towers)
    if ignores:
        options["ignored_exception_types"] = (tf.errors.UnknownError,)
    parts = staging.staged(numbers, **options)
    got: list[int] = []

    def run(sess: Any) -> None:
        for towers_of_step in [parts, *([part] for part in parts)]:
            try:
                while True:
                    got.extend(int(n) for n in sess.run(towers_of_step))
            except tf.errors.OutOfRangeError:
                continue

    if ignores:
        with staging.StagingSession() as sess:
            run(sess)
            skipped = sum(record.ignored for record in sess.stats())
        assert sorted(got) == [n for n in range(20) if n % 10 != 7] and skipped == 2
    else:
        with pytest.raises(tf.errors.UnknownError, match="OSError: no record 7"), staging.StagingSession() as sess:
            run(sess)
        assert len(set(got)) == len(got) and 7 not in got
    assert feed_threads() == []


class Misfits(StreamSource):
    """Each even batch at the start, so all batches of one of two towers, contradicts the declared spec."""

    spec = ArraySpec((1,), np.int64)

    def resolve_spec(self) -> Any:
        return self.spec

    def batches(self, start: int = 0) -> Iterator[Any]:
        for number in range(start, 24):
            yield np.full([1 if number % 2 or number >= 12 else 2], number)


@pytest.mark.thinned
@pytest.mark.parametrize("threads", [1, 3])
@pytest.mark.parametrize("lockstep", [False, True])
def test_batches_that_do_not_fit_cost_a_tower_no_turn(graph: Any, threads: int, lockstep: bool) -> None:
    parts = staging.staged(
        Misfits(),
        capacity=1,
        num_threads=1 if lockstep else threads,
        lockstep=lockstep,
        devices=["/cpu:0"] * 2,
        ignored_exception_types=(staging.errors.SpecError,),
    )
    got: list[int] = []
    with staging.StagingSession(stall_secs=20, stall_raises=True) as sess:
        while not sess.should_stop():
            got.extend(int(each[0]) for each in sess.run(parts))
    assert got == [number for number in range(24) if number % 2 or number >= 12]
    assert sum(record.ignored for record in sess.stats()) == 6
    assert feed_threads() == []


@pytest.mark.parametrize("is_preempted", [False, True])
def test_pipelines_start_together_until_an_error_ends_the_session(graph: Any, is_preempted: bool) -> None:
    x = staging.staged(ArraySource(np.arange(8), batch_size=1))
    hooks = [staging.StagingHook(), *([Preempted(at=(1,))] if is_preempted else [])]
    with pytest.raises(ValueError, match="asked to"), tf.train.MonitoredTrainingSession(hooks=hooks) as sess:
        sess.run(x)
        assert state_of(graph).start_together, "also after the session was created again"
        raise ValueError("asked to")
    assert not state_of(graph).start_together


def test_a_session_that_is_created_again_prepares_its_pipelines_together(graph: Any, monkeypatch: Any) -> None:
    # For each set of ops, TensorFlow goes through the whole graph; and a cluster's chief tells of all of them at once.
    both = [staging.staged(ArraySource(np.arange(8), batch_size=1)) for _ in range(2)]
    together: list[int] = []
    prepare = Feeding.prepare

    def noted(self: Feeding, pipelines: Any) -> None:
        together.append(len(pipelines))
        prepare(self, pipelines)

    monkeypatch.setattr(Feeding, "prepare", noted)
    hooks = [staging.StagingHook(), Preempted(at=(1,))]
    with tf.train.MonitoredTrainingSession(hooks=hooks) as sess:
        sess.run(both)
    assert together == [2, 2]
