"""`tensorflow.examples.tutorials.mnist.mnist`: the network of the MNIST tutorial."""

from __future__ import annotations

from staging_tf1.legacy.contrib.mnist_model import (
    IMAGE_PIXELS,
    IMAGE_SIZE,
    NUM_CLASSES,
    evaluation,
    inference,
    loss,
    training,
)

__all__ = ["IMAGE_PIXELS", "IMAGE_SIZE", "NUM_CLASSES", "evaluation", "inference", "loss", "training"]
