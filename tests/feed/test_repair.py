"""Returning slots that failed steps kept, while other steps run."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
import tensorflow.compat.v1 as tf
from pipelines import half_a_get
from running import run_in

import staging_tf1 as staging
from staging_tf1.feed.accounts import counts_of
from staging_tf1.feed.pipeline import pipelines_of
from staging_tf1.feed.repair import repair_all, take_away
from staging_tf1.sources import ArraySource, GeneratorSource


@pytest.mark.usefixtures("kept_in")
def test_a_get_that_was_mistaken_for_a_failed_one_still_ends(graph: Any) -> None:
    # Several threads may run steps of one session: when one fails, another may be in the middle of a get.
    x = staging.staged(ArraySource(np.arange(1), batch_size=1, epochs=1), capacity=1)
    half = half_a_get(x)
    (pipeline,) = pipelines_of(graph)
    repair = pipeline.sinks[0].repair
    with tf.Session() as sess:
        sess.run([tf.global_variables_initializer(), tf.local_variables_initializer()])
        coord = tf.train.Coordinator()
        threads = staging.start(sess, coord)
        sess.run(half)  # the first half of a get
        run = run_in(sess, pipeline)
        run.join(200)
        repair_all([run], counts_of(pipeline.sinks, sess))
        sess.run(repair.give_back, options=tf.RunOptions(timeout_in_ms=10_000))  # the second half of the get
        repair_all([run], counts_of(pipeline.sinks, sess))
        assert sess.run(repair.free) == 1, "the place that was given back twice is taken away"
        coord.request_stop()
        coord.join(threads, stop_grace_period_secs=60)


@pytest.mark.usefixtures("kept_in")
def test_a_place_that_a_feeder_was_quicker_to_take_is_not_waited_for(graph: Any) -> None:
    staging.staged(ArraySource(np.arange(1), batch_size=1, epochs=1), capacity=1)
    (pipeline,) = pipelines_of(graph)
    repair = pipeline.sinks[0].repair
    with tf.Session() as sess:
        sess.run([tf.global_variables_initializer(), tf.local_variables_initializer()])
        threads = staging.start(sess)
        for thread in threads:
            thread.join(200)
        assert sess.run(repair.free) == 0
        take_away(repair, sess)
        assert sess.run(repair.free) == 0


def test_the_last_common_step_ends_though_failed_ones_took_from_one_tower_only(graph: Any) -> None:
    ends = threading.Event()

    def numbers() -> Iterator[Any]:
        yield from np.arange(5).reshape(5, 1)
        ends.wait(30)

    source = GeneratorSource(numbers, spec=tf.TensorSpec([None], tf.int64))
    x = staging.staged(source, devices=["/cpu:0", "/cpu:0"])
    half = half_a_get(x[0])
    (pipeline,) = pipelines_of(graph)
    got: list[list[int]] = []
    with tf.Session() as sess:
        sess.run([tf.global_variables_initializer(), tf.local_variables_initializer()])
        coord = tf.train.Coordinator()
        threads = staging.start(sess, coord)
        tf.Session.run(sess, half)  # the state after a step that failed before it took from the other tower
        repair_all([run_in(sess, pipeline)], counts_of(pipeline.sinks, sess))
        assert [int(part[0]) for part in sess.run(x)] == [2, 1]
        last = threading.Thread(target=lambda: got.append([int(part[0]) for part in sess.run(x)]))
        last.start()
        while [count.taken for count in counts_of(pipeline.sinks, sess).values()] != [2, 2]:
            pass  # until the step has its batch of the second tower, and waits for the first
        ends.set()
        last.join(30)
        assert got == [[4, 3]]
        for fetches in (x, x[0], x[1]):
            with pytest.raises(tf.errors.OutOfRangeError):
                sess.run(fetches)
        coord.request_stop()
        coord.join(threads, stop_grace_period_secs=60)
