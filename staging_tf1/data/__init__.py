"""Labelled images: the digits in the package, and .npz files in the MNIST layout. Errors are single lines."""

from __future__ import annotations

import functools
import os
import zipfile
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from staging_tf1 import arguments
from staging_tf1.errors import StagingError
from staging_tf1.spec import describe

__all__ = ["DataFileError", "LabelledImages", "load_images"]

Array = np.ndarray[Any, Any]

_DIGITS = os.path.join(os.path.dirname(__file__), "digits.npz")
_KEYS = ("x_train", "y_train", "x_test", "y_test")
# Image data sets have a few thousand classes at most. A label of a million is a mistake.
_MOST_CLASSES = 100_000


class DataFileError(StagingError, ValueError):
    """A data file cannot be read, or does not hold labelled images."""


@dataclass(frozen=True)
class LabelledImages:
    """Images and labels for training and testing.

    Attributes:
      x_train, x_test: images, uint8 or float32 [n, height, width] or any [n, ...].
      y_train, y_test: labels, int32 [n], from 0 to `num_classes` - 1.
    """

    x_train: Array
    y_train: Array
    x_test: Array
    y_test: Array

    @property
    def num_classes(self) -> int:
        """The largest training label plus one."""
        return int(self.y_train.max()) + 1

    @property
    def scale(self) -> float:
        """The largest absolute pixel value of the training images. Divide by it to get values from -1 to 1."""
        low, high = float(self.x_train.min()), float(self.x_train.max())
        return max(-low, high) or 1.0


def load_images(path: str | os.PathLike[str] | None = None) -> LabelledImages:
    """Load labelled images from an .npz file in the MNIST layout.

    The file must hold the arrays x_train, y_train, x_test and y_test. It is read with `allow_pickle=False`, so it
    cannot run code.

    Args:
      path: the path of the file. None loads the 1,797 UCI digits that ship with the package (8x8 pixels from 0 to 16;
        E. Alpaydin and C. Kaynak, CC BY 4.0, see LICENSE-digits.md of the project).

    Raises:
      TypeError, ValueError: `path` is not a path.
      DataFileError: the file is missing or malformed, or its arrays are not labelled images.

    >>> digits = load_images()
    >>> digits.x_train.shape, digits.x_test.shape, digits.num_classes, digits.scale
    ((1442, 8, 8), (355, 8, 8), 10, 16.0)
    """
    path = arguments.path("load_images()", "path", _DIGITS if path is None else path)
    where = f"data file {path!r}"
    arrays = read_npz(where, path, DataFileError, functools.partial(_check_keys, where))
    for part in ("train", "test"):
        _check_pair(where, part, arrays[f"x_{part}"], arrays[f"y_{part}"])
    _check_parts_agree(where, arrays)
    images = {key: _as_pixels(arrays[key]) for key in ("x_train", "x_test")}
    labels = {key: arrays[key].astype(np.int32) for key in ("y_train", "y_test")}
    return LabelledImages(**images, **labels)


def read_npz(
    where: str, path: str, error: type[Exception], choose: Callable[[list[str]], Iterable[str]] = iter
) -> dict[str, Array]:
    """Read arrays of an .npz file, without pickles: those that `choose` takes of their names; all by default.

    Raises `error`, with a message that begins with `where`, for other files and for objects.
    """
    try:
        if (kind := arguments.kind_of_file(path)) is not None:
            raise error(f"{where} is {kind}, expected an .npz file of named arrays: np.savez(path, x=...).")
        # np.load would leave the file open if it is damaged. is_zipfile would hide why it cannot be opened.
        with open(path, "rb") as file:
            if not zipfile.is_zipfile(file):
                file.seek(0)
                is_npy = file.read(len(np.lib.format.MAGIC_PREFIX)) == np.lib.format.MAGIC_PREFIX
                problem = "it holds one array" if is_npy else "it is not a zip archive"
                raise error(f"{where} is not an .npz file: {problem}. Write it with numpy.savez.")
            file.seek(0)
            with np.load(file, allow_pickle=False) as archive:
                return {key: _read_array(where, archive, key, error) for key in choose(archive.files)}
    except error:
        raise
    except FileNotFoundError as reason:
        raise error(f"{where}: no such file.") from reason
    except PermissionError as reason:
        raise error(f"{where} cannot be read: {reason.strerror}. Give this user access to it.") from reason
    # zipfile and numpy raise many types on a damaged file, including struct.error and tokenize.TokenError.
    except Exception as reason:
        raise error(f"{where} cannot be read: {reason}.") from reason


def _check_keys(where: str, keys: list[str]) -> Sequence[str]:
    missing = [key for key in _KEYS if key not in keys]
    if missing:
        raise DataFileError(
            f"{where} lacks {', '.join(missing)}; it holds {', '.join(keys) or 'nothing'}. Expected the layout of "
            f"MNIST: {', '.join(_KEYS)}."
        )
    return _KEYS


def _read_array(where: str, archive: Any, key: str, error: type[Exception]) -> Array:
    try:
        array = archive[key]
    except Exception as reason:  # as in read_npz
        # numpy's message recommends loading pickles.
        if "allow_pickle" in str(reason):
            raise error(
                f"{where}: {key} holds Python objects, which are not loaded because unpickling can run any code. "
                f"Save it as an array of numbers, or of strings of a fixed length."
            ) from reason
        raise error(f"{where}: {key} cannot be read: {reason}.") from reason
    if not isinstance(array, np.ndarray):  # a member without the .npy header comes as bytes
        raise error(f"{where}: {key} is not a numpy array. Write the file with numpy.savez.")
    return array


def _check_pair(where: str, part: str, images: Array, labels: Array) -> None:
    got = describe(images.dtype, images.shape)
    if images.ndim < 2 or 0 in images.shape or images.dtype.kind not in "buif":
        raise DataFileError(f"{where}: x_{part} is {got}, expected images: numbers of shape [n, height, width].")
    if not np.isfinite(_as_pixels(images)).all():
        raise DataFileError(f"{where}: x_{part} has pixels that are not finite as float32 (NaN or infinity).")
    if labels.ndim != 1 or labels.dtype.kind not in "ui":
        raise DataFileError(
            f"{where}: y_{part} is {describe(labels.dtype, labels.shape)}, expected one whole number per image: "
            f"int64 [{len(images)}]."
        )
    if len(images) != len(labels):
        raise DataFileError(f"{where}: x_{part} has {len(images)} images, but y_{part} has {len(labels)} labels.")
    if labels.min() < 0 or labels.max() >= _MOST_CLASSES:
        bad = int(labels.min() if labels.min() < 0 else labels.max())
        raise DataFileError(f"{where}: y_{part} has the label {bad}, expected 0 to {_MOST_CLASSES - 1}.")


def _check_parts_agree(where: str, arrays: dict[str, Array]) -> None:
    train, test = arrays["x_train"].shape[1:], arrays["x_test"].shape[1:]
    if train != test:
        raise DataFileError(
            f"{where}: the images of x_train are {list(train)} and those of x_test {list(test)}, "
            f"expected the same size."
        )
    highest, tested = int(arrays["y_train"].max()), int(arrays["y_test"].max())
    if tested > highest:
        raise DataFileError(f"{where}: y_test has the label {tested}, but the highest label of y_train is {highest}.")


def _as_pixels(images: Array) -> Array:
    with np.errstate(over="ignore"):  # values that are too large become infinity, which is rejected
        return images if images.dtype == np.uint8 else images.astype(np.float32)
