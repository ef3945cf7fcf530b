"""The position of a run that skips bad batches is behind the last good batch of a step.

`test_resume.py` resumes such runs in every way to feed them.
"""

from __future__ import annotations

import threading
from pathlib import Path
from typing import Any

import pytest
import tensorflow.compat.v1 as tf
from pipelines import BrokenDiskError, Numbers
from resuming import GOOD, TOWERS, bad_numbers

import staging_tf1 as staging
from staging_tf1.feed.accounts import counts_of
from staging_tf1.feed.feeding import feeding_of
from staging_tf1.feed.pipeline import pipelines_of
from staging_tf1.graph.dependencies import ancestors
from staging_tf1.lifecycle.lockstep import Lockstep

pytestmark = pytest.mark.usefixtures("quick_graphs")


def saved_positions(pipeline: Any, sess: Any) -> tuple[int, ...]:
    """Return the positions that a checkpoint saved at this moment would hold."""
    position = pipeline.position
    return position.parsed(sess.run(position.saved)).positions


def test_threads_that_take_steps_at_once_lose_no_count(graph: Any) -> None:
    ids = staging.staged(bad_numbers(), ignored_exception_types=BrokenDiskError)["id"]
    (pipeline,) = pipelines_of(graph)
    got: list[int] = []
    with tf.Session() as sess:
        sess.run([tf.global_variables_initializer(), tf.local_variables_initializer()])
        coord = tf.train.Coordinator()
        threads = staging.start(sess, coord)

        def take() -> None:
            try:
                while True:
                    got.extend(sess.run(ids).tolist())
            except tf.errors.OutOfRangeError:
                return

        takers = [threading.Thread(target=take) for _ in range(3)]
        for taker in takers:
            taker.start()
        for taker in takers:
            taker.join(20)
        reached = saved_positions(pipeline, sess)
        coord.request_stop()
        coord.join(threads, stop_grace_period_secs=60)
    assert sorted(got) == GOOD and reached == (GOOD[-1] + 1,)


@pytest.mark.parametrize("kept_in", ["area"], indirect=True)
def test_an_element_that_a_failed_step_staged_keeps_its_count(graph: Any, kept_in: str) -> None:
    ids = staging.staged(bad_numbers(), lockstep=True, ignored_exception_types=BrokenDiskError)["id"]
    (pipeline,) = pipelines_of(graph)
    (stage,) = (op for op in ancestors([pipeline.sinks[0].put.op]) if op.type == "Stage")
    got: list[int] = []
    with tf.Session() as sess:
        sess.run([tf.global_variables_initializer(), tf.local_variables_initializer()])
        lockstep = Lockstep(pipeline, feeding_of(sess))
        sess.run(*lockstep.first_puts())
        lockstep.have_put()
        for number in range(len(GOOD)):
            puts, feeds = lockstep.before([0])
            if number == 1:  # the next batch counts for two
                assert feeds[pipeline.sinks[0].put.stamp] == 2
                sess.run(stage, feeds)  # a step that fails between the two ops of its put
                lockstep.repair(counts_of(pipeline.sinks, sess))
                puts, feeds = lockstep.before([0])
            got.extend(sess.run([ids, *puts], feeds)[0].tolist())
            lockstep.after([0])
            assert saved_positions(pipeline, sess) == (got[-1] + 1,)
    assert got == GOOD


@pytest.mark.thinned
@pytest.mark.parametrize("towers", [1, 2])
@pytest.mark.parametrize("stops", [(1,), (3,), (6,), (3, 3)])
def test_a_loop_in_lockstep_that_catches_errors_resumes_behind_its_last_batch(
    tmp_path: Path, towers: int, stops: tuple[int, ...]
) -> None:
    def trouble(number: int, batch: Any) -> Any:
        if number in (4, 5, 12, 13):
            raise BrokenDiskError
        return batch

    got: list[int] = []
    for steps in (*stops, 20):
        with tf.Graph().as_default():
            batches = staging.staged(Numbers(20, trouble), lockstep=True, devices=TOWERS[:towers])
            step = tf.train.get_or_create_global_step().assign_add(1)
            taken = 0
            with staging.StagingSession(checkpoint_dir=str(tmp_path)) as sess:
                while taken < steps and not sess.should_stop():
                    try:
                        got += [int(batch["id"][0]) for batch in sess.run([batches, step])[0]]
                    except BrokenDiskError:
                        continue
                    taken += 1
    assert sorted(got) == [number for number in range(20) if number not in (4, 5, 12, 13)]
