"""Checkpoints as JSON: what a run has saved, and a checkpoint that holds it again."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import tensorflow.compat.v1 as tf

import staging_tf1 as staging


def train(batches: Any, folder: Path, steps: int, **options: Any) -> list[Any]:
    """Train some steps from the checkpoint in `folder`, and save one. Return the values of `batches` in each step."""
    count = tf.assign_add(tf.train.get_or_create_global_step(), 1)
    options |= dict(save_checkpoint_steps=1, log_step_count_steps=0, save_graph_def=False)
    with staging.StagingSession(checkpoint_dir=str(folder), **options) as sess:
        return [sess.run([batches, count])[0] for _ in range(steps)]


def variables_in(folder: Path) -> dict[str, Any]:
    """Return the int64 and string variables of the last checkpoint in `folder`, by name."""
    reader = tf.train.load_checkpoint(str(folder))
    return {name: _told(reader.get_tensor(name)) for name in sorted(reader.get_variable_to_shape_map())}


def write_checkpoint(folder: Path, variables: dict[str, Any]) -> None:
    """Write what `variables_in` returned as the last checkpoint in `folder`."""
    values = [_untold(value) for value in variables.values()]
    with tf.Graph().as_default(), tf.Session() as sess:
        tensors = [tf.constant(value, tf.string if isinstance(value, str) else tf.int64) for value in values]
        sess.run(
            tf.raw_ops.SaveV2(
                prefix=str(folder / "model.ckpt"),
                tensor_names=list(variables),
                shape_and_slices=[""] * len(values),
                tensors=tensors,
            )
        )
    tf.train.update_checkpoint_state(str(folder), str(folder / "model.ckpt"))


def _told(value: Any) -> Any:
    if isinstance(value, bytes):
        return value.decode()
    array = np.asarray(value)
    if array.size < 100:
        return array.tolist()
    # A window of dynamic shares, most of whose cells stand at their own number.
    moved = np.flatnonzero(array != np.arange(len(array)))
    return {"size": len(array), "moved": {str(cell): int(array[cell]) for cell in moved}}


def _untold(value: Any) -> Any:
    if not isinstance(value, dict):
        return value
    array = np.arange(value["size"])
    for cell, batch in value["moved"].items():
        array[int(cell)] = batch
    return array
