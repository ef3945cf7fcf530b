"""`tensorflow.examples.tutorials.mnist.input_data`: MNIST as numpy arrays, in batches that are shuffled as in TF1."""

from __future__ import annotations

import os
from typing import Any, NamedTuple

import numpy as np

from staging_tf1._tf import tf
from staging_tf1.legacy.contrib.mnist_files import extract_images, extract_labels

DEFAULT_SOURCE_URL = "https://storage.googleapis.com/cvdf-datasets/mnist/"
_FILES = (
    "train-images-idx3-ubyte.gz",
    "train-labels-idx1-ubyte.gz",
    "t10k-images-idx3-ubyte.gz",
    "t10k-labels-idx1-ubyte.gz",
)


class DataSet:
    """Images and labels in batches.

    `images` is uint8 [N, rows, columns, 1] and `labels` has N rows. With the dtype `tf.float32` the values of the
    images become 0 to 1, with `tf.uint8` they stay 0 to 255. `reshape` makes them [N, rows * columns]. Making a
    DataSet seeds numpy's global generator: with `seed`, with the graph's seed, or with a random seed.

    Raises:
      TypeError: the dtype is neither uint8 nor float32.
      ValueError: the arrays do not fit each other, or `reshape` gets images with several channels.
    """

    def __init__(
        self,
        images: Any,
        labels: Any,
        fake_data: bool = False,
        one_hot: bool = False,
        dtype: Any = tf.float32,
        reshape: bool = True,
        seed: int | None = None,
    ) -> None:
        graph_seed, op_seed = tf.get_seed(seed)
        np.random.seed(graph_seed if seed is None else op_seed)
        dtype = tf.as_dtype(dtype).base_dtype
        if dtype not in (tf.uint8, tf.float32):
            raise TypeError(f"Invalid image dtype {dtype!r}, expected uint8 or float32")
        self._one_hot = one_hot
        self._images = images if fake_data else _prepared(images, labels, dtype, reshape)
        self._labels = labels
        self._num_examples = 10000 if fake_data else len(images)
        self._epochs_completed = 0
        self._start = 0

    @property
    def images(self) -> Any:
        """All images, in the order of this epoch."""
        return self._images

    @property
    def labels(self) -> Any:
        """All labels, in the order of this epoch."""
        return self._labels

    @property
    def num_examples(self) -> int:
        """The number of images."""
        return self._num_examples

    @property
    def epochs_completed(self) -> int:
        """How often all images were delivered."""
        return self._epochs_completed

    def next_batch(self, batch_size: int, fake_data: bool = False, shuffle: bool = True) -> Any:
        """Return the next images and labels.

        A batch at the end of an epoch continues with the next epoch. Each epoch is shuffled by numpy's global
        generator. `fake_data` returns lists of constants.
        """
        if fake_data:
            label: Any = [1] + [0] * 9 if self._one_hot else 0
            return [[1] * 784 for _ in range(batch_size)], [label for _ in range(batch_size)]
        if self._epochs_completed == 0 and self._start == 0 and shuffle:
            self._shuffle()
        start, end = self._start, self._start + batch_size
        if end <= self._num_examples:
            self._start = end
            return self._images[start:end], self._labels[start:end]
        self._epochs_completed += 1
        images, labels = self._images[start:], self._labels[start:]
        if shuffle:
            self._shuffle()
        self._start = end - self._num_examples
        return (
            np.concatenate([images, self._images[: self._start]]),
            np.concatenate([labels, self._labels[: self._start]]),
        )

    def _shuffle(self) -> None:
        order = np.arange(self._num_examples)
        np.random.shuffle(order)
        self._images = self._images[order]
        self._labels = self._labels[order]


class Datasets(NamedTuple):
    """The three sets that `read_data_sets` returns."""

    train: DataSet
    validation: DataSet
    test: DataSet


def read_data_sets(
    train_dir: str,
    fake_data: bool = False,
    one_hot: bool = False,
    dtype: Any = tf.float32,
    reshape: bool = True,
    validation_size: int = 5000,
    seed: int | None = None,
    source_url: str = DEFAULT_SOURCE_URL,
) -> Datasets:
    """Read the four files of MNIST in the folder `train_dir`. Nothing is downloaded.

    The first `validation_size` training images become the validation set. The other arguments are those of `DataSet`.

    Raises:
      FileNotFoundError: the folder lacks a file.
      ValueError: a file is damaged, or `validation_size` is out of range.
    """
    if fake_data:
        made = [DataSet([], [], fake_data=True, one_hot=one_hot, dtype=dtype, seed=seed) for _ in range(3)]
        return Datasets(*made)
    images, labels, test_images, test_labels = _arrays(os.fspath(train_dir), source_url, one_hot)
    if not 0 <= validation_size <= len(images):
        raise ValueError(f"Validation size should be between 0 and {len(images)}. Received: {validation_size}.")
    options = {"dtype": dtype, "reshape": reshape, "seed": seed}
    return Datasets(
        train=DataSet(images[validation_size:], labels[validation_size:], **options),
        validation=DataSet(images[:validation_size], labels[:validation_size], **options),
        test=DataSet(test_images, test_labels, **options),
    )


def load_mnist(train_dir: str = "MNIST-data") -> Datasets:
    """Read the four files of MNIST in the folder `train_dir`, as `read_data_sets` does."""
    return read_data_sets(train_dir)


def load_dataset(name: str, size: str = "small", test_with_fake_data: bool = False) -> Datasets:
    """Return the data set "mnist", read from the folder MNIST-data. Raises ValueError for any other name."""
    if name != "mnist":
        raise ValueError(f"data set {name!r} is not available, expected 'mnist'. Use the package tensorflow_datasets.")
    return load_mnist()


def _prepared(images: Any, labels: Any, dtype: Any, reshape: bool) -> Any:
    if len(images) != len(labels):
        raise ValueError(f"got {len(images)} images and {len(labels)} labels, expected one label for each image.")
    if reshape:
        if images.ndim != 4 or images.shape[3] != 1:
            raise ValueError(
                f"got images of shape {list(images.shape)}, expected [N, rows, columns, 1]. Pass reshape=False."
            )
        images = images.reshape(len(images), images.shape[1] * images.shape[2])
    if dtype == tf.float32:
        images = np.multiply(images.astype(np.float32), np.float32(1.0 / 255.0))
    return images


def _arrays(folder: str, source_url: str, one_hot: bool) -> list[Any]:
    """Return the arrays of the four files. Raises FileNotFoundError if the folder lacks one."""
    missing = [name for name in _FILES if not tf.gfile.Exists(os.path.join(folder, name))]
    if missing:
        raise FileNotFoundError(
            f"folder {folder!r} lacks {', '.join(missing)}. read_data_sets() downloads nothing: get the files from "
            f"{source_url or DEFAULT_SOURCE_URL}, and put them into "
            f"{folder if '://' in folder else os.path.abspath(folder)}"
        )
    arrays = []
    for name in _FILES:
        with tf.gfile.GFile(os.path.join(folder, name), "rb") as file:
            arrays.append(extract_images(file) if "images" in name else extract_labels(file, one_hot=one_hot))
    return arrays
