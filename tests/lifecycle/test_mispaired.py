"""A step that combines staged tensors with what they are made of combines records of two batches: it is named."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import tensorflow.compat.v1 as tf

import staging_tf1 as staging
from staging_tf1.errors import StagingWarning


def from_staged() -> Any:
    return staging.staged(staging.sources.ArraySource({"x": np.arange(40), "y": np.arange(40)}, batch_size=2))


def from_iterator() -> Any:
    dataset = tf.data.Dataset.range(40).batch(2).map(lambda x: {"x": x, "y": x})
    return tf.data.make_one_shot_iterator(dataset).get_next()


def from_queue() -> Any:
    source = staging.sources.ArraySource({"x": np.arange(40), "y": np.arange(40)}, batch_size=2)
    return staging.CustomRunner(source, queue="fifo").get_inputs()


MAKERS: list[Callable[[], Any]] = [from_staged, from_iterator, from_queue]


@pytest.mark.parametrize("lockstep", [False, True])
@pytest.mark.parametrize("make", MAKERS)
def test_a_step_that_combines_two_batches_is_named_once(make: Any, lockstep: bool, graph: Any) -> None:
    batch = make()
    staged = staging.staged(batch["x"] + 0, lockstep=lockstep, name="ahead")
    with staging.StagingSession() as sess:
        with pytest.warns(
            StagingWarning, match=r"the step takes from '.*' \(made at test_mispaired.py:\d+\) its"
        ) as told:
            x, y = sess.run([staged, batch["y"]])
        assert (x != y).all()
        assert "'ahead' (made at test_mispaired.py" in str(told[0].message) and told[0].filename == __file__
        sess.run([staged, batch["y"], batch["x"]])  # an error if it warned again


@pytest.mark.parametrize("lockstep", [False, True])
@pytest.mark.parametrize("make", MAKERS)
def test_a_step_of_staged_tensors_is_not_named(make: Any, lockstep: bool, graph: Any) -> None:
    staged = staging.staged(make(), lockstep=lockstep)
    with staging.StagingSession() as sess:
        for _ in range(3):
            values = sess.run(staged)
            assert (values["x"] == values["y"]).all()
