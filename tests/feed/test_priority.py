"""`nice=`: feed threads run at a lower priority, and no other thread does."""

from __future__ import annotations

import os
import sys
import threading
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
import tensorflow.compat.v1 as tf

import staging_tf1 as staging

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="only Linux has a priority for each thread")


@pytest.fixture
def graph() -> Iterator[Any]:
    with tf.Graph().as_default() as graph:
        yield graph


def _priority() -> int:
    return os.getpriority(os.PRIO_PROCESS, threading.get_native_id())


def _priorities() -> Iterator[Any]:
    for _ in range(3):
        yield np.array(_priority())


@pytest.mark.parametrize("nice", [0, 7])
@pytest.mark.parametrize("way", ["staged", "runner"])
def test_feed_threads_are_nice_and_the_loop_is_not(graph: Any, way: str, nice: int) -> None:
    before = _priority()
    source = staging.sources.GeneratorSource(_priorities, spec=tf.TensorSpec([], tf.int64))
    if way == "staged":
        seen = staging.staged(source, nice=nice)
    else:
        seen = staging.CustomRunner(source, queue="fifo", nice=nice).get_inputs()
    found = []
    with staging.StagingSession() as sess:
        while not sess.should_stop():
            found.append(int(sess.run(seen)))
    assert found == 3 * [min(before + nice, 19)]
    assert _priority() == before


def test_as_low_as_it_gets(graph: Any) -> None:
    seen = staging.staged(staging.sources.GeneratorSource(_priorities, spec=tf.TensorSpec([], tf.int64)), nice=19)
    with staging.StagingSession() as sess:
        assert int(sess.run(seen)) == 19
