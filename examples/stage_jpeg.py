"""JPEG decoding and random crops in the graph: first inside the step, then staged, in parallel to it.

inline:  jpegs -> [ decode -> crop -> train_op ]                     one after the other, in each step
staged:  jpegs -> [ decode -> crop -> put ] -> area -> [ train_op ]  decodes the next batch during the step
"""

from __future__ import annotations

import time
from typing import Any

import numpy as np
import tensorflow.compat.v1 as tf

import staging_tf1 as staging
from staging_tf1.data import load_images

BATCH_SIZE, SIZE, CROP = 32, 256, 96


def main(steps: int = 30) -> None:
    jpegs = make_jpegs(64)
    print(f"{len(jpegs)} JPEG files of {SIZE}x{SIZE} pixels, cropped to {CROP}x{CROP}; {BATCH_SIZE} per batch")
    inline = milliseconds_a_step(jpegs, steps, stage=False)
    print(f"decoding inside the step: {inline:.1f} ms per step")
    staged = milliseconds_a_step(jpegs, steps, stage=True)
    print(f"decoding staged, in parallel to the step: {staged:.1f} ms per step ({inline / staged:.1f} times as fast)")


def milliseconds_a_step(jpegs: Any, steps: int, *, stage: bool) -> float:
    source = staging.sources.ArraySource(jpegs, batch_size=BATCH_SIZE, shuffle=True, seed=0)  # endless
    with tf.Graph().as_default():
        tf.set_random_seed(0)
        files = staging.CustomRunner(source, queue="fifo").get_inputs()
        # One image at a time leaves the step a core on a machine with two.
        images = tf.map_fn(decode_and_crop, files, fn_output_signature=tf.float32, parallel_iterations=1)
        if stage:
            images = staging.staged(images)  # a feed thread runs the ops behind `images`
        train_op = train_step(images)
        # A step that uses all cores gains nothing. One thread simulates a step on an accelerator.
        with staging.StagingSession(config=tf.ConfigProto(intra_op_parallelism_threads=1)) as sess:
            sess.run(train_op)  # not timed: TensorFlow optimizes the graph in the first step
            start = time.perf_counter()
            for _ in range(steps):
                sess.run(train_op)
            secs = time.perf_counter() - start
    return 1000 * secs / steps


def decode_and_crop(jpeg: Any) -> Any:
    """A random part of the image: float32 [CROP, CROP, 3] from 0 to 1."""
    image = tf.io.decode_jpeg(jpeg, channels=3)
    return tf.cast(tf.image.random_crop(image, [CROP, CROP, 3]), tf.float32) / 255


def train_step(images: Any) -> Any:
    """A convolution and a dense layer that learn the brightness of an image."""
    hidden = tf.nn.relu(tf.nn.conv2d(images, tf.get_variable("filters", [5, 5, 3, 24]), strides=2, padding="SAME"))
    guess = tf.matmul(tf.reduce_mean(hidden, axis=[1, 2]), tf.get_variable("weights", [24, 1]))
    brightness = tf.reduce_mean(images, axis=[1, 2, 3])
    return tf.train.AdamOptimizer(0.01).minimize(tf.reduce_mean((guess[:, 0] - brightness) ** 2))


def make_jpegs(count: int) -> Any:
    """`count` digits, enlarged and tinted, as JPEG files in memory: an array of bytes."""
    digits = load_images().x_train[:count].astype(np.float32) / 16
    tints = np.random.default_rng(0).uniform(size=[count, 1, 1, 3]).astype(np.float32)
    with tf.Graph().as_default(), tf.Session() as sess:
        pixels = tf.image.resize(digits[..., np.newaxis] * tints, [SIZE, SIZE])
        images = tf.cast(255 * pixels, tf.uint8)
        return np.array(sess.run([tf.io.encode_jpeg(images[i]) for i in range(count)]), object)


if __name__ == "__main__":
    main()
