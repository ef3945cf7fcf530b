"""A run that resumes from the checkpoint of the run before it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import tensorflow.compat.v1 as tf

import staging_tf1 as staging


def resumed_steps(folder: Path | None, values: Any, count: int | None, **options: Any) -> list[list[list[Any]]]:
    """Return the batch of each tower in each of `count` common steps, or of all, in a new session.

    It restores the checkpoint in `folder`, if there is one, and saves another at its end. `values` may be a function
    that makes them in the new graph. Of a dict, the component `id` is returned. `options` are those of `staged()`.
    """
    got: list[list[list[Any]]] = []
    # A short interval would write each step's checkpoint, and the graph as text takes long to write.
    quiet = dict(save_checkpoint_steps=1000, save_summaries_steps=0, log_step_count_steps=0, save_graph_def=False)
    with tf.Graph().as_default():
        staged = staging.staged(values() if callable(values) else values, **options)
        towers = staged if isinstance(staged, list) else [staged]
        parts = [tower["id"] if isinstance(tower, dict) else tower for tower in towers]
        train = tf.assign_add(tf.train.get_or_create_global_step(), 1)
        with staging.StagingSession(checkpoint_dir=folder and str(folder), **quiet) as sess:
            while not sess.should_stop() and len(got) != count:
                got.append([batch.tolist() for batch in sess.run([*parts, train])[:-1]])
    return got
