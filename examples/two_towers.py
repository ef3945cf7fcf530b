"""Two towers on two devices: each has its own batches, the gradients are averaged, and no record is lost.

    source -+-> shard 0 -> area on CPU:0 -> tower 0 -+-> average -> apply
            +-> shard 1 -> area on CPU:1 -> tower 1 -+

Two virtual CPU devices simulate two GPUs. If you have GPUs, use "/gpu:0" and "/gpu:1".
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import tensorflow.compat.v1 as tf

import staging_tf1 as staging
from staging_tf1.data import load_images

DEVICES = ["/cpu:0", "/cpu:1"]


def main(records: int = 1441, batch_size: int = 20) -> list[list[int]]:
    """Train on `records` digits for one epoch; return the ids of the records that each tower saw."""
    digits = load_images()
    # 1,441 digits do not divide evenly: tower 0 gets 721, tower 1 gets 720. So tower 0 has one batch more.
    source = staging.sources.ArraySource(
        {"id": np.arange(records), "image": digits.x_train[:records], "label": digits.y_train[:records]},
        batch_size=batch_size,
        shuffle=True,
        seed=0,
        epochs=1,
    )
    seen: list[list[int]] = [[] for _ in DEVICES]
    with tf.Graph().as_default():
        tf.set_random_seed(0)
        batches = staging.staged(source, devices=DEVICES, name="towers")  # one structure per device
        optimizer = tf.train.AdamOptimizer(0.01)
        losses, gradients = [], []
        for device, batch in zip(DEVICES, batches):
            with tf.device(device), tf.variable_scope("model", reuse=tf.AUTO_REUSE):
                losses.append(tower_loss(batch))
                gradients.append(optimizer.compute_gradients(losses[-1]))
        loss = tf.add_n(losses) / len(losses)
        train_op = optimizer.apply_gradients(average(gradients))
        train_alone = [optimizer.apply_gradients(each) for each in gradients]

        with staging.StagingSession(config=tf.ConfigProto(device_count={"CPU": len(DEVICES)})) as sess:
            ids = [batch["id"] for batch in batches]
            values = []
            for of_towers, value, _ in until_the_end(sess, [ids, loss, train_op]):
                values.append(value)
                for tower, of_tower in enumerate(of_towers):
                    seen[tower] += of_tower.tolist()
            print(f"{len(values)} rounds with a batch for every tower; loss from {values[0]:.2f} to {values[-1]:.2f}")

            # A round without a batch for every tower takes none at all. The other towers finish on their own.
            for tower in range(len(DEVICES)):
                left = [of_tower.tolist() for of_tower, _ in until_the_end(sess, [ids[tower], train_alone[tower]])]
                seen[tower] += [number for of_tower in left for number in of_tower]
                print(f"left for tower {tower} alone: batches of {[len(of_tower) for of_tower in left]} records")

    print(f"records seen: {len(seen[0])} by tower 0, {len(seen[1])} by tower 1, {len({*seen[0]} & {*seen[1]})} by both")
    print(f"together: {len({*seen[0], *seen[1]})} of {records}")
    return seen


def tower_loss(batch: Any) -> Any:
    pixels = tf.reshape(tf.cast(batch["image"], tf.float32) / 16, [-1, 64])
    logits = tf.matmul(pixels, tf.get_variable("weights", [64, 10])) + tf.get_variable("bias", [10])
    return tf.reduce_mean(tf.nn.sparse_softmax_cross_entropy_with_logits(labels=batch["label"], logits=logits))


def average(towers: list[Any]) -> list[tuple[Any, Any]]:
    """The mean gradient of each variable, from the (gradient, variable) pairs of all towers."""
    return [(sum(gradient for gradient, _ in pairs) / len(pairs), pairs[0][1]) for pairs in zip(*towers)]


def until_the_end(sess: Any, fetches: Any) -> Iterator[Any]:
    while True:
        try:
            yield sess.run(fetches)
        except tf.errors.OutOfRangeError:
            return


if __name__ == "__main__":
    main()
