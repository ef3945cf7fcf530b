"""`tensorflow.examples.tutorials.mnist.mnist`: the two-layer network of the MNIST tutorial."""

from __future__ import annotations

import math
from typing import Any

from staging_tf1._tf import tf

NUM_CLASSES = 10
IMAGE_SIZE = 28
IMAGE_PIXELS = IMAGE_SIZE * IMAGE_SIZE


def inference(images: Any, hidden1_units: int, hidden2_units: int) -> Any:
    """Return logits [B, 10] for images [B, 784]: two layers of rectified linear units, and a linear layer."""
    hidden1 = tf.nn.relu(_linear("hidden1", images, IMAGE_PIXELS, hidden1_units))
    hidden2 = tf.nn.relu(_linear("hidden2", hidden1, hidden1_units, hidden2_units))
    return _linear("softmax_linear", hidden2, hidden2_units, NUM_CLASSES)


def loss(logits: Any, labels: Any) -> Any:
    """Return the mean cross-entropy of logits [B, 10] and labels [B], and add it to the graph's losses."""
    return tf.losses.sparse_softmax_cross_entropy(labels=tf.cast(labels, tf.int64), logits=logits)


def training(loss: Any, learning_rate: float) -> Any:
    """Return the op of one step of gradient descent, which also counts the steps in the variable global_step."""
    tf.summary.scalar("loss", loss)
    optimizer = tf.train.GradientDescentOptimizer(learning_rate)
    global_step = tf.Variable(0, name="global_step", trainable=False)
    return optimizer.minimize(loss, global_step=global_step)


def evaluation(logits: Any, labels: Any) -> Any:
    """Return how many of the labels [B] have the largest of the logits [B, 10], an int32 scalar."""
    correct = tf.nn.in_top_k(logits, labels, 1)
    return tf.reduce_sum(tf.cast(correct, tf.int32))


def _linear(scope: str, values: Any, inputs: int, outputs: int) -> Any:
    with tf.name_scope(scope):
        start = tf.truncated_normal([inputs, outputs], stddev=1.0 / math.sqrt(float(inputs)))
        weights = tf.Variable(start, name="weights")
        biases = tf.Variable(tf.zeros([outputs]), name="biases")
        return tf.matmul(values, weights) + biases
