"""Every record is in exactly one step, for all sizes, numbers of threads and towers, and ways to feed."""

from __future__ import annotations

import os
import threading
from typing import Any

import numpy as np
import pytest
import tensorflow.compat.v1 as tf
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st
from slow import with_slow

import staging_tf1 as staging
from staging_tf1.sources import ArraySource

# For one stream of batches, and for several towers, whose examples take three times as long.
EXAMPLES, TOWER_EXAMPLES = (100, 60) if with_slow() else (8, 7)
if "STAGING_TF1_SOAK_SECS" in os.environ:
    EXAMPLES = TOWER_EXAMPLES = 100

MODES = ("staged", "lockstep", "stream", "tensors", "dataset", "shuffle", "fifo", "whole")


def build(mode: str, records: int, batch: int, capacity: int, threads: int) -> Any:
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
        got = run_to_the_end(build(mode, records, batch, capacity, threads), inter_op)
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
            return [list(ids) for ids in run_to_the_end(build(mode, 300, 7, 3, 1))]

    assert once() == once()


def test_the_same_seed_gives_the_same_losses() -> None:
    def losses() -> list[float]:
        with tf.Graph().as_default():
            tf.set_random_seed(3)
            x = np.random.RandomState(0).rand(200, 4).astype(np.float32)
            source = ArraySource({"x": x, "y": x.sum(axis=1)}, batch_size=8, shuffle=True, seed=5, epochs=2)
            batch = staging.staged(staging.CustomRunner(source, batch_size=16, seed=7).get_inputs())
            weights = tf.get_variable("w", [4, 1])
            loss = tf.reduce_mean(tf.square(tf.matmul(batch["x"], weights)[:, 0] - batch["y"]))
            train = tf.train.GradientDescentOptimizer(0.1).minimize(loss)
            config = tf.ConfigProto(intra_op_parallelism_threads=1)
            got = []
            with staging.StagingSession(config=config) as sess:
                while not sess.should_stop():
                    got.append(float(sess.run([loss, train])[0]))
            return got

    first = losses()
    assert len(first) == 25 and first == losses() and first[-1] < first[0]


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
