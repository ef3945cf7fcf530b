"""The classic recipe, piece by piece: placeholders, feed threads, a shuffling queue, a staging area, a warm-up put.

numpy batches -> feed threads -> placeholders -> RandomShuffleQueue -> put -> area -> get -> train_op
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any

import tensorflow.compat.v1 as tf

import staging_tf1 as staging
from staging_tf1.data import load_images

BATCH_SIZE = 32


def main(epochs: int = 10) -> None:
    digits = load_images()

    def batches() -> Iterator[dict[str, Any]]:
        for _ in range(epochs):
            for first in range(0, len(digits.x_train), 100):
                part = slice(first, first + 100)
                yield {"image": digits.x_train[part], "label": digits.y_train[part]}

    with tf.Graph().as_default():
        tf.set_random_seed(0)
        # Makes the placeholders and the queue. The queue shuffles single images, not batches.
        runner = staging.CustomRunner(batches, queue="shuffle", num_threads=2)
        batch = runner.get_inputs(batch_size=BATCH_SIZE)

        # Capacity for two: the put and the get of a step run in parallel, so the put may come first.
        area = staging.StagingArea.from_tensors(batch, capacity=2)
        put, got = area.put(batch), area.get()

        loss, correct, train_op = classifier(got["image"], got["label"])
        steps = math.ceil(epochs * len(digits.x_train) / BATCH_SIZE)
        trained = 0
        with tf.Session() as sess:
            sess.run(tf.global_variables_initializer())
            coord = tf.train.Coordinator()
            threads = runner.start_threads(sess, coord)

            sess.run(put)  # the warm-up: the first get needs an element
            for step in range(steps):
                # The last step must not put: no batch is left, so the put would fail the step.
                more = [put] if step < steps - 1 else []
                images, value, *_ = sess.run([got["image"], loss, train_op, *more])
                trained += len(images)
            # A run that feeds the staged tensors takes nothing from the area, so the same graph serves for testing.
            right = sess.run(correct, {got["image"]: digits.x_test, got["label"]: digits.y_test})

            coord.request_stop()
            coord.join(threads)

    print(f"{steps} steps on {trained} images ({len(digits.x_train)} digits, {epochs} times); last loss {value:.3f}")
    print(f"accuracy on {len(digits.x_test)} other digits: {right / len(digits.x_test):.3f}")


def classifier(images: Any, labels: Any) -> tuple[Any, Any, Any]:
    """One dense layer on 8x8 pixels from 0 to 16: the mean loss, the number of correct labels, a training step."""
    pixels = tf.reshape(tf.cast(images, tf.float32) / 16, [-1, 64])
    logits = tf.matmul(pixels, tf.get_variable("weights", [64, 10])) + tf.get_variable("bias", [10])
    loss = tf.reduce_mean(tf.nn.sparse_softmax_cross_entropy_with_logits(labels=labels, logits=logits))
    right = tf.equal(tf.argmax(logits, axis=1, output_type=tf.int32), labels)
    return loss, tf.reduce_sum(tf.cast(right, tf.int32)), tf.train.AdamOptimizer(0.01).minimize(loss)


if __name__ == "__main__":
    main()
