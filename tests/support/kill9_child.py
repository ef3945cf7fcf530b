"""Trains from a shuffled source with checkpoints, and logs each step before it can be saved. Tests kill it.

Run as `python kill9_child.py FOLDER EPOCHS`. Each step appends a line of JSON to FOLDER/log: [global step, record ids,
loss as a hexadecimal number]. The number of the step is also printed.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import numpy as np
import tensorflow.compat.v1 as tf

import staging_tf1 as staging
from staging_tf1.sources import ArraySource

RECORDS, BATCH, SAVE_STEPS = 23, 4, 3


def make_source(epochs: int) -> ArraySource:
    """Record ids with features and labels. The last batch of an epoch is partial."""
    x = np.random.default_rng(1).normal(size=(RECORDS, 5)).astype(np.float32)
    arrays = {"id": np.arange(RECORDS), "x": x, "y": np.sin(x.sum(axis=1))}
    return ArraySource(arrays, batch_size=BATCH, shuffle=True, seed=11, epochs=epochs)


class LogHook(tf.train.SessionRunHook):  # type: ignore[misc]
    """Logs each step when it is done."""

    def __init__(self, path: Path, fetches: list[Any]) -> None:
        self._file = open(path, "a", encoding="utf-8")  # noqa: SIM115  # for as long as the process lives
        self._fetches = fetches

    def before_run(self, run_context: Any) -> Any:
        return tf.train.SessionRunArgs(self._fetches)

    def after_run(self, run_context: Any, run_values: Any) -> None:
        step, ids, loss = run_values.results
        # One write per line, so that a kill never leaves half a line.
        self._file.write(json.dumps([int(step), ids.tolist(), float(loss).hex()]) + "\n")
        self._file.flush()
        print(int(step), flush=True)


def main(folder: Path, epochs: int) -> None:
    tf.disable_v2_behavior()
    tf.set_random_seed(5)
    batch = staging.staged(make_source(epochs), num_threads=2, capacity=4, name="train")
    hidden = tf.tanh(tf.matmul(batch["x"], tf.get_variable("w1", [5, 8])))
    predicted = tf.matmul(hidden, tf.get_variable("w2", [8, 1]))[:, 0]
    loss = tf.reduce_mean(tf.square(predicted - batch["y"]))
    step = tf.train.get_or_create_global_step()
    train = tf.train.AdamOptimizer(0.01).minimize(loss, global_step=step)
    with tf.control_dependencies([train]):
        done = step.read_value()
    # The hook runs before the saver's, so that no step is in a checkpoint but not in the log.
    log = LogHook(folder / "log", [done, batch["id"], loss])
    with staging.StagingSession(
        checkpoint_dir=str(folder),
        save_checkpoint_steps=SAVE_STEPS,
        save_summaries_steps=0,
        log_step_count_steps=0,
        chief_only_hooks=[log],
        config=tf.ConfigProto(intra_op_parallelism_threads=1),
    ) as sess:
        while not sess.should_stop():
            sess.run(train)


if __name__ == "__main__":
    main(Path(sys.argv[1]), int(sys.argv[2]))
