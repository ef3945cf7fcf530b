"""Giving places back that failed steps have kept, while other steps are under way."""

from __future__ import annotations

from typing import Any

import numpy as np
import tensorflow.compat.v1 as tf

import staging_tf1 as staging
from staging_tf1.feed.feed import feeds_of
from staging_tf1.graph.source_ops import ancestors
from staging_tf1.sources import ArraySource


def test_a_get_that_was_mistaken_for_a_failed_one_still_ends(graph: Any) -> None:
    # Several threads may run steps of one session: when one of them fails, another may be in the middle of a get.
    x = staging.staged(ArraySource(np.arange(1), batch_size=1, epochs=1), capacity=1)
    (unstage,) = (op for op in ancestors([x]) if op.type == "Unstage")
    (feed,) = feeds_of(graph)
    repair = feed.pipeline.towers[0].gate.repair
    with tf.Session() as sess:
        sess.run([tf.global_variables_initializer(), tf.local_variables_initializer()])
        coord = tf.train.Coordinator()
        threads = staging.start(sess, coord)
        sess.run(unstage)  # a get, up to here
        run = feed.run_in(sess)
        run.join(10)
        run.repair()
        sess.run(repair.give_back, options=tf.RunOptions(timeout_in_ms=10_000))  # the rest of the get
        run.repair()
        assert sess.run(repair.free) == 1, "the place that was given back twice is taken away"
        coord.request_stop()
        coord.join(threads, stop_grace_period_secs=5)
