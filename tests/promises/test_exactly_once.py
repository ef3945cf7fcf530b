"""Exactly once: each kind of source x each way to feed x each way to end; then sizes, threads and orders at random."""

from __future__ import annotations

import itertools
import signal
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tensorflow.compat.v1 as tf
from forked import ForkServer
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st
from once import BAD, COUNT, FEEDS, SOURCES, Model, build, consumed, seen, session, steps
from slow import examples, some_of, with_all, with_slow

import staging_tf1 as staging
from staging_tf1.errors import SpecError
from staging_tf1.sources import ArraySource

PROGRAM = Path(__file__).parents[1] / "support" / "once.py"
Make = Callable[[], Model]


class StopsAt(tf.train.SessionRunHook):  # type: ignore[misc]
    """Calls `stop` after so many runs."""

    def __init__(self, runs: int, stop: Callable[[Any], None]) -> None:
        self._runs, self._stop = runs, stop

    def after_run(self, context: Any, values: Any) -> None:
        self._runs -= 1
        if self._runs == 0:
            self._stop(context)


class UserError(Exception):
    """Raised between two steps."""


def preempt(context: Any) -> None:
    raise tf.errors.AbortedError(None, None, "preempted")


def to_the_end(folder: Path, make: Make, *hooks: Any) -> None:
    """Run steps until the data ends, or a hook ends the session."""
    model = make()
    with session(folder, *hooks) as sess:
        for _ in steps(sess, model):
            pass


def failing_first(folder: Path, make: Make) -> None:
    model = make()
    with session(folder) as sess:
        for _ in range(5):
            with pytest.raises(tf.errors.InvalidArgumentError, match="the step fails"):
                sess.run([model.train, model.step, model.fail])
        for _ in steps(sess, model):
            pass


def requested(folder: Path, make: Make) -> None:
    to_the_end(folder, make, StopsAt(5, lambda context: context.request_stop()))


def closed(folder: Path, make: Make) -> None:
    model = make()
    with session(folder) as sess:
        for _ in itertools.islice(steps(sess, model), 5):
            pass
        sess.close()


def raised(folder: Path, make: Make) -> None:
    model = make()
    with pytest.raises(UserError), session(folder) as sess:
        for _ in itertools.islice(steps(sess, model), 6):
            pass
        raise UserError


def lost(folder: Path, make: Make) -> None:
    to_the_end(folder, make, StopsAt(3, preempt), StopsAt(7, preempt))


# The runs of the same program, each in a new graph and session. The last one comes to the end of the data.
ENDS: dict[str, tuple[Callable[[Path, Make], None], ...]] = {
    "the end of the data": (to_the_end,),
    "failing steps, caught": (failing_first,),
    "bad records, skipped": (to_the_end,),
    "a lost session, recovered": (lost,),
    "request_stop, resumed": (requested, to_the_end),
    "close, resumed": (closed, to_the_end),
    "an exception, resumed": (raised, to_the_end),
}
QUEUES = ("queue of batches", "queue of records")
IN_ORDER = "which can only be read in order: no process could make batch 7 without the batches before it"
NO_BATCHES = "got arrays as source .*expected batches"
TENSORS = ("tensors of a queue", "tensors of a CustomRunner")

# Queues, and tensors that the graph computes, have no position: each run begins with the first batch.
ANEW = {*QUEUES, *TENSORS}

# What is refused when the pipeline is made.
REFUSED: dict[tuple[str, str], tuple[type[Exception], str]] = {
    **{(source, queue): (TypeError, NO_BATCHES) for source in TENSORS for queue in QUEUES},
    **{(source, "towers in lockstep"): (ValueError, "all towers would get the same batch") for source in TENSORS},
    **{
        (source, "processes"): (TypeError, IN_ORDER)
        for source in ("GrainSource, a stream", "StreamSource", "GeneratorSource", "tf.data", *TENSORS)
    },
    **{
        (source, "map_fn"): (ValueError, "got map_fn= with values that the graph computes")
        for source in ("tf.data", *TENSORS)
    },
    **{("tf.data", queue): (SpecError, "whose elements have no values while a graph is built") for queue in QUEUES},
}
# What no page promises, by two of source, feed and end.
UNPROMISED = (
    # Several threads read a dataset in no order, and towers have several.
    *({"tf.data", feed, end} for feed in ("threads", "towers") for end in ENDS if len(ENDS[end]) > 1),
    *({"tf.data", feed, "a lost session, recovered"} for feed in ("threads", "towers")),
    # Grain's iterators end when a record raises.
    {"GrainSource, a stream", "bad records, skipped"},
    # A lost session takes the model from the checkpoint, and the data from the beginning.
    *({anew, "a lost session, recovered"} for anew in ANEW),
)
CASES = [
    case
    for case in itertools.product(SOURCES, FEEDS, ENDS)
    if case[:2] not in REFUSED and not any(some <= {*case} for some in UNPROMISED)
]


@pytest.mark.parametrize(("source", "feed", "end"), some_of(CASES))
def test_the_model_has_each_record_once(tmp_path: Path, source: str, feed: str, end: str) -> None:
    needs(source)
    folder, bad, before = tmp_path / "model", end == "bad records, skipped", np.int64(0)
    for run in ENDS[end]:
        before = seen(folder) if ANEW & {source, feed} and run is not ENDS[end][0] else before
        with tf.Graph().as_default():
            run(folder, lambda: build(tmp_path, source, feed, bad=bad))
    assert (seen(folder) - before).tolist() == [0 if bad and number in BAD else 1 for number in range(COUNT)]
    if not bad and not ANEW & {source, feed}:
        assert consumed(folder) == COUNT


@pytest.mark.parametrize(("source", "feed"), REFUSED)
def test_what_could_not_be_once_is_refused(tmp_path: Path, source: str, feed: str) -> None:
    needs(source)
    error, text = REFUSED[source, feed]
    with tf.Graph().as_default(), pytest.raises(error, match=text):
        build(tmp_path, source, feed)


# Each feed with one signal: test_save_on_stop.py and test_kill9.py have more moments.
@pytest.mark.thinned
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGKILL], ids=lambda each: each.name)
@pytest.mark.parametrize(
    ("source", "feed"),
    [
        ("ArraySource", "towers"),
        ("GeneratorSource", "one thread"),
        ("MapSource", "processes"),
        ("StreamSource", "threads"),
        ("tf.data", "lockstep"),
    ],
)
@pytest.mark.slow_cases(r"(?!(ArraySource.*|MapSource.*)$).*")
def test_a_signal_in_the_middle(
    fork_server: ForkServer, tmp_path: Path, source: str, feed: str, number: signal.Signals
) -> None:
    count = 300
    for in_the_middle in (True, False):
        with open(tmp_path / "stderr", "a") as stderr:
            with fork_server.start(PROGRAM, tmp_path, source, feed, count, stderr=stderr) as program:
                assert program.stdout is not None
                if in_the_middle:
                    for _ in range(13):
                        assert program.stdout.readline(), (tmp_path / "stderr").read_text()[-2000:]
                    program.send_signal(number)
                program.stdout.read()
                program.wait()
        assert (program.returncode == 0) == (not in_the_middle), (tmp_path / "stderr").read_text()[-2000:]
        if in_the_middle:
            # After kill -9, the last checkpoint is one of some steps before.
            assert 0 < seen(tmp_path / "model").sum() < count and seen(tmp_path / "model").max() == 1
    assert seen(tmp_path / "model").tolist() == [1] * count


def needs(source: str) -> None:
    """Skip the test where the source's package is missing."""
    for name, package in (("Grain", "grain"), ("ArrayRecord", "array_record")):
        if source.startswith(name):
            pytest.importorskip(package)


# For one stream of batches, and for several towers, whose examples take three times as long.
EXAMPLES, TOWER_EXAMPLES = (examples(100), examples(60)) if with_slow() else (8, 7)
if with_all():
    EXAMPLES = TOWER_EXAMPLES = 100

MODES = ("staged", "lockstep", "stream", "tensors", "dataset", "shuffle", "fifo", "whole")


def stream_of(mode: str, records: int, batch: int, capacity: int, threads: int) -> Any:
    """Return the tensor of record ids that `mode` delivers; the source makes batches of `batch` records."""
    source = ArraySource(np.arange(records), batch_size=batch, epochs=1)
    ids = np.arange(records)
    batches = [ids[at : at + batch] for at in range(0, records, batch)]
    if mode == "staged":
        return staging.staged(source, capacity=capacity, num_threads=threads)
    if mode == "lockstep":
        return staging.staged(source, capacity=capacity, lockstep=True)
    if mode == "stream":
        return staging.staged(lambda: iter(batches), capacity=capacity, num_threads=threads)
    if mode == "dataset":
        return staging.staged(tf.data.Dataset.range(records).batch(batch), capacity=capacity, num_threads=threads)
    if mode == "whole":
        return staging.CustomRunner(source, queue="fifo", num_threads=threads).get_inputs()
    if mode == "tensors":
        queued = staging.CustomRunner(source, batch_size=batch, queue="fifo", num_threads=threads).get_inputs()
        return staging.staged(queued, capacity=capacity, lockstep=threads == 1)
    taken = max(1, batch - 1)
    return staging.CustomRunner(
        source, batch_size=taken, queue=mode, num_threads=threads, seed=1 if threads % 2 else None
    ).get_inputs()


def make_config(inter_op: int) -> Any:
    """Two virtual devices, and a thread pool for this session: sessions otherwise share the first one's."""
    return tf.ConfigProto(
        inter_op_parallelism_threads=inter_op, use_per_session_threads=inter_op > 0, device_count={"CPU": 2}
    )


def run_to_the_end(fetch: Any, inter_op: int = 0) -> list[Any]:
    """Return the batch of each step until the end of the data."""
    config = make_config(inter_op)
    got = []
    with staging.StagingSession(config=config) as sess:
        while not sess.should_stop():
            got.append(sess.run(fetch))
    return got


@settings(max_examples=EXAMPLES, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    mode=st.sampled_from(MODES),
    records=st.one_of(st.integers(1, 40), st.integers(1, 5000)),
    batch=st.integers(1, 64),
    capacity=st.integers(1, 8),
    threads=st.integers(1, 4),
    inter_op=st.sampled_from([0, 1, 2]),
)
@example("staged", 1, 1, 1, 4, 1)
@example("lockstep", 1, 1, 1, 1, 1)
@example("tensors", 7, 2, 1, 1, 1)
@example("dataset", 5000, 64, 1, 4, 1)
@example("shuffle", 5000, 64, 1, 1, 1)
@example("shuffle", 5000, 64, 1, 2, 1)
@example("whole", 5000, 64, 1, 4, 1)
def test_every_record_is_delivered_once(
    mode: str, records: int, batch: int, capacity: int, threads: int, inter_op: int
) -> None:
    batch = max(batch, records // 250)  # a step takes a few hundred microseconds; an example stays under a second
    with tf.Graph().as_default():
        got = run_to_the_end(stream_of(mode, records, batch, capacity, threads), inter_op)
    ids = np.concatenate(got)
    assert sorted(ids) == list(range(records))
    in_order = mode not in ("shuffle",) and not (mode == "dataset" and threads > 1)
    if in_order:
        assert list(ids) == list(range(records))


@pytest.mark.parametrize("kind", ["cond", "while_loop", "function"])
@pytest.mark.parametrize("of", ["dequeue", "get_next"])
def test_lockstep_delivers_the_last_batch_of_what_control_flow_reads(graph: Any, kind: str, of: str) -> None:
    # Both have 5 numbers.
    if of == "dequeue":
        read = tf.train.input_producer(tf.range(5), element_shape=[], num_epochs=1, shuffle=False).dequeue
    else:
        dataset = tf.data.Dataset.range(5).map(lambda x: tf.cast(x, tf.int32))
        read = tf.data.make_one_shot_iterator(dataset).get_next
    other = tf.constant(0)
    if kind == "cond":
        x = tf.cond(tf.placeholder_with_default(True, []), read, lambda: other)
    elif kind == "while_loop":
        _, x = tf.while_loop(lambda i, _: i < 1, lambda i, _: (i + 1, read()), [0, other])
    else:
        x = tf.function(read, autograph=False)()
    assert run_to_the_end(staging.staged(x + 100, lockstep=True)) == [100, 101, 102, 103, 104]


@settings(max_examples=TOWER_EXAMPLES)
@given(
    mode=st.sampled_from(["source", "source-lockstep", "stream", "stream-lockstep", "dataset", "tensors"]),
    records=st.integers(3, 600),
    batch=st.integers(1, 40),
    capacity=st.integers(1, 8),
    threads=st.integers(1, 3),
    towers=st.integers(2, 3),
    inter_op=st.sampled_from([0, 1]),
)
@example("source", 3, 1, 1, 1, 3, 1)
@example("stream", 5, 1, 8, 3, 2, 1)
@example("dataset", 5, 1, 1, 1, 2, 1)
@example("dataset", 290, 3, 1, 3, 3, 1)
def test_every_record_is_on_one_tower(
    mode: str, records: int, batch: int, capacity: int, threads: int, towers: int, inter_op: int
) -> None:
    batch = max(batch, records // 100)
    with tf.Graph().as_default():
        values: Any = ArraySource(np.arange(records), batch_size=batch, epochs=1)
        if mode.startswith("stream"):
            values = values.batches()
        elif mode == "dataset":
            values = tf.data.Dataset.range(records).batch(batch)
        elif mode == "tensors":
            values = staging.CustomRunner(values, queue="fifo").get_inputs()
        lockstep = mode.endswith("lockstep")
        parts = staging.staged(
            values,
            devices=[f"/device:CPU:{tower % 2}" for tower in range(towers)],
            capacity=capacity,
            lockstep=lockstep,
            num_threads=1 if lockstep else threads,
        )
        got = run_towers(parts, inter_op)
    counts = [len(each) for each in got]
    assert max(counts) - min(counts) <= 1, "towers must not drift apart"
    everything = [ids for tower in got for batch_ids in tower for ids in batch_ids]
    assert sorted(everything) == list(range(records)), "disjoint, and complete"


def run_towers(parts: list[Any], inter_op: int) -> list[list[Any]]:
    """Run common steps while every tower has a batch, then each tower alone until its end."""
    config = make_config(inter_op)
    got: list[list[Any]] = [[] for _ in parts]
    with staging.StagingSession(config=config) as sess:
        try:
            while True:
                for tower, ids in enumerate(sess.run(parts)):
                    got[tower].append(ids)
        except tf.errors.OutOfRangeError:
            pass
        for tower, part in enumerate(parts):
            try:
                while True:
                    got[tower].append(sess.run(part))
            except tf.errors.OutOfRangeError:
                pass
    return got


@pytest.mark.parametrize("mode", MODES)
def test_the_same_seed_gives_the_same_batches(mode: str) -> None:
    def once() -> list[list[int]]:
        with tf.Graph().as_default():
            tf.set_random_seed(3)
            return [list(ids) for ids in run_to_the_end(stream_of(mode, 300, 7, 3, 1))]

    assert once() == once()


class Backwards(ArraySource):
    """A source where the last of each `threads` concurrently made batches is ready first."""

    def __init__(self, threads: int) -> None:
        super().__init__(np.arange(64), batch_size=2, shuffle=True, seed=3, epochs=1)
        self._threads = threads
        self._made = [threading.Event() for _ in range(33)]

    def batch(self, index: int) -> Any:
        if (index + 1) % self._threads:
            assert self._made[index + 1].wait(60), f"nobody makes batch {index + 1}"
        self._made[index].set()
        return super().batch(index)


@pytest.mark.parametrize("threads", [1, 2, 4, 8])
def test_the_order_does_not_depend_on_the_threads(threads: int) -> None:
    source = Backwards(threads)
    got = []
    with tf.Graph().as_default():
        ids = staging.staged(source, num_threads=threads)
        with staging.StagingSession() as sess:
            while not sess.should_stop():
                got.append(sess.run(ids).tolist())
    assert got == [source.record_ids(number).tolist() for number in range(32)]
