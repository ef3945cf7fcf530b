"""Steps through a Grain stream with checkpoints and logs every record that is read. Tests kill it.

Run as `python grain_child.py FOLDER KIND`, KIND "iter" or "workers". Each step appends a line of JSON to FOLDER/steps:
[global step, record ids]. The process that reads a record appends its id to FOLDER/reads.
"""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path
from typing import Any

import grain
import numpy as np

RECORDS, BATCH, SAVE_STEPS = 4000, 4, 5
# Little read-ahead, so that records that are read again show up.
_READ = grain.ReadOptions(num_threads=1, prefetch_buffer_size=4)


class Noted(grain.sources.RandomAccessDataSource):  # type: ignore[misc]
    """The numbers up to RECORDS. Each read is logged in a file."""

    def __init__(self, path: str) -> None:
        self._path = path

    def __len__(self) -> int:
        return RECORDS

    def __getitem__(self, index: Any) -> np.int64:
        descriptor = os.open(self._path, os.O_WRONLY | os.O_APPEND | os.O_CREAT)
        try:
            os.write(descriptor, b"%d\n" % index)
        finally:
            os.close(descriptor)
        return np.int64(index)

    def __repr__(self) -> str:
        return "Noted()"


def make_pipeline(folder: Path, kind: str) -> Any:
    """Return a stream of shuffled batches, read by this process or by two workers."""
    records = Noted(str(folder / "reads"))
    if kind == "iter":
        return grain.MapDataset.source(records).seed(3).shuffle().to_iter_dataset(_READ).batch(BATCH)
    sampler = grain.samplers.IndexSampler(num_records=RECORDS, shuffle=True, seed=3, num_epochs=1)
    return grain.DataLoader(
        data_source=records,
        sampler=sampler,
        operations=[grain.transforms.Batch(BATCH)],
        worker_count=2,
        worker_buffer_size=1,
        read_options=_READ,
    )


def main(folder: Path, kind: str) -> None:
    """Run steps until the process is killed or the data ends."""
    # Not at the top: a worker imports this module again, and TensorFlow is slow to import.
    import tensorflow.compat.v1 as tf

    import staging_tf1 as staging

    tf.disable_v2_behavior()
    ids = staging.staged(make_pipeline(folder, kind), name="train")
    step = tf.assign_add(tf.train.get_or_create_global_step(), 1)

    class Log(tf.train.SessionRunHook):  # type: ignore[misc]
        """Logs each step before the saver's hook runs, so that no step is in a checkpoint but not in the log."""

        def before_run(self, run_context: Any) -> Any:
            return tf.train.SessionRunArgs([step, ids])

        def after_run(self, run_context: Any, run_values: Any) -> None:
            number, batch = run_values.results
            with open(folder / "steps", "a", encoding="utf-8") as log:
                log.write(json.dumps([int(number), batch.tolist()]) + "\n")
            print(int(number), flush=True)

    with staging.StagingSession(
        checkpoint_dir=str(folder),
        save_checkpoint_steps=SAVE_STEPS,
        save_summaries_steps=0,
        log_step_count_steps=0,
        chief_only_hooks=[Log()],
    ) as sess:
        while not sess.should_stop():
            sess.run(step)


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2])
