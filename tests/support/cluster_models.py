"""What the workers of a test cluster read, and what their model has seen of it."""

from __future__ import annotations

import json
import threading
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import tensorflow.compat.v1 as tf

import staging_tf1 as staging
from staging_tf1.graph.acked import Acked


def ids_source(
    num_records: int,
    batch_size: int,
    epochs: int = 1,
    seed: int | None = None,
    transform: Any = None,
    rotated_by: int = 0,
) -> staging.sources.ArraySource:
    """The numbers of the records, shuffled."""
    return staging.sources.ArraySource(
        np.roll(np.arange(num_records), rotated_by),
        batch_size=batch_size,
        epochs=epochs,
        shuffle=True,
        seed=seed,
        across_epochs=False,
        transform=transform,
    )


def ids_stream(batches: Sequence[int], index: int, batch_size: int) -> staging.sources.GeneratorSource:
    """The stream of worker `index`, which has `batches[index]` batches: no number is in two streams."""
    first = sum(batches[:index])
    own = [np.arange(batch_size) + batch_size * number for number in range(first, first + batches[index])]
    return staging.sources.GeneratorSource(lambda: iter(own), resume="skip")


def counting_model(ids: Any, num_records: int, megabytes: int, *, use_resource: bool) -> Any:
    """Return a training op whose model counts in four parts of large weights, and for each record, what it has seen.

    A saver writes variables in the order of their names: the position of "train", the weights, then the counts.
    """
    step = tf.train.get_or_create_global_step()
    with tf.variable_scope("", use_resource=use_resource):
        weights = tf.get_variable(
            "u_weights",
            [4 * max(1, megabytes * 2**18 // 4)],
            tf.float32,
            tf.zeros_initializer(),
            partitioner=tf.fixed_size_partitioner(4),
        )
        counts = tf.get_variable("z_counts", [num_records], tf.int64, tf.zeros_initializer())
    # Milliseconds for the step, between its batch and its update.
    values = tf.random_normal([250, 250])
    with tf.control_dependencies([ids]):
        for _ in range(3):
            values = tf.tanh(tf.matmul(values, values))
    ids = ids + tf.cast(0 * tf.reduce_sum(values), ids.dtype)
    # The size of `ids` would be a constant, which is added before the batch is there.
    number = tf.reduce_sum(tf.cast(ids >= 0, tf.float32))
    # Without the locks, two workers at once could lose an update.
    added = [tf.scatter_add(part, [0], [number], use_locking=True) for part in weights]
    counted = tf.scatter_add(counts, ids, tf.ones_like(ids), use_locking=True)
    with tf.control_dependencies([counted, *added]):
        return tf.assign_add(step, 1)


def slowed(ids: Any, secs: float) -> Any:
    """Return `ids` after so many seconds."""

    def wait(values: Any) -> Any:
        threading.Event().wait(secs)
        return values

    return tf.ensure_shape(tf.py_func(wait, [ids], ids.dtype), ids.shape)


def count_in_step(ids: Any, num_records: int, megabytes: int, workers: int) -> tuple[Any, Any]:
    """As `counting_model`, with the gradients of all workers: returns the training op and its optimizer."""
    with tf.variable_scope("", use_resource=False):
        counts = tf.get_variable("z_counts", [num_records], tf.float32, tf.zeros_initializer())
        weights = tf.get_variable("u_weights", [4 * max(1, megabytes * 2**18 // 4)], initializer=tf.zeros_initializer())
        # The mean of the gradients is applied.
        optimizer = tf.train.SyncReplicasOptimizer(
            tf.train.GradientDescentOptimizer(-float(workers)), workers, total_num_replicas=workers
        )
        # Dense gradients: of sparse ones, the mean is that of the workers that have one.
        seen = tf.reduce_sum(tf.one_hot(ids, num_records), axis=0)
        loss = tf.reduce_sum(counts * seen) + tf.reduce_sum(weights * tf.reduce_sum(seen))
        return optimizer.minimize(loss, tf.train.get_or_create_global_step()), optimizer


def miscounted(checkpoint: str, num_records: int, batch_size: int) -> tuple[int, int, bool]:
    """How many records a model with counts has lost, and has twice, as its position in the checkpoint says.

    Also whether the parts of its weights are of different moments.
    """
    saved = tf.train.load_checkpoint(checkpoint)
    print_ = json.loads(saved.get_tensor("train/fingerprint"))
    positions, counts = saved.get_tensor("train/position"), saved.get_tensor("z_counts")
    source = ids_source(num_records, batch_size).with_seed(print_["seed"])
    expected = np.zeros(num_records, np.int64)
    if print_.get("share") == "dynamic":
        acked = Acked(positions)
        for number in filter(acked.has, range(source.num_batches or 0)):
            expected[source.batch(number)] += 1
    else:
        for share, position in enumerate(positions):
            shard = source.shard(share, len(positions))
            for number in range(position):
                expected[shard.batch(number)] += 1
    weights = saved.get_tensor("u_weights")
    parts, wrong = weights[:: len(weights) // 4].tolist(), counts - expected
    return -int(wrong[wrong < 0].sum()), int(wrong[wrong > 0].sum()), parts != [counts.sum()] * 4


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
