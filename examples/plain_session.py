"""A plain tf.Session with a tf.train.Coordinator: staging.start() replaces start_queue_runners()."""

from __future__ import annotations

import numpy as np
import tensorflow.compat.v1 as tf

import staging_tf1 as staging


def main(epochs: int = 20) -> None:
    """Learn y = 3x + 1 from 1,000 points."""
    x = np.random.default_rng(0).uniform(-1, 1, size=1000).astype(np.float32)
    source = staging.sources.ArraySource({"x": x, "y": 3 * x + 1}, batch_size=50, shuffle=True, seed=1, epochs=epochs)
    with tf.Graph().as_default():
        batch = staging.staged(source)
        slope = tf.get_variable("slope", [], initializer=tf.initializers.zeros())
        offset = tf.get_variable("offset", [], initializer=tf.initializers.zeros())
        loss = tf.reduce_mean((slope * batch["x"] + offset - batch["y"]) ** 2)
        train_op = tf.train.GradientDescentOptimizer(0.2).minimize(loss)

        steps = 0
        with tf.Session() as sess:
            sess.run(tf.global_variables_initializer())  # start() raises if a variable is uninitialized
            coord = tf.train.Coordinator()
            threads = staging.start(sess, coord)
            try:
                while not coord.should_stop():
                    sess.run(train_op)
                    steps += 1
            except tf.errors.OutOfRangeError:
                print(f"end of the data after {steps} steps, {len(x)} points {epochs} times")
            finally:
                coord.request_stop()
                coord.join(threads)  # raises the exception of a feed thread
            print("learned: y = {:.2f} x + {:.2f}".format(*sess.run([slope, offset])))


if __name__ == "__main__":
    main()
