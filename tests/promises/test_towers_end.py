"""The end of the data for towers that are out of step: no batch is taken that the others cannot match."""

from __future__ import annotations

import threading
from typing import Any

import numpy as np
import pytest
import tensorflow.compat.v1 as tf

import staging_tf1 as staging
from staging_tf1.errors import LeftoverWarning
from staging_tf1.sources import ArraySource


def await_feed_threads() -> None:
    """Wait until all batches are staged."""
    for thread in threading.enumerate():
        if thread.name.startswith("feed:staged/"):
            thread.join(200)


@pytest.mark.parametrize("way", ["session", "plain"])
@pytest.mark.parametrize("records", [6, 7])
def test_a_common_step_beyond_the_end_takes_nothing(graph: Any, way: str, records: int) -> None:
    parts = staging.staged(
        ArraySource(np.arange(records), batch_size=1, epochs=1), devices=["/cpu:0", "/cpu:0"], capacity=8
    )
    got: list[int] = []
    refused = ""

    def steps(run: Any) -> str:
        got.append(int(run(parts[1])[0]))  # tower 1 is now one batch ahead
        await_feed_threads()
        try:
            while True:
                got.extend(int(each[0]) for each in run(parts))
        except tf.errors.OutOfRangeError as error:
            text = error.message
        for part in parts:
            try:
                while True:
                    got.append(int(run(part)[0]))
            except tf.errors.OutOfRangeError:
                continue
        return text

    if way == "session":
        with staging.StagingSession() as sess:
            refused = steps(sess.run)
    else:
        with tf.Session() as sess:
            coord = tf.train.Coordinator()
            threads = staging.start(sess, coord)
            refused = steps(sess.run)
            coord.request_stop()
            coord.join(threads, stop_grace_period_secs=60)
    assert refused == (
        "End of data for common steps: staged/1. Fetch staged/0 separately to use the remaining batches."
    )
    assert sorted(got) == list(range(records))


@pytest.mark.parametrize(
    ("records", "left"), [(4, ""), (5, " Fetch staged/0 separately to use the remaining batches.")]
)
def test_the_end_names_only_towers_that_have_batches_left(graph: Any, records: int, left: str) -> None:
    parts = staging.staged(ArraySource(np.arange(records), batch_size=1, epochs=1), devices=["/cpu:0"] * 2, capacity=8)
    with staging.StagingSession() as sess:
        await_feed_threads()
        for _ in range(2):
            sess.run(parts)
        with pytest.raises(tf.errors.OutOfRangeError) as raised:
            sess.run(parts)
        if left:
            assert sess.run(parts[0]).tolist() == [4]
    assert raised.value.message == f"End of data for common steps: staged/0, staged/1.{left}"


def test_batches_that_no_common_step_could_take_are_named(graph: Any) -> None:
    parts = staging.staged(ArraySource(np.arange(7), batch_size=1, epochs=1), devices=["/cpu:0", "/cpu:0"], capacity=8)
    expected = (
        "'staged': the towers had unequal numbers of batches, and these were staged but never taken: staged/0: 1, "
        "staged/1: 0. After the OutOfRangeError of the common step, fetch each tower separately until it ends."
    )
    with pytest.warns(LeftoverWarning) as warned, staging.StagingSession() as sess:
        await_feed_threads()
        while not sess.should_stop():
            sess.run(parts)
    assert [str(each.message) for each in warned] == [expected]
