"""Augments images as Keras did for TensorFlow 1. In later releases `width_shift_range` moves the rows."""

from __future__ import annotations

import functools
from typing import Any


def change_images(inside: Any) -> None:
    """Let `ImageDataGenerator`, in the dictionary of its module, turn and move images as `affine_transform` does.

    Brightness is changed after the values are scaled to the range of bytes, whatever they were.
    """
    brighten = inside["apply_brightness_shift"]
    inside["apply_brightness_shift"] = lambda x, brightness, scale=True: brighten(x, brightness)
    inside["apply_affine_transform"] = affine_transform


def affine_transform(
    x: Any,
    theta: float = 0,
    tx: float = 0,
    ty: float = 0,
    shear: float = 0,
    zx: float = 1,
    zy: float = 1,
    row_axis: int = 0,
    col_axis: int = 1,
    channel_axis: int = 2,
    fill_mode: str = "nearest",
    cval: float = 0.0,
    order: int = 1,
) -> Any:
    """Turn an image, move, shear and zoom it, about half a pixel past its center. `tx` and `zx` are for the rows."""
    # The program is the first to import numpy.
    import numpy as np
    from scipy import ndimage

    if (theta, tx, ty, shear, zx, zy) == (0, 0, 0, 0, 1, 1):
        return x
    angle, slant = np.deg2rad(theta), np.deg2rad(shear)
    steps = [
        [[np.cos(angle), -np.sin(angle), 0], [np.sin(angle), np.cos(angle), 0], [0, 0, 1]],
        [[1, 0, tx], [0, 1, ty], [0, 0, 1]],
        [[1, -np.sin(slant), 0], [0, np.cos(slant), 0], [0, 0, 1]],
        [[zx, 0, 0], [0, zy, 0], [0, 0, 1]],
    ]
    matrix = functools.reduce(np.dot, np.array(steps, np.float64))
    linear, center = matrix[:2, :2], np.array([x.shape[row_axis], x.shape[col_axis]]) / 2 + 0.5
    offset = matrix[:2, 2] + center - linear @ center
    channels = [
        ndimage.affine_transform(channel, linear, offset, order=order, mode=fill_mode, cval=cval)
        for channel in np.moveaxis(x, channel_axis, 0)
    ]
    return np.moveaxis(np.stack(channels), 0, channel_axis)
