"""A program with tf.train.MonitoredTrainingSession: keep the session, and add one hook.

The session saves checkpoints. The second run restores the checkpoint of the first and resumes there.
"""

from __future__ import annotations

import tempfile

import tensorflow.compat.v1 as tf

import staging_tf1 as staging
from staging_tf1.data import load_images


def main(steps: int = 60) -> None:
    """Train for `steps` steps, stop, and train for as many more in a second run."""
    with tempfile.TemporaryDirectory() as checkpoints:
        train(checkpoints, last_step=steps)
        train(checkpoints, last_step=2 * steps)


def train(checkpoint_dir: str, last_step: int) -> None:
    digits = load_images()
    source = staging.sources.ArraySource(
        {"image": digits.x_train, "label": digits.y_train}, batch_size=32, shuffle=True, seed=0
    )
    with tf.Graph().as_default():
        tf.set_random_seed(0)
        batch = staging.staged(source)
        pixels = tf.reshape(tf.cast(batch["image"], tf.float32) / 16, [-1, 64])
        logits = tf.matmul(pixels, tf.get_variable("weights", [64, 10])) + tf.get_variable("bias", [10])
        loss = tf.reduce_mean(tf.nn.sparse_softmax_cross_entropy_with_logits(labels=batch["label"], logits=logits))
        global_step = tf.train.get_or_create_global_step()
        with tf.control_dependencies([tf.train.AdamOptimizer(0.01).minimize(loss, global_step=global_step)]):
            train_op = global_step.read_value()  # trains, and returns the number of steps so far

        # The hook clears the area and starts the threads before the first step, and joins them after the last.
        hooks = [staging.StagingHook(), tf.train.StopAtStepHook(last_step=last_step)]
        with tf.train.MonitoredTrainingSession(checkpoint_dir=checkpoint_dir, hooks=hooks) as sess:
            steps, losses = [], []
            while not sess.should_stop():
                step, value = sess.run([train_op, loss])
                steps.append(step)
                losses.append(value)
    print(f"steps {steps[0]} to {steps[-1]}: loss from {losses[0]:.2f} to {losses[-1]:.2f}")


if __name__ == "__main__":
    main()
