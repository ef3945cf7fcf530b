"""Draining: nothing more is read, and everything that was read reaches a step."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import suppress
from typing import Any

import numpy as np
import pytest
import tensorflow.compat.v1 as tf

import staging_tf1 as staging
from staging_tf1.sources import ArraySource, GeneratorSource

SPEC = tf.TensorSpec([None], tf.int64)


def wait_until_read(sess: Any, records: int) -> None:
    """Wait until the feed threads have delivered `records` records."""
    pause = threading.Event()
    while sum(stats.records for stats in sess.stats()) < records:
        pause.wait(0.001)


def to_the_end(step: Callable[[], Any]) -> list[Any]:
    """Return the results of the steps. The end of the data is caught here, because it would end the session."""
    got = []
    with suppress(tf.errors.OutOfRangeError):
        while True:
            got.append(step())
    return got


def test_a_common_step_after_a_drain_takes_from_no_tower_unless_from_all(graph: Any) -> None:
    let_go = threading.Event()

    def source() -> Iterator[Any]:
        yield from np.arange(3).reshape(3, 1)  # two for tower 0, one for tower 1
        let_go.wait(30)

    parts = staging.staged(GeneratorSource(source, spec=SPEC), devices=["/cpu:0", "/cpu:0"])
    # Tower 1 ends while a step, which could take tower 0's batch, waits for it.
    end = tf.py_func(let_go.set, [], [], stateful=True)
    with staging.StagingSession() as sess:
        wait_until_read(sess, 3)
        sess.drain()
        common = [[int(batch[0]) for batch in sess.run(parts)]]
        common += to_the_end(lambda: sess.run([parts, end]))
        alone = [to_the_end(lambda part=part: int(sess.run(part)[0])) for part in parts]
    assert common == [[0, 1]]
    assert alone == [[2], []], "the common step that failed has not taken it"
    assert [stats.failed_batches for stats in sess.stats()] == [(), ()]


@pytest.mark.parametrize("lockstep", [False, True])
def test_what_a_runners_queue_holds_passes_the_area_behind_it(graph: Any, lockstep: bool) -> None:
    runner = staging.CustomRunner(ArraySource(np.arange(100), batch_size=1), queue="fifo", capacity=6)
    x = staging.staged(runner.get_inputs(), capacity=1, lockstep=lockstep)
    with staging.StagingSession() as sess:
        first = int(sess.run(x)[0])
        wait_until_read(sess, 8)  # a full queue, and the batch being delivered
        sess.drain()
        rest = to_the_end(lambda: int(sess.run(x)[0]))
    assert [first, *rest] == list(range(sess.stats()[0].records)), "all that was read"
