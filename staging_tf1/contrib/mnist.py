"""`tensorflow.examples.tutorials.mnist.input_data`, and `tf.contrib.learn.datasets.mnist`."""

from __future__ import annotations

from staging_tf1.legacy.contrib.mnist import (
    DEFAULT_SOURCE_URL,
    DataSet,
    Datasets,
    load_dataset,
    load_mnist,
    read_data_sets,
)
from staging_tf1.legacy.contrib.mnist_files import dense_to_one_hot, extract_images, extract_labels

__all__ = [
    "DEFAULT_SOURCE_URL",
    "DataSet",
    "Datasets",
    "dense_to_one_hot",
    "extract_images",
    "extract_labels",
    "load_dataset",
    "load_mnist",
    "read_data_sets",
]
