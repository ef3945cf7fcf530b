"""What the workers of a test cluster read, and what their model has seen of it."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import tensorflow.compat.v1 as tf

import staging_tf1 as staging


def ids_source(num_records: int, batch_size: int, epochs: int = 1) -> staging.sources.ArraySource:
    """The numbers of the records, shuffled."""
    return staging.sources.ArraySource(
        np.arange(num_records), batch_size=batch_size, epochs=epochs, shuffle=True, across_epochs=False
    )


def seen_in(checkpoint_dir: str | Path) -> list[int]:
    """How often the model of the latest checkpoint has seen each record."""
    latest = tf.train.latest_checkpoint(str(checkpoint_dir))
    return list(map(int, tf.train.load_variable(latest, "seen")))


def batches_seen_in(checkpoint_dir: str | Path, num_records: int, batch_size: int, shares: int) -> list[list[int]]:
    """How often the model of the latest checkpoint has seen each batch of each share."""
    latest = tf.train.latest_checkpoint(str(checkpoint_dir))
    seed = json.loads(tf.train.load_variable(latest, "train/fingerprint"))["seed"]
    source = ids_source(num_records, batch_size).with_seed(seed)
    seen = tf.train.load_variable(latest, "seen")
    counts = []
    for shard in (source.shard(share, shares) for share in range(shares)):
        of_batches = [set(seen[shard.batch(number)].tolist()) for number in range(shard.num_batches or 0)]
        assert all(len(each) == 1 for each in of_batches), "a batch is in the model as a whole"
        counts.append([each.pop() for each in of_batches])
    return counts
