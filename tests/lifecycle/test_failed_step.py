"""The error of a step that failed or gave NaN names its batch."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tensorflow.compat.v1 as tf
from pipelines import BrokenDiskError
from resuming import TOWERS, bad_numbers, resumed_steps

import staging_tf1 as staging
from staging_tf1.sources import ArraySource

pytestmark = pytest.mark.usefixtures("quick_graphs")


def numbered(count: int = 40, **options: Any) -> ArraySource:
    return ArraySource(np.arange(count), **{**dict(batch_size=3, epochs=None, shuffle=True, seed=5), **options})


def notes(error: BaseException) -> list[str]:
    return list(getattr(error, "__notes__", []))


def failing(batch: Any) -> Any:
    """Fails after the batch has been taken, at number 13."""
    bad = tf.reduce_any(tf.equal(batch, 13))
    with tf.control_dependencies([tf.Assert(tf.logical_not(bad), ["thirteen"])]):
        return tf.identity(batch)


FEEDS: dict[str, dict[str, Any]] = {
    "a thread": {},
    "threads": dict(num_threads=3, capacity=4),
    "lockstep": dict(lockstep=True),
    "dynamic": dict(share="dynamic"),
    "skipping": dict(skip=[1, 3], num_threads=2),
}


@pytest.mark.parametrize("feed", FEEDS)
def test_the_error_of_a_step_names_its_batch(tmp_path: Path, feed: str) -> None:
    source = numbered(20, shuffle=False, batch_size=2, epochs=1)
    # The number is that of the source, also in a run that has resumed.
    resumed_steps(tmp_path, source, 2, name="train", **FEEDS[feed])
    with tf.Graph().as_default():
        checked = failing(staging.staged(source, name="train", **FEEDS[feed]))
        tf.train.get_or_create_global_step()
        seen = []
        with staging.StagingSession(checkpoint_dir=str(tmp_path)) as sess:
            while not sess.should_stop():
                try:
                    seen += sess.run(checked).tolist()
                except tf.errors.InvalidArgumentError as error:
                    assert notes(error) == [
                        "the failed step had batch 6 of 'train' (its records: source.record_ids(6))"
                    ]
                    (stats,) = sess.stats()
                    assert stats.failed_numbers == (6,) and stats.last_number == 6
                    assert "; failed steps had batches 6 (source.record_ids)" in str(stats)
        assert 12 not in seen and seen[-1] == 19
    assert source.record_ids(6).tolist() == [12, 13]
    assert sess.stats()[0].last_number == 9 and sess.stats()[0].failed_numbers == (6,)


def test_it_names_the_shards_of_towers_and_a_drawn_seed() -> None:
    source = numbered(20, seed=None, batch_size=2)
    with tf.Graph().as_default():
        towers = staging.staged(source, name="train", devices=TOWERS, skip=[0])
        checked = tf.Assert(False, [towers[0], towers[1]])
        with staging.StagingSession() as sess:
            assert len(sess.run(towers)) == 2
            with pytest.raises(tf.errors.InvalidArgumentError) as caught:
                sess.run([checked, towers])
    assert sorted(notes(caught.value)) == [
        f"the failed step had batch 2 of 'train/{tower}' (its records: source.with_seed({source.seed}).shard({tower}, "
        f"2).record_ids(2))"
        for tower in range(2)
    ]


def test_of_a_source_of_batches_it_names_the_batch() -> None:
    with tf.Graph().as_default():
        batch = staging.staged(bad_numbers(), ignored_exception_types=BrokenDiskError, name="train")["id"]
        checked = tf.Assert(tf.less(batch[0], 5), [batch])
        with staging.StagingSession() as sess:
            assert [sess.run([batch, checked])[0].tolist() for _ in range(2)] == [[2], [3]]
            with pytest.raises(tf.errors.InvalidArgumentError) as caught:
                sess.run([batch, checked])
    assert notes(caught.value) == ["the failed step had batch 5 of 'train' (its records: source.batch(5))"]


def test_a_stream_and_a_step_that_took_nothing_have_no_number() -> None:
    with tf.Graph().as_default():
        batch = staging.staged(lambda: iter([np.array([1])] * 3))
        fail = tf.Assert(False, [batch])
        with staging.StagingSession() as sess:
            with pytest.raises(tf.errors.InvalidArgumentError) as caught:
                sess.run([batch, fail])
            assert notes(caught.value) == [] and sess.stats()[0].failed_batches == (0,)
            assert (sess.stats()[0].failed_numbers, sess.stats()[0].last_number) == ((), None)
    with tf.Graph().as_default():
        staging.staged(numbered())
        fail = tf.Assert(False, [1])
        with staging.StagingSession() as sess:
            with pytest.raises(tf.errors.InvalidArgumentError) as caught:
                sess.run(fail)
            assert notes(caught.value) == [] and sess.stats()[0].last_number is None


def test_the_error_of_a_loss_that_is_nan_names_the_batch() -> None:
    source = numbered(20, shuffle=False, batch_size=2)
    with tf.Graph().as_default():
        batch = staging.staged(source, name="train", skip=[2])
        value = tf.cast(tf.reduce_min(batch), tf.float32)
        loss = tf.where(tf.equal(value, 8.0), tf.constant(np.nan), value)
        other = staging.staged(source, name="other")
        with pytest.raises(tf.train.NanLossDuringTrainingError) as caught:
            with staging.StagingSession(hooks=[tf.train.NanTensorHook(loss)]) as sess:
                sess.run(other)
                while True:
                    sess.run(loss)
    assert notes(caught.value) == ["the step had batch 4 of 'train' (its records: source.record_ids(4))"]
    assert sess.stats()[0].last_number == 4 and source.record_ids(4).tolist() == [8, 9]


def test_a_pipeline_that_starts_again_goes_on_with_its_numbers() -> None:
    source = numbered(40, shuffle=False, batch_size=2)
    with tf.Graph().as_default():
        batch = staging.staged(source, name="train", skip=[3], capacity=4)
        fail = tf.Assert(False, [batch])
        with tf.Session() as sess:
            sess.run([tf.global_variables_initializer(), tf.local_variables_initializer()])
            for expected in (0, 4):
                coord = tf.train.Coordinator()
                threads = staging.start(sess, coord)
                assert sess.run(batch).tolist() == [2 * expected, 2 * expected + 1]
                with pytest.raises(tf.errors.InvalidArgumentError) as caught:
                    sess.run([batch, fail])
                (note,) = notes(caught.value)
                assert f"batch {expected + 1} of 'train'" in note
                assert sess.run(batch).tolist() == [2 * expected + 4, 2 * expected + 5]
                coord.request_stop()
                coord.join(threads, stop_grace_period_secs=60)


@contextmanager
def started(sess: Any) -> Iterator[Any]:
    with sess:
        sess.run([tf.global_variables_initializer(), tf.local_variables_initializer()])
        coord = tf.train.Coordinator()
        threads = staging.start(sess, coord)
        yield sess
        coord.request_stop()
        coord.join(threads, stop_grace_period_secs=60)


def test_the_batches_of_a_callable_are_not_those_of_a_failed_step(graph: Any) -> None:
    """Whether it is made before or after the start; and with options."""
    x = staging.staged(numbered(9, shuffle=False, batch_size=1), name="train")
    with tf.control_dependencies([x]):
        check = tf.raw_ops.Assert(condition=tf.constant(False), data=["NaN"])
    sess = tf.Session()
    early, run = sess.make_callable(x), sess.run
    with pytest.raises(tf.errors.InvalidArgumentError, match="train .* is not started in this session"):
        early()
    with started(sess):
        late, with_options, graphs = sess.make_callable(x), sess.make_callable(x, accept_options=True), tf.RunMetadata()
        assert [early().tolist(), run(x).tolist(), late().tolist()] == [[0], [1], [2]]
        assert with_options(tf.RunOptions(output_partition_graphs=True), run_metadata=graphs).tolist() == [3]
        assert graphs.partition_graphs
        with pytest.raises(tf.errors.InvalidArgumentError, match="NaN") as raised:
            sess.run(check)
    assert notes(raised.value) == ["the failed step had batch 4 of 'train' (its records: source.record_ids(4))"]
