"""`tensorflow.examples.tutorials.mnist`: what it does with files that are missing or damaged, and its network."""

from __future__ import annotations

import gzip
import struct
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tensorflow.compat.v1 as tf

from staging_tf1.contrib import mnist, mnist_model

IMAGES = struct.pack(">4I", 2051, 6, 28, 28) + bytes(range(6)) * 784
LABELS = struct.pack(">2I", 2049, 6) + bytes(range(6))
FILES = {
    "train-images-idx3-ubyte.gz": IMAGES,
    "train-labels-idx1-ubyte.gz": LABELS,
    "t10k-images-idx3-ubyte.gz": IMAGES,
    "t10k-labels-idx1-ubyte.gz": LABELS,
}


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    for name, content in FILES.items():
        (tmp_path / name).write_bytes(gzip.compress(content))
    return tmp_path


def test_the_sets_of_a_folder(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    sets = mnist.read_data_sets(folder, validation_size=2)
    assert [part.num_examples for part in sets] == [4, 2, 6]
    assert sets.test.labels.tolist() == [0, 1, 2, 3, 4, 5]
    assert capsys.readouterr().out.splitlines() == [f"Extracting {folder / name}" for name in FILES]
    sets.validation.images[0, 0] = 0.5  # floating-point images are a copy
    assert mnist.read_data_sets(str(folder), one_hot=True, validation_size=0).train.labels[2].tolist() == [
        0, 0, 1, 0, 0, 0, 0, 0, 0, 0,
    ]  # fmt: skip


def test_the_graph_seed_shuffles_if_there_is_no_other(folder: Path, graph: Any) -> None:
    orders = []
    for _ in range(2):
        tf.set_random_seed(5)
        train = mnist.read_data_sets(str(folder), validation_size=0).train
        orders.append([train.next_batch(4)[1].tolist() for _ in range(4)])
    assert orders[0] == orders[1]
    assert train.epochs_completed == 2


def test_a_folder_without_the_files_names_them_and_where_to_put_them(folder: Path) -> None:
    (folder / "t10k-labels-idx1-ubyte.gz").unlink()
    with pytest.raises(FileNotFoundError) as caught:
        mnist.read_data_sets(str(folder))
    assert str(caught.value) == (
        f"folder {str(folder)!r} lacks t10k-labels-idx1-ubyte.gz. read_data_sets() downloads nothing: get the files "
        f"from https://storage.googleapis.com/cvdf-datasets/mnist/, and put them into {folder}"
    )
    with pytest.raises(FileNotFoundError, match=r"lacks train-images-idx3-ubyte.gz, train-labels-idx1-ubyte.gz, t10k-"):
        mnist.load_mnist(str(folder / "none"))


DAMAGED: list[tuple[Callable[[bytes], bytes], str]] = [
    (lambda content: b"<html>404</html>", r"is not a gzip file .*If it is a web page, download it again\."),
    (lambda content: content, r"is not a gzip file .*If it was unpacked, pack it again with gzip\."),
    (lambda content: gzip.compress(content)[:-20], r"is damaged or incomplete \(.*\)\. Download it again\."),
    (lambda content: gzip.compress(content)[:20] + b"\xff" * 40, r"is damaged or incomplete"),
    (lambda content: b"", r"has 0 bytes, expected a header of 16\. Download it again\."),
    (lambda content: gzip.compress(content[:100]), r"has 84 bytes of images, but its header announces 4704\."),
    (
        lambda content: gzip.compress(LABELS * 2),
        r"Invalid magic number 2049 in MNIST image file: .*\. Expected 2051\. Are the files of images and labels inter",
    ),
]


@pytest.mark.parametrize(("damage", "message"), DAMAGED)
def test_a_damaged_file_is_named(folder: Path, damage: Callable[[bytes], bytes], message: str) -> None:
    path = folder / "t10k-images-idx3-ubyte.gz"
    path.write_bytes(damage(IMAGES))
    with pytest.raises(ValueError, match=message) as caught:
        mnist.read_data_sets(str(folder), validation_size=0)
    assert str(path) in str(caught.value)


def test_arguments_that_do_not_fit(folder: Path) -> None:
    with pytest.raises(ValueError, match=r"Validation size should be between 0 and 6. Received: 7."):
        mnist.read_data_sets(str(folder), validation_size=7)
    with pytest.raises(TypeError, match="Invalid image dtype tf.int32, expected uint8 or float32"):
        mnist.read_data_sets(str(folder), validation_size=0, dtype=tf.int32)
    with pytest.raises(ValueError, match="label 11 is out of range \\(0 to 9\\). Pass a larger num_classes."):
        mnist.dense_to_one_hot(np.array([1, 11]), 10)
    with pytest.raises(ValueError, match="got 2 images and 3 labels, expected one label for each image"):
        mnist.DataSet(np.zeros([2, 4, 4, 1], np.uint8), np.zeros(3))
    with pytest.raises(ValueError, match=r"got images of shape \[2, 4, 4, 3\], .* Pass reshape=False."):
        mnist.DataSet(np.zeros([2, 4, 4, 3], np.uint8), np.zeros(2))
    with pytest.raises(ValueError, match="data set 'iris' is not available, expected 'mnist'"):
        mnist.load_dataset("iris")


def test_the_network_of_the_tutorial_learns(graph: Any) -> None:
    tf.set_random_seed(1)
    rng = np.random.RandomState(0)
    labels = rng.randint(0, 10, 32)
    images = np.eye(784, dtype=np.float32)[labels]
    logits = mnist_model.inference(tf.constant(images), 16, 8)
    loss = mnist_model.loss(logits, tf.constant(labels))
    train = mnist_model.training(loss, 0.5)
    right = mnist_model.evaluation(logits, tf.constant(labels))
    names = [variable.op.name for variable in tf.global_variables()]
    layers = ["hidden1", "hidden2", "softmax_linear"]
    assert names == [f"{scope}/{part}" for scope in layers for part in ("weights", "biases")] + ["global_step"]
    with tf.Session() as sess:
        sess.run(tf.global_variables_initializer())
        for _ in range(400):
            sess.run(train)
        assert sess.run(right) == 32
