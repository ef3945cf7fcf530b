"""The digits, and the messages for files without labelled images."""

from __future__ import annotations

import os
import zipfile
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from staging_tf1.data import DataFileError, load_images


def _good() -> dict[str, Any]:
    return {
        "x_train": np.arange(4 * 6, dtype=np.uint8).reshape(4, 2, 3),
        "y_train": np.array([0, 1, 2, 1]),
        "x_test": np.ones((2, 2, 3), np.uint8),
        "y_test": np.array([2, 0]),
    }


def _save(tmp_path: Path, **changes: Any) -> Path:
    path = tmp_path / "images.npz"
    np.savez(path, **{key: value for key, value in {**_good(), **changes}.items() if value is not None})
    return path


def test_the_digits_are_the_1797_of_uci() -> None:
    digits = load_images()
    assert len(digits.x_train) + len(digits.x_test) == 1797
    assert digits.x_train.shape[1:] == digits.x_test.shape[1:] == (8, 8)
    assert digits.x_train.dtype == np.uint8
    assert (digits.num_classes, digits.scale) == (10, 16.0)
    # The counts per digit in the description of the original file.
    counts = np.bincount(np.concatenate([digits.y_train, digits.y_test]))
    assert counts.tolist() == [178, 182, 177, 183, 181, 182, 181, 179, 174, 180]
    # Every fifth image of each class is held out.
    assert np.bincount(digits.y_test).tolist() == [count // 5 for count in counts]


def test_no_digit_is_in_both_parts() -> None:
    digits = load_images()
    training = {image.tobytes() for image in digits.x_train}
    assert not any(image.tobytes() in training for image in digits.x_test)


def test_a_file_in_mnists_layout(tmp_path: Path) -> None:
    data = load_images(_save(tmp_path, names=np.array(["more", "keys"])))
    np.testing.assert_array_equal(data.x_train, _good()["x_train"])
    np.testing.assert_array_equal(data.y_train, [0, 1, 2, 1])
    assert (data.y_train.dtype, data.num_classes, data.scale) == (np.int32, 3, 23.0)


@pytest.mark.parametrize("dtype", [">f4", "f8", "i2", "?"])
def test_pixels_become_float32_whatever_they_were(tmp_path: Path, dtype: str) -> None:
    images = _good()["x_train"].astype(dtype)
    data = load_images(_save(tmp_path, x_train=images))
    assert data.x_train.dtype == np.dtype(np.float32)
    np.testing.assert_array_equal(data.x_train, images.astype(np.float32))


def test_images_that_are_all_black_are_not_divided_by_zero(tmp_path: Path) -> None:
    assert load_images(_save(tmp_path, x_train=np.zeros((4, 2, 3)))).scale == 1.0


BAD_ARRAYS: list[tuple[dict[str, Any], str]] = [
    (
        {"x_test": None, "y_test": None, "images": np.zeros(3)},
        " lacks x_test, y_test; it holds x_train, y_train, images. Expected the layout of MNIST: x_train, "
        "y_train, x_test, y_test.",
    ),
    ({"x_train": np.zeros((3, 2, 3))}, ": x_train has 3 images, but y_train has 4 labels."),
    ({"x_train": np.zeros(4)}, ": x_train is float64 [4], expected images: numbers of shape [n, height, width]."),
    ({"x_train": np.zeros((0, 2, 3)), "y_train": np.zeros(0, int)}, ": x_train is float64 [0, 2, 3], expected images"),
    ({"x_test": np.array([["a"], ["b"]])}, ": x_test is string [2, 1], expected images: numbers of shape"),
    ({"x_test": np.zeros((2, 2, 4))}, ": the images of x_train are [2, 3] and those of x_test [2, 4], expected the sa"),
    ({"x_train": np.full((4, 2, 3), np.nan)}, ": x_train has pixels that are not finite as float32 (NaN or infinity)."),
    ({"x_test": np.full((2, 2, 3), 1e300)}, ": x_test has pixels that are not finite as float32 (NaN or infinity)."),
    ({"y_train": np.zeros(4)}, ": y_train is float64 [4], expected one whole number per image: int64 [4]."),
    ({"y_test": np.zeros((2, 1), int)}, ": y_test is int64 [2, 1], expected one whole number per image: int64 [2]."),
    ({"y_train": np.array([0, 1, -1, 2])}, ": y_train has the label -1, expected 0 to 99999."),
    ({"y_train": np.array([0, 1, 2, 10**6])}, ": y_train has the label 1000000, expected 0 to 99999."),
    ({"y_test": np.array([0, 3])}, ": y_test has the label 3, but the highest label of y_train is 2."),
]


@pytest.mark.parametrize(("changes", "message"), BAD_ARRAYS)
def test_what_is_wrong_with_the_arrays_is_said(tmp_path: Path, changes: dict[str, Any], message: str) -> None:
    path = _save(tmp_path, **changes)
    with pytest.raises(DataFileError) as caught:
        load_images(path)
    assert str(caught.value).startswith(f"data file {str(path)!r}{message}")


class Bomb:
    """Would make a folder if it were unpickled."""

    def __init__(self, target: Path) -> None:
        self._target = target

    def __reduce__(self) -> Any:
        import os

        return os.mkdir, (str(self._target),)


def test_a_file_that_needs_pickle_is_refused_unread(tmp_path: Path) -> None:
    target = tmp_path / "run"
    path = _save(tmp_path, x_train=np.array([Bomb(target)], dtype=object))
    with pytest.raises(DataFileError) as caught:
        load_images(path)
    assert str(caught.value) == (
        f"data file {str(path)!r}: x_train holds Python objects, which are not loaded because "
        f"unpickling can run any code. Save it as an array of numbers, or of strings of a fixed length."
    )
    assert not target.exists()


def test_what_is_no_file_of_images_is_named(tmp_path: Path) -> None:
    with pytest.raises(DataFileError, match=r"^data file '.*none\.npz': no such file\.$"):
        load_images(tmp_path / "none.npz")
    with pytest.raises(DataFileError, match=r"^data file '.*' is a folder, expected an \.npz file of named arrays"):
        load_images(tmp_path)
    path = tmp_path / "images.npz"
    for content in (b"", b"x_train,y_train\n1,2\n", b"\x80\x04N."):
        path.write_bytes(content)
        with pytest.raises(
            DataFileError, match=r"is not an \.npz file: it is not a zip archive\. Write it with numpy\.s"
        ):
            load_images(path)


def test_a_file_without_permission_says_so(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    _save(tmp_path).rename(tmp_path / "locked.npz")
    # By a path without the folders above, which belong to this user alone.
    monkeypatch.chdir(tmp_path)
    os.chmod("locked.npz", 0)
    user = os.geteuid()
    if user == 0:
        os.seteuid(65534)
    try:
        with pytest.raises(
            DataFileError, match=r"^data file 'locked.npz' cannot be read: Permission denied\. Give this"
        ):
            load_images("locked.npz")
    finally:
        os.seteuid(user)


def test_a_zip_file_of_other_things(tmp_path: Path) -> None:
    path = tmp_path / "images.npz"
    with zipfile.ZipFile(path, "w") as archive:
        for key in _good():
            archive.writestr(key, "not an array")
    with pytest.raises(DataFileError, match=r"x_train is not a numpy array\. Write the file with numpy\.savez\.$"):
        load_images(path)


def test_a_truncated_file_and_a_damaged_one_say_so_wherever_they_are_cut(tmp_path: Path) -> None:
    path = _save(tmp_path)
    whole = path.read_bytes()
    rng = np.random.default_rng(0)
    for position in range(0, len(whole), 37):
        damaged = bytearray(whole)
        damaged[position : position + 8] = rng.bytes(8)
        for content in (whole[:position], bytes(damaged)):
            path.write_bytes(content)
            try:
                data = load_images(path)
            except DataFileError as error:
                assert str(error).startswith(f"data file {str(path)!r}")
            else:  # the damage is in a part that numpy does not read, such as a time
                np.testing.assert_array_equal(data.x_train, _good()["x_train"])


def test_an_array_that_claims_more_than_there_is(tmp_path: Path) -> None:
    path = tmp_path / "images.npz"
    header = b"{'descr': '|u1', 'fortran_order': False, 'shape': (1000000000000, 28, 28), }"
    header += b" " * (63 - (len(header) + 10) % 64) + b"\n"
    with zipfile.ZipFile(path, "w") as archive:
        for key in _good():
            magic = b"\x93NUMPY\x01\x00" + len(header).to_bytes(2, "little")
            archive.writestr(f"{key}.npy", magic + header)
    with pytest.raises(DataFileError, match=r": x_train cannot be read: "):
        load_images(path)
