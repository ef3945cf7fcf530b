"""`staging.start` in a plain session keeps the same promises as in a monitored one."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
import pytest
import tensorflow.compat.v1 as tf

import staging_tf1 as staging
from staging_tf1.feed.pipeline import pipelines_of
from staging_tf1.sources import ArraySource


@contextmanager
def started(device_count: int = 1, sess: Any = None) -> Iterator[Any]:
    """A session of the default graph with its feed threads."""
    with sess or tf.Session(config=tf.ConfigProto(device_count={"CPU": device_count})) as sess:
        sess.run([tf.global_variables_initializer(), tf.local_variables_initializer()])
        coord = tf.train.Coordinator()
        threads = staging.start(sess, coord, stall_secs=20, stall_raises=True)
        try:
            yield sess
        finally:
            coord.request_stop()
            coord.join(threads, stop_grace_period_secs=60)


def to_the_end(sess: Any, fetch: Any) -> list[Any]:
    got = []
    with pytest.raises(tf.errors.OutOfRangeError):
        while True:
            got.append(sess.run(fetch))
    return got


@pytest.mark.parametrize("kind", ["source", "stream"])
def test_a_tower_goes_on_alone_after_another_has_ended(graph: Any, kind: str) -> None:
    source = ArraySource(np.arange(5), batch_size=2, epochs=1)
    values: Any = source if kind == "source" else source.batches
    parts = staging.staged(values, devices=["/cpu:0", "/cpu:0"])
    with started() as sess:
        got = [batch.tolist() for step in to_the_end(sess, parts) for batch in step]
        for part in parts:
            got += [batch.tolist() for batch in to_the_end(sess, part)]
    assert sorted(n for batch in got for n in batch) == list(range(5)), "every record, with no batch left behind"


@pytest.mark.parametrize("how", ["run", "make_callable"])
@pytest.mark.parametrize("device", ["/device:CPU:0", "/device:CPU:1"])
def test_failing_steps_lose_no_place(graph: Any, device: str, how: str) -> None:
    records, failures = 150, 100
    x = staging.staged(ArraySource(np.arange(records), batch_size=1, epochs=1), capacity=1, device=device)
    fails = tf.get_variable("fails", initializer=True, use_resource=True)
    # The step already owns the batch, and has not given its slot back yet.
    with tf.control_dependencies([pipelines_of(graph)[0].sinks[0].get.take]):
        check = tf.raw_ops.Assert(condition=tf.logical_not(fails), data=["NaN"])
    passes = fails.assign(False)
    with started(device_count=2) as sess:
        step = sess.make_callable([x, check]) if how == "make_callable" else lambda: sess.run([x, check])
        for _ in range(failures):
            with pytest.raises(tf.errors.InvalidArgumentError, match="NaN"):
                step()
        sess.run(passes)
        seen = [int(batch[0]) for batch in to_the_end(sess, x)]
    assert seen == list(range(records - len(seen), records)), "what is left comes in order, to the last batch"
    assert len(seen) >= records - failures, "a failed step took one batch at most"


def test_the_batches_of_a_callable_are_not_those_of_a_failed_step(graph: Any) -> None:
    x = staging.staged(ArraySource(np.arange(9), batch_size=1, epochs=1), name="train")
    with tf.control_dependencies([x]):
        check = tf.raw_ops.Assert(condition=tf.constant(False), data=["NaN"])
    with started() as sess:
        step = sess.make_callable(x)
        assert [step().tolist() for _ in range(2)] == [[0], [1]]
        with_options, graphs = sess.make_callable(x, accept_options=True), tf.RunMetadata()
        assert with_options(tf.RunOptions(output_partition_graphs=True), run_metadata=graphs).tolist() == [2]
        assert graphs.partition_graphs
        with pytest.raises(tf.errors.InvalidArgumentError, match="NaN") as raised:
            sess.run(check)
    assert raised.value.__notes__ == ["the failed step had batch 3 of 'train' (its records: source.record_ids(3))"]


def test_the_batches_of_an_earlier_callable_are_not_those_of_a_failed_step(graph: Any) -> None:
    x = staging.staged(ArraySource(np.arange(9), batch_size=1, epochs=1), name="train")
    with tf.control_dependencies([x]):
        check = tf.raw_ops.Assert(condition=tf.constant(False), data=["NaN"])
    sess = tf.Session()
    step, run = sess.make_callable(x), sess.run
    with pytest.raises(tf.errors.InvalidArgumentError, match="train .* is not started in this session"):
        step()
    with started(sess=sess):
        assert [step().tolist(), run(x).tolist()] == [[0], [1]]
        with pytest.raises(tf.errors.InvalidArgumentError, match="NaN") as raised:
            sess.run(check)
    assert raised.value.__notes__ == ["the failed step had batch 2 of 'train' (its records: source.record_ids(2))"]
