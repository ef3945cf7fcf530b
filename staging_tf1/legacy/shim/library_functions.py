"""Functions and methods of old releases of other libraries that need more than another name."""

from __future__ import annotations

import contextlib
import functools
import importlib
import inspect
import logging
import re
from collections.abc import Callable, Sequence
from typing import Any

_log = logging.getLogger("staging_tf1")
Size = tuple[int, int]

# ---- Pillow


def isImageType(t: Any) -> bool:  # Pillow's spelling
    """Return whether an object is an image."""
    return hasattr(t, "im")


def getsize_of_bitmaps(self: Any, text: Any, *args: Any, **kwargs: Any) -> Size:
    """Return (width, height) of a text, of an `ImageFont`."""
    _, _, width, height = self.getbbox(text)
    return width, height


def getsize(
    self: Any, text: Any, direction: Any = None, features: Any = None, language: Any = None, stroke_width: int = 0
) -> Size:
    """Return (width, height) of a text, of a `FreeTypeFont`. The height includes the gap above the letters."""
    # Pillow 9.5 added the stroke to the size without one, and so the gap has none.
    left, _, right, bottom = self.getbbox(text, "L", direction, features, language)
    return int(right - left) + 2 * stroke_width, int(bottom) + 2 * stroke_width


def getsize_transposed(self: Any, text: Any, *args: Any, **kwargs: Any) -> Size:
    """Return (width, height) of a text, of a `TransposedFont`."""
    transpose = importlib.import_module("PIL.Image").Transpose
    width, height = self.font.getsize(text)
    return (height, width) if self.orientation in (transpose.ROTATE_90, transpose.ROTATE_270) else (width, height)


def getsize_multiline(
    self: Any,
    text: Any,
    direction: Any = None,
    spacing: int = 4,
    features: Any = None,
    language: Any = None,
    stroke_width: int = 0,
) -> Size:
    """Return (width, height) of lines of text, of a `FreeTypeFont`."""
    sizes = [self.getsize(line, direction, features, language, stroke_width) for line in _lines(text)]
    return _stacked(sizes, self.getsize("A", stroke_width=stroke_width)[1], spacing)


def getoffset(self: Any, text: Any) -> Size:
    """Return the gap between the starting point of a text and its letters, as (x, y), of a `FreeTypeFont`."""
    left, top, _, _ = self.getbbox(text)
    return int(left), int(top)


def textsize(self: Any, text: Any, font: Any = None, spacing: int = 4, *options: Any, **named: Any) -> Size:
    """Return (width, height) of a text of one or more lines, of an `ImageDraw`."""
    if len(_lines(text)) > 1:
        return multiline_textsize(self, text, font, spacing, *options, **named)
    size: Size = (self.getfont() if font is None else font).getsize(text, *options, **named)
    return size


def multiline_textsize(self: Any, text: Any, font: Any = None, spacing: int = 4, *options: Any, **named: Any) -> Size:
    """Return (width, height) of lines of text, of an `ImageDraw`."""
    named |= dict(zip(("direction", "features", "language", "stroke_width"), options))
    sizes = [textsize(self, line, font, **named) for line in _lines(text)]
    return _stacked(sizes, textsize(self, "A", font, stroke_width=named.get("stroke_width", 0))[1], spacing)


def _lines(text: Any) -> list[Any]:
    lines: list[Any] = text.split("\n" if isinstance(text, str) else b"\n")
    return lines


def _stacked(sizes: list[Size], height: int, spacing: int) -> Size:
    return max(width for width, _ in sizes), len(sizes) * (height + spacing) - spacing


# ---- pandas: methods of DataFrame and Series


def append(
    self: Any, other: Any, ignore_index: bool = False, verify_integrity: bool = False, sort: bool = False
) -> Any:
    """Return the rows of `self` and then those of `other`. A row of a DataFrame may be a Series or a dict.

    Raises TypeError for a row without a name, unless `ignore_index` is set.
    """
    pandas: Any = importlib.import_module("pandas")
    given = other if isinstance(other, (list, tuple)) else [other]
    if self.ndim == 2:
        given = [_as_frame(pandas, self, row, ignore_index) for row in given]
    options = {} if self.ndim == 1 else {"sort": sort}
    return pandas.concat([self, *given], ignore_index=ignore_index, verify_integrity=verify_integrity, **options)


def _as_frame(pandas: Any, frame: Any, row: Any, ignore_index: bool) -> Any:
    if isinstance(row, dict):
        if not ignore_index:
            raise TypeError("Can only append a dict if ignore_index=True")
        row = pandas.Series(row)
    if not isinstance(row, pandas.Series):
        return row
    if row.name is None and not ignore_index:
        raise TypeError("Can only append a Series if ignore_index=True or if the Series has a name")
    return row.to_frame().T.infer_objects().rename_axis(index=frame.index.names)


def as_matrix(self: Any, columns: Any = None) -> Any:
    """Return the values, or those of some columns, as an array."""
    return (self if columns is None else self[columns]).values


def get_values(self: Any) -> Any:
    """Return the values as an array."""
    return importlib.import_module("numpy").asarray(self)


def clip_lower(self: Any, threshold: Any, axis: Any = None, inplace: bool = False) -> Any:
    """Return the values with those below the threshold raised to it."""
    return self.clip(lower=threshold, axis=axis, inplace=inplace)


def clip_upper(self: Any, threshold: Any, axis: Any = None, inplace: bool = False) -> Any:
    """Return the values with those above the threshold lowered to it."""
    return self.clip(upper=threshold, axis=axis, inplace=inplace)


def get_value(self: Any, *label: Any, takeable: bool = False) -> Any:
    """Return the value at a label, of a DataFrame at those of a row and a column. With `takeable`, at positions."""
    labels, more = label[: self.ndim], label[self.ndim :]
    return (self.iat if takeable or more == (True,) else self.at)[_key(labels)]


def set_value(self: Any, *label: Any) -> Any:
    """Set the value at a label, of a DataFrame at those of a row and a column, to the last argument. Return `self`."""
    *labels, value = label
    self.at[_key(labels)] = value
    return self


def _key(label: Sequence[Any]) -> Any:
    return label[0] if len(label) == 1 else tuple(label)


def nonzero(self: Any) -> Any:
    """Return the positions of the values that are not zero, as arrays."""
    return self.to_numpy().nonzero()


def ravel(self: Any, order: str = "C") -> Any:
    """Return the values as an array."""
    return self.to_numpy().ravel(order)


def replace(
    genuine: Callable[..., Any],
    self: Any,
    pat: Any,
    repl: Any = None,
    n: int = -1,
    case: Any = None,
    flags: int = 0,
    regex: bool | None = None,
) -> Any:
    """Replace a pattern in strings. Without `regex`, one of several characters is a regular expression."""
    if regex is None:
        regex = not isinstance(pat, str) or len(pat) > 1 or bool(flags) or case is False or callable(repl)
        if regex and isinstance(pat, str) and re.escape(pat) != pat:
            _log_once()
    return genuine(self, pat, repl, n=n, case=case, flags=flags, regex=regex)


@functools.cache
def _log_once() -> None:
    _log.warning("Series.str.replace() without regex= takes a regular expression, as in pandas 1.")


# ---- matplotlib


def tostring_rgb(self: Any) -> bytes:
    """Return the bytes of the picture, three a pixel, of a `FigureCanvasAgg`."""
    picture: bytes = importlib.import_module("numpy").asarray(self.buffer_rgba())[..., :3].tobytes()
    return picture


def with_digits(genuine: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
    """Add a subplot, whose place may be a string of three digits."""
    are_digits = [isinstance(each, str) and len(each) == 3 and each.isdecimal() for each in args]
    return genuine(*(int(each) if digits else each for each, digits in zip(args, are_digits)), **kwargs)


# ---- h5py, PyYAML and scikit-learn


def linear_assignment(X: Any) -> Any:  # scikit-learn's spelling
    """Return the cheapest pairs (row, column) of a matrix of costs, as int [pairs, 2]."""
    pairs = importlib.import_module("scipy.optimize").linear_sum_assignment(X)
    return importlib.import_module("numpy").transpose(pairs)


@property  # type: ignore[misc]  # of h5py.Dataset
def value(self: Any) -> Any:
    """All of a dataset, as an array or a scalar."""
    return self[()]


def open_hdf5(genuine: Callable[..., Any], self: Any, name: Any, mode: Any = None, *args: Any, **kwargs: Any) -> Any:
    """Open a file of h5py. Without a mode it may be written, else be read, else is a new one, as in h5py 2."""
    for each in ("r+", "r") if mode is None else ():
        with contextlib.suppress(OSError):
            return genuine(self, name, each, *args, **kwargs)
    return genuine(self, name, mode or "w-", *args, **kwargs)


def read_attribute(genuine: Callable[..., Any], self: Any, name: Any) -> Any:
    """Return an attribute of a group or dataset. Text that was written as bytes is bytes, as in h5py 2."""
    value, h5t = genuine(self, name), importlib.import_module("h5py").h5t
    kind = self.get_id(name).get_type()
    if not isinstance(kind, h5t.TypeStringID) or kind.get_cset() != h5t.CSET_ASCII or not kind.is_variable_str():
        return value
    return value.encode() if isinstance(value, str) else value.astype(bytes).astype(object)


def with_loader(genuine: Callable[..., Any], stream: Any, Loader: Any = None) -> Any:  # PyYAML's spelling
    """Read YAML. Without a `Loader` it is `FullLoader`, as in PyYAML 5."""
    return genuine(stream, importlib.import_module("yaml").FullLoader if Loader is None else Loader)


# ---- librosa and nibabel


def with_positions(genuine: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
    """Call a function by position whose arguments have become keyword-only, as those of librosa 0.10."""
    return genuine(**dict(zip(inspect.signature(genuine).parameters, args)), **kwargs)


def get_data(genuine: Callable[..., Any], self: Any, caching: str = "fill") -> Any:
    """Return the data of an image in its own dtype, as nibabel before 5."""
    return importlib.import_module("numpy").asanyarray(self.dataobj)
