"""Real over synthetic: the throughput with the input pipeline divided by the throughput on constant data.

    python benchmarks/synthetic.py [--rounds 31] [--json out.json]

TensorFlow's old benchmark pages report this figure. The target is at least 0.97 if a step on constant data takes 20 ms
or more. A small convolutional network trains on the digits, which are shuffled, moved by up to two pixels and scaled in
Python. There are three batch sizes: the cost of the input grows more slowly than the step, so its share falls.
"""

from __future__ import annotations

import statistics
from contextlib import ExitStack
from typing import Any

import numpy as np
import tensorflow.compat.v1 as tf
from common import Step, finish, flags, in_turn, ratio, turns

import staging_tf1 as staging
from staging_tf1.data import load_images
from staging_tf1.sources import aligned_empty

BATCH_SIZES = (64, 256, 1024)
SHIFTS = range(-2, 3)
# For each way to move an 8x8 image, wrapping around its edges: the number of the pixel at each place.
MOVES = np.array(
    [np.roll(np.arange(64).reshape(8, 8), (down, right), (0, 1)).ravel() for down in SHIFTS for right in SHIFTS]
)


def main(argv: list[str] | None = None) -> dict[int, tuple[float, float, float]]:
    """Print real over synthetic for each batch size; return the median, minimum and maximum."""
    options = flags(__doc__, rounds=31).parse_args(argv)
    over, found = {}, {}
    for batch_size in BATCH_SIZES[:1] if options.quick else BATCH_SIZES:
        with ExitStack() as stack:
            steps = {"synthetic": synthetic_step(batch_size, stack), "real": real_step(batch_size, stack)}
            found[batch_size] = in_turn(steps, **turns(options, 0.5))
        over[batch_size] = ratio(found[batch_size], "synthetic", "real")
        millis = statistics.median(found[batch_size]["synthetic"]) / 1e3
        share = "{:.3f} ({:.3f} to {:.3f})".format(*over[batch_size])
        print(f"{batch_size} digits per batch, {millis:.1f} ms per step on constant data; real over synthetic: {share}")
    finish(options, {"us a step": found, "real over synthetic": over})
    return over


def real_step(batch_size: int, stack: ExitStack) -> Step:
    """A step on the staged digits."""
    digits = load_images()
    source = staging.sources.ArraySource(
        {"image": digits.x_train, "label": digits.y_train.astype(np.int32)},
        batch_size=batch_size,
        shuffle=True,
        seed=1,
        across_epochs=True,
        transform=moved_and_scaled,
    )
    with tf.Graph().as_default():
        train_op = model(staging.staged(source))
        return stack.enter_context(staging.StagingSession()).make_callable(train_op)


def synthetic_step(batch_size: int, stack: ExitStack) -> Step:
    """The same step on a constant batch in the graph."""
    rng = np.random.default_rng(0)
    with tf.Graph().as_default():
        image = tf.Variable(rng.random((batch_size, 8, 8), np.float32), trainable=False)
        label = tf.Variable(rng.integers(0, 10, batch_size, np.int32), trainable=False)
        train_op = model({"image": image.value(), "label": label.value()})
        session = stack.enter_context(tf.Session())
        session.run(tf.global_variables_initializer())
        return session.make_callable(train_op)


def moved_and_scaled(batch: dict[str, Any], rng: np.random.Generator) -> dict[str, Any]:
    """Move each image by up to two pixels and scale it to float32 from 0 to 1, in one gather and one more pass."""
    image = batch["image"]
    pixels = MOVES[rng.integers(len(MOVES), size=len(image))]
    pixels += np.arange(0, image.size, 64)[:, np.newaxis]
    scaled = aligned_empty(image.shape, np.float32)
    np.multiply(image.take(pixels).reshape(image.shape), np.float32(1 / 16), out=scaled)
    return {"image": scaled, "label": batch["label"]}


def model(batch: dict[str, Any]) -> Any:
    """The train op: three 3x3 convolutions of 32, 64 and 64 channels, a mean, ten classes; SGD."""
    values = batch["image"][..., tf.newaxis]
    for index, channels in enumerate((32, 64, 64)):
        kernel = tf.get_variable(f"conv{index}", [3, 3, values.shape[-1], channels])
        values = tf.nn.relu(tf.nn.conv2d(values, kernel, strides=1, padding="SAME"))
    logits = tf.matmul(tf.reduce_mean(values, axis=[1, 2]), tf.get_variable("logits", [64, 10]))
    loss = tf.reduce_mean(tf.nn.sparse_softmax_cross_entropy_with_logits(labels=batch["label"], logits=logits))
    return tf.train.GradientDescentOptimizer(0.1).minimize(loss)


if __name__ == "__main__":
    main()
