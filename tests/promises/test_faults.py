"""Every fault in every pipeline. Each test states what must hold afterwards.

`test_source_errors.py` has the exceptions that are skipped, and every place where a source can raise.
"""

from __future__ import annotations

import os
import signal
import threading
import traceback
from collections.abc import Callable, Iterator
from itertools import chain
from typing import Any, NamedTuple

import numpy as np
import pytest
import tensorflow.compat.v1 as tf
from pipelines import MIDDLE_SIZES, PIPELINES, RECORDS, BrokenDiskError, Numbers, build, to_the_end
from running import feed_threads
from test_source_errors import SIGNALS, session

import staging_tf1 as staging
from staging_tf1.errors import SourceError, SpecError
from staging_tf1.feed.pipeline import pipelines_of
from staging_tf1.sources import ArraySource, GeneratorSource

pytestmark = [
    pytest.mark.usefixtures("quick_graphs"),
    # Towers that are stopped early leave batches behind, and may warn about it.
    pytest.mark.filterwarnings("ignore::staging_tf1.errors.LeftoverWarning"),
]
COUNT = 12
SPEC = tf.TensorSpec([None], tf.int64)


class Fault(NamedTuple):
    """What a source makes of a batch, the error that this is, and a regular expression of its text."""

    spoil: Callable[[Any], Any]
    kind: type[Exception]
    text: str


def raises(make: Callable[[], Exception]) -> Callable[[Any], Any]:
    def spoil(batch: Any) -> Any:
        raise make() from OSError("a bad block")  # THE LINE

    return spoil


def signals(name: str, make: Callable[[], Exception]) -> Fault:
    said = f"the source raised {name} while it made batch .*of the user's.*not the end of the data"
    return Fault(raises(make), SourceError, said)


FAULTS = {
    "an error": Fault(raises(lambda: BrokenDiskError("gone")), BrokenDiskError, "gone"),
    # A MonitoredSession takes these for the end of the data or for a reason to restart.
    **{name: signals(name, make) for name, make in SIGNALS.items()},
    "another dtype": Fault(
        lambda batch: {**batch, "double": batch["double"].astype(np.float64)},
        SpecError,
        r"component 'double' got float64 \[1\], expected int64 \[[?1]\]",
    ),
    "another rank": Fault(
        lambda batch: {**batch, "double": batch["double"][None]},
        SpecError,
        r"component 'double' got int64 \[1, 1\], expected int64 \[[?1]\]",
    ),
    "an object": Fault(
        lambda batch: {**batch, "double": np.array([{}])},
        SpecError,
        "component 'double' got an array of Python objects",
    ),
    "a component less": Fault(lambda batch: {"id": batch["id"]}, SpecError, "the batch lacks the key 'double'"),
    "a component more": Fault(
        lambda batch: {**batch, "treble": batch["id"]}, SpecError, "the batch has the unknown key 'treble'"
    ),
}


@pytest.mark.thinned
@pytest.mark.slow_cases(MIDDLE_SIZES)
@pytest.mark.parametrize("how", ["StagingSession", "hook"])
@pytest.mark.parametrize("bad", [0, COUNT // 2, COUNT - 1], ids=["first", "middle", "last"])
@pytest.mark.parametrize("fault", FAULTS)
@pytest.mark.parametrize("name", [*PIPELINES, *RECORDS])
def test_a_bad_batch_ends_the_run_with_its_error(graph: Any, name: str, fault: str, bad: int, how: str) -> None:
    spoil, kind, text = FAULTS[fault]
    parts = build(name, Numbers(COUNT, lambda number, batch: spoil(batch) if number == bad else batch))
    steps = tf.get_variable("steps", [], initializer=tf.zeros_initializer()).assign_add(1)
    got: list[int] = []
    runs = 0
    if name.startswith("stream") and fault == "StopIteration":
        # Python itself turns it into this in a generator.
        kind, text = RuntimeError, "generator raised StopIteration"
    with pytest.raises(kind, match=text) as caught, session(how) as sess:
        while not sess.should_stop():
            runs += 1
            count, batches = sess.run([steps, parts])
            assert count == runs, "the model was not initialized again"
            got += [int(batch["id"][0]) for batch in batches]
    error = caught.value
    number = bad // len(parts) if name.startswith("staged") else bad  # in the tower's shard
    if fault == "an error":
        assert (
            isinstance(error.__cause__, OSError) and f"raised while the source made batch {number}" in error.__notes__
        )
        assert "THE LINE" in "".join(traceback.format_tb(error.__traceback__)), "with its own traceback"
    elif kind is SourceError:
        assert type(error.__cause__) is type(SIGNALS[fault]()) and f" it made batch {number}" in str(error)
    elif kind is SpecError:
        assert f": batch {number}: " in str(error)
    assert len(set(got)) == len(got) and set(got) <= set(range(COUNT))
    if len(parts) == 1 and not name.startswith("shuffle"):
        assert got == list(range(len(got))) and len(got) <= bad
    assert feed_threads() == []


@pytest.mark.thinned
@pytest.mark.slow_cases(MIDDLE_SIZES)
@pytest.mark.parametrize("moment", ["early", "token", "late"])
@pytest.mark.parametrize("name", PIPELINES)
def test_failing_steps_cost_at_most_their_own_batches(graph: Any, name: str, moment: str) -> None:
    count, failing = 40, 15
    parts = build(name, Numbers(count))
    fails = tf.placeholder_with_default(False, [])
    after = {"early": [], "late": [part["id"] for part in parts]}.get(moment)
    if after is None:
        # The step already owns the batch, and its slot is not given back yet.
        towers = [sink for pipeline in pipelines_of(graph) for sink in pipeline.sinks if sink.get is not None]
        after = [tower.get.take for tower in towers]
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


def test_a_timeout_leaves_the_pipeline_whole(graph: Any) -> None:
    let_go = threading.Event()

    def source() -> Iterator[Any]:
        yield np.arange(1)
        let_go.wait(10)
        yield from (np.arange(n, n + 1) for n in range(1, 50))

    x = staging.staged(GeneratorSource(source, spec=SPEC), capacity=1)
    with staging.StagingSession() as sess:
        assert sess.run(x).tolist() == [0]
        for _ in range(5):
            with pytest.raises(tf.errors.DeadlineExceededError):
                sess.run(x, options=tf.RunOptions(timeout_in_ms=50))
        let_go.set()
        assert [int(sess.run(x)[0]) for _ in range(49)] == list(range(1, 50))


@pytest.mark.thinned
@pytest.mark.slow_cases(MIDDLE_SIZES)
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
@pytest.mark.slow_cases(MIDDLE_SIZES)
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


@pytest.mark.thinned
@pytest.mark.parametrize("offset", [0, 4, 16, 36, 60])
@pytest.mark.parametrize("kind", ["staged", "threads", "lockstep", "fifo", "shuffle"])
def test_a_staged_batch_never_changes(graph: Any, kind: str, offset: int) -> None:
    room = np.zeros(4096, np.uint8)
    start = -room.ctypes.data % 64 + offset
    buffer = room[start : start + 1024].view(np.int32)

    def source() -> Iterator[Any]:
        for number in range(20):
            buffer[:] = number  # the same buffer each time
            yield buffer

    spec = tf.TensorSpec([256], tf.int32)
    generator = GeneratorSource(source, spec=spec)
    if kind in ("staged", "threads", "lockstep"):
        threads = 4 if kind == "threads" else 1
        x = staging.staged(generator, capacity=4, num_threads=threads, lockstep=kind == "lockstep")
    else:
        size = None if kind == "fifo" else 256
        x = staging.CustomRunner(generator, queue=kind, batch_size=size, min_after_dequeue=None).get_inputs()
    with staging.StagingSession() as sess:
        got = [sess.run(x) for _ in range(20)]
    if kind == "shuffle":
        assert np.bincount(np.concatenate(got)).tolist() == [256] * 20
    else:
        assert [(each.min(), each.max()) for each in got] == [(n, n) for n in range(20)]


def test_what_a_source_gives_away_is_fed_without_a_copy(graph: Any) -> None:
    made: list[Any] = []
    made_second = threading.Event()

    class Spy(ArraySource):
        def batch(self, index: int) -> Any:
            made.append(super().batch(index))
            if index == 1:
                made_second.set()
            return made[-1]

    x = staging.staged(Spy(np.arange(20), batch_size=1, epochs=1), capacity=1)
    with staging.StagingSession() as sess:
        sess.run(x)
        assert made_second.wait(60)
        made[-1][:] = 99  # against the contract, to see whose memory it is
        last = [int(sess.run(x)[0]) for _ in range(3)]
    assert 99 in last, "the staged batch is the array itself"
