"""The models of the workloads. They use variables and matmuls, because `tf.layers` raises with Keras 3."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from staging_tf1._tf import tf

__all__ = ["convolutional_loss", "dense_loss", "text_loss"]


def dense_loss(batch: dict[str, Any], hidden: Sequence[int], classes: int) -> Any:
    """Return the mean cross-entropy of dense layers on flat images. Without hidden layers: a softmax regression."""
    return _layers_loss(batch["image"], batch["label"], hidden, classes)


def convolutional_loss(batch: dict[str, Any], channels: Sequence[int], classes: int) -> Any:
    """Return the mean cross-entropy of 5x5 convolutions with ReLU, a mean over the image, and a dense layer."""
    values = batch["image"]
    for index, units in enumerate(channels):
        kernel = _weights(f"conv{index}", [5, 5, values.shape[-1], units])
        values = tf.nn.relu(tf.nn.conv2d(values, kernel, strides=4 if index == 0 else 2, padding="SAME"))
    return _cross_entropy(_dense("logits", tf.reduce_mean(values, axis=[1, 2]), classes), batch["label"])


def text_loss(batch: dict[str, Any], pieces: int, width: int, hidden: Sequence[int], classes: int) -> Any:
    """Return the mean cross-entropy of dense layers on the mean embedding of a text's tokens. Token 0 is padding."""
    embedded = tf.gather(_weights("embedding", [pieces, width]), batch["tokens"])
    present = tf.cast(batch["tokens"] > 0, tf.float32)[:, :, None]
    mean = tf.reduce_sum(embedded * present, axis=1) / (tf.reduce_sum(present, axis=1) + 1.0)
    return _layers_loss(mean, batch["label"], hidden, classes)


def _layers_loss(values: Any, labels: Any, hidden: Sequence[int], classes: int) -> Any:
    for index, units in enumerate(hidden):
        values = tf.nn.relu(_dense(f"hidden{index}", values, units))
    return _cross_entropy(_dense("logits", values, classes), labels)


def _dense(name: str, values: Any, units: int) -> Any:
    bias = tf.get_variable(f"{name}/bias", [units], initializer=tf.initializers.zeros())
    return tf.matmul(values, _weights(name, [values.shape[1], units])) + bias


def _weights(name: str, shape: list[Any]) -> Any:
    return tf.get_variable(f"{name}/weights", shape, initializer=tf.initializers.glorot_uniform())


def _cross_entropy(logits: Any, labels: Any) -> Any:
    return tf.reduce_mean(tf.nn.sparse_softmax_cross_entropy_with_logits(labels=labels, logits=logits))
