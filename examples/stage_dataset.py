"""Staging a tf.data.Dataset: after one call, the training step finds its batch ready.

Dataset -> staged() -> train_op
"""

from __future__ import annotations

import tensorflow.compat.v1 as tf

import staging_tf1 as staging
from staging_tf1.data import load_images


def main(epochs: int = 5) -> None:
    digits = load_images()
    with tf.Graph().as_default():
        tf.set_random_seed(0)
        dataset = tf.data.Dataset.from_tensor_slices({"image": digits.x_train, "label": digits.y_train})
        dataset = dataset.shuffle(len(digits.x_train)).repeat(epochs).batch(32)

        # No iterator, no initializer, no put. `batch` has the structure of the dataset.
        batch = staging.staged(dataset, capacity=2, name="digits")

        pixels = tf.reshape(tf.cast(batch["image"], tf.float32) / 16, [-1, 64])
        logits = tf.matmul(pixels, tf.get_variable("weights", [64, 10])) + tf.get_variable("bias", [10])
        loss = tf.reduce_mean(tf.nn.sparse_softmax_cross_entropy_with_logits(labels=batch["label"], logits=logits))
        train_op = tf.train.AdamOptimizer(0.01).minimize(loss)

        losses, images = [], 0
        with staging.StagingSession() as sess:
            while not sess.should_stop():  # until the end of the dataset
                labels, value, _ = sess.run([batch["label"], loss, train_op])
                losses.append(value)
                images += len(labels)

    print(f"{images} images in {len(losses)} steps: {len(digits.x_train)} digits, {epochs} times")
    print(f"loss of the first step {losses[0]:.2f}, of the last {losses[-1]:.2f}")
    print(*sess.stats())


if __name__ == "__main__":
    main()
