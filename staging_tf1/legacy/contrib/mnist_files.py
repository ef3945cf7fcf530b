"""Reads the gzip-compressed idx files of MNIST, as `tensorflow.examples.tutorials.mnist.input_data` did."""

from __future__ import annotations

import gzip
import struct
import zlib
from typing import Any

import numpy as np

_IMAGES_MAGIC = 2051
_LABELS_MAGIC = 2049


def extract_images(f: Any) -> Any:
    """Return the images of an open file as uint8 [images, rows, columns, 1].

    Raises ValueError if the file is not gzip-compressed, is damaged, or is no file of images.
    """
    print("Extracting", f.name)
    content = _unzipped(f)
    (images, rows, columns), pixels = _parsed(content, f.name, "image", _IMAGES_MAGIC, dimensions=3)
    return pixels.reshape(images, rows, columns, 1)


def extract_labels(f: Any, one_hot: bool = False, num_classes: int = 10) -> Any:
    """Return the labels of an open file as uint8 [labels], or as float64 [labels, num_classes] if `one_hot`.

    Raises ValueError if the file is not gzip-compressed, is damaged, or is no file of labels.
    """
    print("Extracting", f.name)
    content = _unzipped(f)
    _, labels = _parsed(content, f.name, "label", _LABELS_MAGIC, dimensions=1)
    return dense_to_one_hot(labels, num_classes) if one_hot else labels


def dense_to_one_hot(labels_dense: Any, num_classes: int) -> Any:
    """Return float64 [labels, num_classes] with a 1 at each label. Raises ValueError for a label out of range."""
    labels = np.asarray(labels_dense).ravel()
    if labels.size and not 0 <= labels.min() <= labels.max() < num_classes:
        wrong = labels.max() if labels.max() >= num_classes else labels.min()
        raise ValueError(f"label {wrong} is out of range (0 to {num_classes - 1}). Pass a larger num_classes.")
    one_hot = np.zeros((labels.size, num_classes))
    one_hot[np.arange(labels.size), labels] = 1
    return one_hot


def _unzipped(f: Any) -> bytes:
    name = f.name
    try:
        with gzip.GzipFile(fileobj=f) as file:
            return file.read()
    except gzip.BadGzipFile as error:
        raise ValueError(
            f"{name} is not a gzip file ({error}). If it was unpacked, pack it again with gzip. If it is a web page, "
            "download it again."
        ) from error
    except (EOFError, zlib.error) as error:
        raise ValueError(f"{name} is damaged or incomplete ({error}). Download it again.") from error


def _parsed(content: bytes, name: str, what: str, expected: int, dimensions: int) -> tuple[tuple[int, ...], Any]:
    """Return the sizes in the header of an idx file, and its bytes."""
    start = 4 * (1 + dimensions)
    if len(content) < start:
        raise ValueError(f"{name} has {len(content)} bytes, expected a header of {start}. Download it again.")
    magic, *sizes = struct.unpack(f">{1 + dimensions}I", content[:start])
    if magic != expected:
        raise ValueError(
            f"Invalid magic number {magic} in MNIST {what} file: {name}. Expected {expected}. Are the files of images "
            "and labels interchanged?"
        )
    number = 1
    for size in sizes:
        number *= size
    if len(content) - start < number:
        raise ValueError(
            f"{name} has {len(content) - start} bytes of {what}s, but its header announces {number}. Download it again."
        )
    return tuple(sizes), np.frombuffer(content, np.uint8, number, start)
