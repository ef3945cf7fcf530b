"""Scopes that make other variables of the model's leave ours alone: the positions and the meters."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tensorflow.compat.v1 as tf

import staging_tf1 as staging
from staging_tf1.sources import ArraySource


def creator(make: Callable[..., Any]) -> AbstractContextManager[Any]:
    return tf.variable_creator_scope(make)


class Wrapped:
    """A variable in something else that is none for TensorFlow."""

    def __init__(self, variable: Any) -> None:
        self.variable = variable


SCOPES: dict[str, Callable[[], AbstractContextManager[Any]]] = {
    "a reference variable": lambda: creator(lambda following, **given: following(**{**given, "use_resource": False})),
    "another class": lambda: creator(lambda following, **given: Wrapped(following(**given))),
    "none": lambda: creator(lambda following, **given: None),
    "another dtype": lambda: creator(lambda following, **given: following(**{**given, "dtype": tf.float32})),
    "MirroredStrategy of one": lambda: tf.distribute.MirroredStrategy(["/cpu:0"]).scope(),
    "MirroredStrategy of two": lambda: tf.distribute.MirroredStrategy(["/cpu:0", "/cpu:1"]).scope(),
    "OneDeviceStrategy": lambda: tf.distribute.OneDeviceStrategy("/cpu:0").scope(),
    "CentralStorageStrategy": lambda: tf.distribute.experimental.CentralStorageStrategy(["/cpu:0"]).scope(),
}


@pytest.mark.parametrize("scope", SCOPES)
def test_staged_works_and_resumes_within_a_scope_of_other_variables(tmp_path: Path, scope: str) -> None:
    def part(steps: int) -> list[list[int]]:
        with tf.Graph().as_default():
            with SCOPES[scope]():
                batch = staging.staged(ArraySource(np.arange(8), batch_size=2, epochs=1))
            step = tf.train.get_or_create_global_step().assign_add(1)
            config = tf.ConfigProto(device_count={"CPU": 2})
            with staging.StagingSession(checkpoint_dir=tmp_path, config=config) as sess:
                return [sess.run([batch, step])[0].tolist() for _ in range(steps)]

    assert part(1) + part(3) == [[0, 1], [2, 3], [4, 5], [6, 7]]
