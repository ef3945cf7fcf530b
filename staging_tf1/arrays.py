"""One component's value as the array that TensorFlow is fed: converted here, once, or refused with the reason.

TensorFlow's fast way to feed takes the bytes of an array as they are. So an array that leaves this module is a plain
`np.ndarray` in native byte order, of a dtype that tensors have, and its strings are `bytes` objects.

Converted, where that changes no value:
  the other byte order; `np.memmap` and subclasses of `np.ndarray` that only add attributes; Python numbers, strings and
  lists; whatever has `__array__` or a buffer and says the same dtype as the array that it makes (torch and jax arrays,
  eager tensors, pandas objects of numpy dtypes).

Refused, by name and with the cure:
  masked arrays and `np.matrix`; dates, structured arrays and other dtypes without a tensor type; extension arrays
  (pandas `Int64`, `category`), whose missing values a plain array cannot hold; sparse matrices; symbolic tensors.
"""

from __future__ import annotations

import contextlib
import numbers
from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np

from staging_tf1.errors import SpecError

__all__ = ["as_array", "as_numpy_dtype", "checked_array", "describe", "is_plain", "is_plain_list", "kind_of"]

# The tensor types that numpy knows by ml_dtypes only; which of them TensorFlow has depends on its release.
_ML_DTYPES = frozenset(
    "bfloat16 float8_e4m3b11fnuz float8_e4m3fn float8_e4m3fnuz float8_e5m2 float8_e5m2fnuz float4_e2m1fn "
    "int2 int4 uint2 uint4".split()
)
# The one field of the structured dtypes by which TensorFlow shows quantized numbers.
_QUANTIZED = frozenset((name,) for name in ("qint8", "quint8", "qint16", "quint16", "qint32"))
_STRING_KINDS = "OSUT"
# numpy's letters for bools, integers, floats and complex numbers, without the long ones.
_PLAIN = frozenset("?bBhHiIlLqQefdFD")
# The common ones: to compare types takes a tenth of an isinstance with an abstract class.
_PYTHON_TYPES = frozenset((int, float, bool, complex, str, bytes))
_PYTHON_VALUES = (numbers.Number, np.generic, str, bytes)


def as_array(value: Any, dtype: np.dtype[Any] | None, place: str) -> np.ndarray[Any, Any]:
    """The array that `value` stands for, as TensorFlow can be fed it; an array that already is one, itself.

    Args:
      value: a leaf of a batch.
      dtype: what Python numbers and lists are made into; None lets numpy choose. Arrays are not cast to it.
      place: what messages begin with: "generator 'digits': batch 3: component 'x'".

    Raises:
      SpecError: the value makes no array, or none that tensors have; see above.
    """
    array = checked_array(value, dtype, place)
    return array if array.dtype.isnative else array.astype(as_numpy_dtype(array.dtype))


def checked_array(value: Any, dtype: np.dtype[Any] | None, place: str) -> np.ndarray[Any, Any]:
    """`as_array` for who copies the array anyway: its numbers may still be in the other byte order."""
    array = value if type(value) is np.ndarray else _converted(value, dtype, place)
    if array.dtype.kind in _STRING_KINDS:
        return _as_bytes(array, place)
    if not _has_tensor_type(array.dtype):
        raise SpecError(f"{place} is of dtype {array.dtype}, which no tensor can have. {_dtype_cure(array.dtype)}")
    return array


def is_plain(value: Any) -> bool:
    """Whether `value` is an array of ordinary numbers that `as_array` would return as it is."""
    return type(value) is np.ndarray and value.dtype.char in _PLAIN and value.dtype.isnative


def is_plain_list(value: Any) -> bool:
    """Whether `value` is a list, or list of lists, of numbers and strings: one array, as it is to `tf.data`."""
    return isinstance(value, list) and (
        _PYTHON_TYPES.issuperset(map(type, value))
        or all(isinstance(element, _PYTHON_VALUES) or is_plain_list(element) for element in value)
    )


def as_numpy_dtype(dtype: Any) -> np.dtype[Any]:
    """A numpy dtype in native byte order from a numpy dtype, its name, or a `tf.DType`.

    Strings of any length become `object`.
    """
    found = np.dtype(getattr(dtype, "as_numpy_dtype", dtype))
    if found.kind in "SUT":
        return np.dtype(object)
    native: np.dtype[Any] = found if found.isnative else found.newbyteorder("=")
    return native


def as_shape(shape: Any) -> tuple[int | None, ...] | None:
    """A tuple from a tuple, a `tf.TensorShape` or a v1 `Dimension` list; None when the rank is unknown."""
    if shape is None or (hasattr(shape, "rank") and shape.rank is None):
        return None
    dims = (getattr(dim, "value", dim) for dim in shape)
    return tuple(None if dim is None or int(dim) < 0 else int(dim) for dim in dims)


def describe(dtype: Any, shape: Any) -> str:
    """A dtype and a shape in words, for messages; either may be TensorFlow's.

    >>> describe(np.int32, (32,)), describe(np.dtype("float32"), (None, 784)), describe(object, None)
    ('int32 [32]', 'float32 [?, 784]', 'string of any shape')
    """
    name = getattr(dtype, "name", None)
    if not isinstance(name, str):
        name = np.dtype(dtype).name
    if name == "object" or name.startswith(("bytes", "str")):
        name = "string"
    dims = as_shape(shape)
    if dims is None:
        return f"{name} of any shape"
    return f"{name} [{', '.join('?' if dim is None else str(dim) for dim in dims)}]"


def kind_of(value: Any) -> str:
    """What a message says that `value` is."""
    if isinstance(value, np.ndarray):
        return f"one array, {describe(value.dtype, value.shape)}"
    if isinstance(value, Mapping):
        return f"a dict with the keys {', '.join(repr(key) for key in value)}"
    if isinstance(value, (tuple, list)):
        return f"a {type(value).__name__} of {len(value)}"
    library = type(value).__module__.partition(".")[0]
    return f"a {'' if library == 'builtins' else library + '.'}{type(value).__name__}"


def _has_tensor_type(dtype: np.dtype[Any]) -> bool:
    if dtype.kind in "biufc":
        return dtype.char not in "gG"  # long doubles, even where they are no longer than doubles
    return dtype.kind == "V" and (dtype.name in _ML_DTYPES or dtype.names in _QUANTIZED)


def _dtype_cure(dtype: np.dtype[Any]) -> str:
    if dtype.names:
        named = ", ".join(f"{name!r}: array[{name!r}]" for name in dtype.names)
        return f"Give a dict {{{named}}} of the fields of a structured array one by one."
    if dtype.kind in "mM":
        return "Convert it to numbers: array.astype(np.int64)."
    if dtype.kind in "fc":
        return f"Cast it: array.astype(np.{'float64' if dtype.kind == 'f' else 'complex128'})."
    return "Cast it, for example array.astype(np.float32)."


def _converted(value: Any, dtype: np.dtype[Any] | None, place: str) -> np.ndarray[Any, Any]:
    """A plain array of whatever dtype from what is none."""
    try:
        if _is_python(value):
            return _from_python(value, dtype)
        if isinstance(value, (list, tuple)):
            return np.asarray(_with_arrays(value, place))
        array = np.asanyarray(value)
    except (SpecError, MemoryError):
        raise
    except RecursionError:
        raise SpecError(
            f"{place} got {kind_of(value)} that contains itself. Give arrays, or lists of numbers."
        ) from None
    except Exception as error:  # `__array__` is anybody's code
        if _is_of_tensorflow(value):
            raise SpecError(f"{place} got {kind_of(value)}, wanted an array.{_cure(value)}") from None
        wanted = "an array" if dtype is None else f"{dtype.name} values"
        raise SpecError(
            f"{place} got {kind_of(value)} that does not make {wanted}: {str(error).rstrip('.')}.{_cure(value)}"
        ) from error
    _check_exact(value, array, place)
    return np.asarray(array)


def _check_exact(value: Any, array: np.ndarray[Any, Any], place: str) -> None:
    """Raises where `array` is less than the value that it was made from."""
    if isinstance(array, np.ma.MaskedArray):
        raise SpecError(
            f"{place} got a masked array, and a tensor has no mask: the masked values would be trained on. Fill "
            "them in: array.filled(value)."
        )
    if isinstance(array, np.matrix):
        raise SpecError(
            f"{place} got a np.matrix, whose rows are matrices again. Make it an array: np.asarray(matrix)."
        )
    if array.ndim == 0 and array.dtype == object and not isinstance(array.item(), (bytes, str)):
        raise SpecError(f"{place} got {kind_of(value)}, wanted an array.{_cure(value)}")
    nulls = getattr(value, "null_count", 0)
    if isinstance(nulls, int) and nulls:
        raise SpecError(
            f"{place} got {kind_of(value)} with {nulls} missing values, which a tensor has not.{_cure(value)}"
        )
    odd = next((each for each in _own_dtypes(value) if not _is_the_same(each, array.dtype)), None)
    if odd is not None:
        raise SpecError(
            f"{place} got {kind_of(value)} of dtype {odd}, which as an array would be {array.dtype.name}: values, or "
            f"which of them are missing, could be lost.{_cure(value)}"
        )


def _own_dtypes(value: Any) -> list[Any]:
    """What a foreign array says of its dtype: one, or one a column; nothing if it says nothing."""
    if isinstance(value, np.ndarray):
        return []
    dtype = getattr(value, "dtype", None)
    if dtype is not None:
        return [dtype]
    with contextlib.suppress(TypeError):
        return list(getattr(value, "dtypes", ()))
    return []


def _is_the_same(theirs: Any, ours: np.dtype[Any]) -> bool:
    if isinstance(theirs, (np.dtype, type)):
        return as_numpy_dtype(theirs) == as_numpy_dtype(ours)
    # torch.float32, tf.float32; an extension dtype has another name than the array that it makes.
    name = str(getattr(theirs, "name", theirs)).rpartition(".")[2]
    return name == ours.name or (name in ("str", "string") and ours.kind in _STRING_KINDS)


def _cure(value: Any) -> str:
    """What to write instead, after the methods that `value` has."""
    if _is_of_tensorflow(value):
        return (
            " A tensor in a graph has no value yet: give it to staged() itself, or give what session.run makes of it."
        )
    cures = {
        "toarray": "Make it dense: value.toarray().",
        "detach": "Give its numpy array: value.detach().cpu().numpy().",
        "to_numpy": "Convert it yourself, and say what missing values become: value.to_numpy(...).",
        "numpy": "Give its numpy array: value.numpy().",
    }
    return next((f" {cure}" for method, cure in cures.items() if hasattr(value, method)), "")


def _is_of_tensorflow(value: Any) -> bool:
    return type(value).__module__.partition(".")[0] == "tensorflow"


def _is_python(value: Any) -> bool:
    """Whether `value` is a number or string, or a list of those."""
    if isinstance(value, (list, tuple)):
        return _PYTHON_TYPES.issuperset(map(type, value)) or all(map(_is_python, value))
    return isinstance(value, _PYTHON_VALUES)


def _first_leaf(value: Any) -> Any:
    while isinstance(value, (list, tuple)):
        if not value:
            return None
        value = value[0]
    return value


def _leaves(value: Any) -> Iterator[Any]:
    if isinstance(value, (list, tuple)):
        for element in value:
            yield from _leaves(element)
    else:
        yield value


def _with_arrays(value: Any, place: str) -> Any:
    """The list with each array in it checked, which numpy would strip of what it does not know."""
    if isinstance(value, (list, tuple)):
        return [_with_arrays(element, place) for element in value]
    if isinstance(value, _PYTHON_VALUES) or value is None:
        return value
    return checked_array(value, None, place)


def _from_python(value: Any, dtype: np.dtype[Any] | None) -> np.ndarray[Any, Any]:
    """Numbers and strings as an array; of numbers one of `dtype`.

    Raises:
      ValueError, TypeError, OverflowError: they do not fit.
    """
    if (dtype is not None and dtype.hasobject) or isinstance(_first_leaf(value), (str, bytes)):
        # numpy's own string arrays cut trailing zero bytes off.
        return np.array(value, object)
    exact = np.asarray(value)
    if exact.dtype.kind in "SUT":  # a number, and then a string
        return np.array(value, object)
    if dtype is not None and (isinstance(value, (list, tuple, int, float, complex))):
        return _fitted(value, exact, dtype)
    if exact.dtype == np.float64 and (np.abs(exact) >= 2.0**53).any():
        integers = [leaf for leaf in _leaves(value) if isinstance(leaf, (int, np.integer))]
        if len(integers) == exact.size:  # numpy makes floats of integers that no integer dtype holds together
            raise ValueError(f"no integer dtype holds both {min(integers)} and {max(integers)}")
    return exact


def _fitted(value: Any, exact: np.ndarray[Any, Any], dtype: np.dtype[Any]) -> np.ndarray[Any, Any]:
    """Python numbers in the declared dtype; numpy 1 would wrap what is out of range, and cut off fractions."""
    if dtype.kind in "iub":
        if exact.dtype == object:
            raise ValueError(f"{_out_of_range(exact, dtype)!r} is none")
        with np.errstate(invalid="ignore"):
            fitted = exact.astype(dtype) if exact.dtype.kind != "c" else exact.real.astype(dtype)
        if not np.array_equal(fitted, exact):
            raise ValueError(f"{exact[fitted != exact].flat[0]} is none")
        return fitted
    with np.errstate(all="ignore"):
        # As feed_dict makes them; and a cast of `exact` would drop imaginary parts.
        fitted = np.asarray(value, dtype)
        if exact.dtype == object:
            return fitted
        lost = (np.isfinite(exact) & ~np.isfinite(fitted)) if "int" not in dtype.name else fitted.astype(float) != exact
    if lost.any():
        raise ValueError(f"{exact[lost].flat[0]} is none")
    return fitted


def _out_of_range(exact: np.ndarray[Any, Any], dtype: np.dtype[Any]) -> Any:
    low, high = (0, 1) if dtype.kind == "b" else (np.iinfo(dtype).min, np.iinfo(dtype).max)
    return next(each for each in exact.flat if not (isinstance(each, int) and low <= each <= high))


def _as_bytes(array: np.ndarray[Any, Any], place: str) -> np.ndarray[Any, Any]:
    """Strings as `bytes` objects, text in UTF-8 as TensorFlow has it; an array of bytes as it is."""
    if array.dtype.kind == "S":
        return array.astype(object)
    objects = array if array.dtype.kind == "O" else array.astype(object)
    elements = objects.reshape(-1).tolist()
    if set(map(type, elements)) <= {bytes}:
        return objects
    strings = np.empty(len(elements), object)
    try:
        strings[:] = [each.encode() if type(each) is str else _checked_bytes(each, place) for each in elements]
    except UnicodeEncodeError as error:
        raise SpecError(
            f"{place} got the string {error.object!r:.60}, which has no UTF-8: {error.object[error.start]!r} is half "
            "of a character (a lone surrogate). Give bytes: text.encode('utf-8', 'surrogateescape')."
        ) from error
    return strings.reshape(objects.shape)


def _checked_bytes(element: Any, place: str) -> bytes:
    if isinstance(element, bytes):
        return element
    if isinstance(element, str):
        return element.encode()
    raise SpecError(
        f"{place} got an array of Python objects (the first is of type {type(element).__name__}), wanted "
        f"numbers or strings. {_element_cure(element)}"
    )


def _element_cure(element: Any) -> str:
    if isinstance(element, (bytearray, memoryview)):
        return "Make it bytes: bytes(value)."
    if isinstance(element, (list, tuple, np.ndarray)):
        return "Rows of different length must be padded to one length."
    if isinstance(element, numbers.Number):
        return "Give numbers a dtype of numbers: array.astype(np.float32)."
    return "Fill in what is missing, and give other objects as numbers or strings."
