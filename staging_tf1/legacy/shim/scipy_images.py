"""The functions for images that `scipy.misc` had up to scipy 1.1, on Pillow."""

from __future__ import annotations

import importlib
import numbers
from typing import Any

import numpy as np

from staging_tf1.errors import RemovedNameError

# The names of Pillow's filters, by their number.
_FILTERS = {"nearest": 0, "lanczos": 1, "bilinear": 2, "bicubic": 3, "cubic": 3}
_CHANNELS = {"RGB": 3, "YCbCr": 3, "RGBA": 4, "CMYK": 4}


def imread(name: Any, flatten: bool = False, mode: str | None = None) -> Any:
    """Return the image of a file as an array: uint8 [height, width] or [height, width, channels].

    `mode` is a mode of Pillow that it is converted to, such as "RGB". With `flatten`, it becomes gray, as float32.
    """
    return fromimage(_pillow().open(name), flatten, mode)


def imsave(name: Any, arr: Any, format: str | None = None) -> None:
    """Save an array [height, width] or [height, width, 3 or 4] as an image; see `toimage`."""
    toimage(arr, channel_axis=2).save(name, format)


def fromimage(im: Any, flatten: bool = False, mode: str | None = None) -> Any:
    """Return the array of an image of Pillow; see `imread`. Raises TypeError for anything else."""
    if not isinstance(im, _pillow().Image):
        raise TypeError("Input is not a PIL image.")
    if mode is not None:
        im = im if mode == im.mode else im.convert(mode)
    elif im.mode == "P":
        im = im.convert("RGBA" if "transparency" in im.info else "RGB")
    if flatten:
        im = im.convert("F")
    elif im.mode == "1":
        im = im.convert("L")
    return np.array(im)


def bytescale(data: Any, cmin: Any = None, cmax: Any = None, high: int = 255, low: int = 0) -> Any:
    """Return the data as uint8, its range scaled to `low` to `high`. Data that is uint8 stays as it is.

    Raises ValueError for bounds that make no sense.
    """
    if data.dtype == np.uint8:
        return data
    if not 0 <= low <= high <= 255:
        raise ValueError(f"bytescale() got low={low} and high={high}, expected 0 <= low <= high <= 255.")
    cmin = data.min() if cmin is None else cmin
    cmax = data.max() if cmax is None else cmax
    if cmax < cmin:
        raise ValueError("`cmax` should be larger than `cmin`.")
    scaled = (data - cmin) * (float(high - low) / ((cmax - cmin) or 1)) + low
    return (scaled.clip(low, high) + 0.5).astype(np.uint8)


def toimage(
    arr: Any,
    high: int = 255,
    low: int = 0,
    cmin: Any = None,
    cmax: Any = None,
    pal: Any = None,
    mode: str | None = None,
    channel_axis: int | None = None,
) -> Any:
    """Return an array as an image of Pillow. Values that are not uint8 are scaled to `low` to `high`; see `bytescale`.

    Args:
      arr: [height, width], or three dimensions of which one, the `channel_axis`, is 3 or 4.
      high: the value of the largest.
      low: the value of the smallest.
      cmin: what counts as the smallest value.
      cmax: what counts as the largest value.
      pal: the colors [N, 3] of the values in an array of two dimensions.
      mode: a mode of Pillow.
      channel_axis: the dimension of the colors, by default the first with a size of 3, or else of 4.

    Raises ValueError if the shape does not fit, or is not one of the mode.
    """
    data = np.asarray(arr)
    if np.iscomplexobj(data):
        raise ValueError("Cannot convert a complex-valued array.")
    if data.ndim == 2:
        return _gray(data, high, low, cmin, cmax, pal, mode)
    if data.ndim != 3 or not {3, 4} & set(data.shape):
        raise ValueError("'arr' does not have a suitable array shape for any mode.")
    axis = data.shape.index(3 if 3 in data.shape else 4) if channel_axis is None else channel_axis
    channels = data.shape[axis]
    mode = mode or {3: "RGB", 4: "RGBA"}.get(channels, "")
    if _CHANNELS.get(mode) != channels:
        raise ValueError(f"toimage() got mode {mode!r} for {channels} channels: they do not fit each other.")
    content = np.moveaxis(bytescale(data, cmin, cmax, high, low), axis, 2)
    return _pillow().frombytes(mode, content.shape[1::-1], content.tobytes())


def imresize(arr: Any, size: Any, interp: str = "bilinear", mode: str | None = None) -> Any:
    """Return an image of another size, as uint8; see `toimage`.

    `size` is (height, width), or an integer for percents, or a float for a fraction of the present size.
    """
    im = toimage(arr, mode=mode)
    if isinstance(size, numbers.Integral):
        wanted = tuple((np.array(im.size) * (int(size) / 100.0)).astype(int))
    elif isinstance(size, numbers.Real):
        wanted = tuple((np.array(im.size) * float(size)).astype(int))
    else:
        wanted = (size[1], size[0])
    return fromimage(im.resize(wanted, resample=_FILTERS[interp]))


def imrotate(arr: Any, angle: float, interp: str = "bilinear") -> Any:
    """Return an image that is turned counter-clockwise by `angle` degrees; see `toimage`."""
    return fromimage(toimage(arr).rotate(angle, resample=_FILTERS[interp]))


def _gray(data: Any, high: Any, low: Any, cmin: Any, cmax: Any, pal: Any, mode: str | None) -> Any:
    size = data.shape[::-1]
    if mode in (None, "L", "P"):
        image = _pillow().frombytes("L", size, bytescale(data, cmin, cmax, high, low).tobytes())
        if pal is not None or mode == "P":
            colors = np.repeat(np.arange(256), 3) if pal is None else pal
            image.putpalette(np.asarray(colors, np.uint8).tobytes())
        return image
    if mode == "F":
        return _pillow().frombytes(mode, size, data.astype(np.float32).tobytes())
    if mode == "1":
        return _pillow().frombytes(mode, size, (data > high).tobytes())
    if mode == "I":
        least = data.min() if cmin is None else cmin
        most = data.max() if cmax is None else cmax
        scaled = (data * 1.0 - least) * (high - low) / (most - least) + low
        return _pillow().frombytes(mode, size, scaled.astype(np.uint32).tobytes())
    raise ValueError(f"toimage() got mode {mode!r} for an array of two dimensions, expected L, P, F, I or 1.")


def _pillow() -> Any:
    try:
        return importlib.import_module("PIL.Image")
    except ImportError:
        raise RemovedNameError("the functions for images of scipy.misc need Pillow: pip install pillow") from None
