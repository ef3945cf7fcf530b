"""Converts values to the arrays that are fed to TensorFlow.

Raises `SpecError` for values that cannot be converted without loss. The fast feed path of TensorFlow reads the bytes of
an array as they are. Arrays returned by this module are therefore plain `np.ndarray` objects in native byte order, with
a dtype that tensors support. Their strings are `bytes` objects.

Converted, where no value changes:
  non-native byte order; `np.memmap` and subclasses of `np.ndarray` that only add attributes; Python numbers, strings
  and lists; objects with `__array__` or a buffer whose declared dtype is that of the resulting array (torch and jax
  arrays, eager tensors, pandas objects with numpy dtypes).

Rejected, with a message that says how to convert:
  integers that a float dtype would round, from 2**53 for float64 and 2**24 for float32;
  masked arrays and `np.matrix`; dates, structured arrays and other dtypes without a tensor type; extension arrays
  (pandas `Int64`, `category`), whose missing values a plain array cannot hold; sparse matrices; symbolic tensors.
"""

from __future__ import annotations

import contextlib
import functools
import numbers
import operator
from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np

from staging_tf1.errors import SpecError

# Tensor types that numpy gets from ml_dtypes. Which of them TensorFlow supports depends on its release.
_ML_DTYPES = frozenset(
    "bfloat16 float8_e4m3b11fnuz float8_e4m3fn float8_e4m3fnuz float8_e5m2 float8_e5m2fnuz float4_e2m1fn "
    "int2 int4 uint2 uint4".split()
)
# The only field of the structured dtypes with which TensorFlow represents quantized numbers.
_QUANTIZED = frozenset((name,) for name in ("qint8", "quint8", "qint16", "quint16", "qint32"))
_STRING_KINDS = "OSUT"
# numpy's type codes for bools, integers, floats and complex numbers, without long doubles.
_PLAIN = frozenset("?bBhHiIlLqQefdFD")
# The common types. Comparing types takes a tenth of the time of isinstance with an abstract class.
_PYTHON_TYPES = frozenset((int, float, bool, complex, str, bytes))
_PYTHON_VALUES = (numbers.Number, np.generic, str, bytes)
_REAL = (int, float, np.integer)
_DTYPE_OF = operator.attrgetter("dtype")


# The attributes by which ragged and sparse values are recognized, and what to do with them.
_COMPOSITE_CURES = {
    "nested_row_splits": " It stands for a whole batch. For records of different sizes see MapSource.ragged().",
    "dense_shape": " It stands for a whole batch. Make it dense, or collate the records to one.",
}


def as_array(value: Any, dtype: np.dtype[Any] | None, where: str) -> np.ndarray[Any, Any]:
    """Convert a leaf of a batch to an array that can be fed. Returns the same object if it is one already.

    `dtype` is the dtype for Python numbers and lists; None lets numpy choose. Arrays are not cast. `where` starts
    messages: "generator 'digits': batch 3: component 'x'". Raises SpecError as the module's docstring says.
    """
    array = checked_array(value, dtype, where)
    return array if array.dtype.isnative else array.astype(as_numpy_dtype(array.dtype))


def checked_array(value: Any, dtype: np.dtype[Any] | None, where: str) -> np.ndarray[Any, Any]:
    """Do what `as_array` does, but keep the byte order, for callers that copy the array anyway."""
    array = value if type(value) is np.ndarray else _converted(value, dtype, where)
    if array.dtype.kind in _STRING_KINDS:
        return _as_bytes(array, where)
    if not _has_tensor_type(array.dtype):
        raise SpecError(f"{where} has dtype {array.dtype}, which tensors do not support. {_dtype_cure(array.dtype)}")
    return array


def is_plain(value: Any) -> bool:
    """Whether `value` is a numeric array that `as_array` returns unchanged."""
    return type(value) is np.ndarray and value.dtype.char in _PLAIN and value.dtype.isnative


def is_plain_list(value: Any) -> bool:
    """Whether `value` is a (nested) list of numbers and strings, which is one array, as in `tf.data`."""
    return isinstance(value, list) and (
        _PYTHON_TYPES.issuperset(map(type, value))
        or all(isinstance(element, _PYTHON_VALUES) or is_plain_list(element) for element in value)
    )


def as_numpy_dtype(dtype: Any) -> np.dtype[Any]:
    """Convert a numpy dtype, its name or a `tf.DType` to a numpy dtype in native byte order.

    String dtypes of any length become `object`.
    """
    converted = np.dtype(getattr(dtype, "as_numpy_dtype", dtype))
    if converted.kind in "SUT":
        return np.dtype(object)
    native: np.dtype[Any] = converted if converted.isnative else converted.newbyteorder("=")
    return native


def as_shape(shape: Any) -> tuple[int | None, ...] | None:
    """Convert a tuple, a `tf.TensorShape` or a list of v1 `Dimension` to a tuple. None if the rank is unknown."""
    if shape is None or (hasattr(shape, "rank") and shape.rank is None):
        return None
    dims = (getattr(dim, "value", dim) for dim in shape)
    return tuple(None if dim is None or int(dim) < 0 else int(dim) for dim in dims)


def describe(dtype: Any, shape: Any) -> str:
    """Format a dtype and a shape, of numpy or TensorFlow, for a message.

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
    """Describe a value for a message: its type, and its keys, length or shape."""
    if isinstance(value, np.ndarray):
        return f"one array, {describe(value.dtype, value.shape)}"
    if isinstance(value, Mapping):
        return f"a dict with the keys {', '.join(repr(key) for key in value)}"
    if isinstance(value, (tuple, list)):
        return f"a {type(value).__name__} of {len(value)}"
    library = type(value).__module__.partition(".")[0]
    name = f"{'' if library == 'builtins' else library + '.'}{type(value).__name__}"
    return f"{'an' if name[0] in 'aeiou' else 'a'} {name}"


def fits(shape: tuple[int | None, ...], declared: tuple[int | None, ...] | None) -> bool:
    """Whether an array of `shape` satisfies the declared shape. Without rows, their size is None, which fits any."""
    if declared is None or shape == declared:
        return True
    return len(shape) == len(declared) and all(d is None or d == s or s is None for s, d in zip(shape, declared))


def is_named(cls: type, *names: str) -> bool:
    """Whether a class or a base of it has one of the `names`: the library, a dot, and the name of the class.

    For classes of libraries that are not imported.

    >>> is_named(np.ma.MaskedArray, "numpy.ndarray")
    True
    """
    return any(f"{base.__module__.partition('.')[0]}.{base.__name__}" in names for base in cls.__mro__)


def _has_tensor_type(dtype: np.dtype[Any]) -> bool:
    if dtype.kind in "biufc":
        return dtype.char not in "gG"  # long doubles, even on platforms where they are doubles
    return dtype.kind == "V" and (dtype.name in _ML_DTYPES or dtype.names in _QUANTIZED)


def _dtype_cure(dtype: np.dtype[Any]) -> str:
    if dtype.names:
        named = ", ".join(f"{name!r}: array[{name!r}]" for name in dtype.names)
        return f"Pass the fields of a structured array as a dict: {{{named}}}."
    if dtype.kind in "mM":
        return "Convert it to numbers: array.astype(np.int64)."
    if dtype.kind in "fc":
        return f"Cast it: array.astype(np.{'float64' if dtype.kind == 'f' else 'complex128'})."
    return "Cast it, for example array.astype(np.float32)."


def _converted(value: Any, dtype: np.dtype[Any] | None, where: str) -> np.ndarray[Any, Any]:
    """Convert a value that is not a plain array. The result may have any dtype."""
    try:
        if _is_python(value):
            return _from_python(value, dtype)
        if isinstance(value, (list, tuple)):
            return _stacked(_with_arrays(value, where))
        array = np.asanyarray(value)
    except (SpecError, MemoryError):
        raise
    except Exception as error:  # `__array__` is user code and may raise anything
        if is_of_tensorflow(value):
            raise SpecError(f"{where} got {kind_of(value)}, expected an array.{_cure(value)}") from None
        target = "an array" if dtype is None else f"{dtype.name} values"
        raise SpecError(
            f"{where} got {kind_of(value)} that cannot be converted to {target}: {str(error).rstrip('.')}."
            f"{_cure(value)}"
        ) from error
    _check_exact(value, array, where)
    return np.asarray(array)


def _check_exact(value: Any, array: np.ndarray[Any, Any], where: str) -> None:
    """Raise if the conversion of `value` to `array` lost information."""
    if isinstance(array, np.ma.MaskedArray):
        raise SpecError(
            f"{where} got a masked array, and a tensor has no mask: the masked values would be trained on. Fill "
            "them in: array.filled(value)."
        )
    if isinstance(array, np.matrix):
        raise SpecError(
            f"{where} got a np.matrix, whose rows are matrices too. Convert it to an array: np.asarray(matrix)."
        )
    if array.ndim == 0 and array.dtype == object and not isinstance(array.item(), (bytes, str)):
        raise SpecError(f"{where} got {kind_of(value)}, expected an array.{_cure(value)}")
    nulls = getattr(value, "null_count", 0)
    if isinstance(nulls, int) and nulls:
        raise SpecError(
            f"{where} got {kind_of(value)} with {nulls} missing values, which a tensor cannot hold.{_cure(value)}"
        )
    odd = next((dtype for dtype in _own_dtypes(value) if not _is_the_same(dtype, array.dtype)), None)
    if odd is not None:
        raise SpecError(
            f"{where} got {kind_of(value)} with dtype {odd}, which converts to an array of {array.dtype.name}: values "
            f"or marks of missing values could be lost.{_cure(value)}"
        )


def _own_dtypes(value: Any) -> list[Any]:
    """The dtypes that an object of another library reports: none, one, or one per column."""
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
    # torch.float32, tf.float32. The name of an extension dtype differs from that of the converted array.
    name = str(getattr(theirs, "name", theirs)).rpartition(".")[2]
    return name == ours.name or (name in ("str", "string") and ours.kind in _STRING_KINDS)


def _cure(value: Any) -> str:
    for part, cure in _COMPOSITE_CURES.items():
        if hasattr(value, part):
            return cure
    if is_of_tensorflow(value):
        return " A graph tensor has no value yet: pass it to staged() directly, or pass the result of session.run."
    cures = {
        "toarray": "Make it dense: value.toarray().",
        "detach": "Pass its numpy array: value.detach().cpu().numpy().",
        "to_numpy": "Convert it and choose how to fill missing values: value.to_numpy(...).",
        "numpy": "Pass its numpy array: value.numpy().",
    }
    return next((f" {cure}" for method, cure in cures.items() if hasattr(value, method)), "")


def is_of_tensorflow(value: Any) -> bool:
    """Whether a class of TensorFlow made `value`."""
    return type(value).__module__.partition(".")[0] == "tensorflow"


def _is_python(value: Any) -> bool:
    if isinstance(value, (list, tuple)):
        return _PYTHON_TYPES.issuperset(map(type, value)) or all(map(_is_python, value))
    return isinstance(value, _PYTHON_VALUES)


def _first_leaf(value: Any) -> Any:
    while isinstance(value, (list, tuple)):
        if not value:
            return None
        value = value[0]
    return value


def leaves_of(value: Any) -> Iterator[Any]:
    """Yield the elements of nested lists and tuples."""
    if isinstance(value, (list, tuple)):
        for element in value:
            yield from leaves_of(element)
    else:
        yield value


def _with_arrays(value: Any, where: str) -> Any:
    """Check each array in a nested list. numpy would silently drop masks and other extensions."""
    if type(value) is np.ndarray:  # before the checks for abstract classes, which take longer
        return checked_array(value, None, where)
    if isinstance(value, (list, tuple)):
        return [_with_arrays(element, where) for element in value]
    if isinstance(value, _PYTHON_VALUES) or value is None:
        return value
    return checked_array(value, None, where)


def _stacked(parts: Any) -> np.ndarray[Any, Any]:
    """Stack arrays, or arrays and numbers. Raises if an integer would be rounded."""
    stacked = np.asarray(parts)
    if stacked.dtype.kind not in "fc" or _all_have(stacked.dtype, parts):
        return stacked
    for leaf in leaves_of(parts):
        exact = np.asarray(leaf)
        if exact.dtype.kind in "iuO":  # numpy makes objects of integers beyond uint64
            _check_rounding(exact.reshape(-1).tolist(), exact.reshape(-1).astype(stacked.dtype))
    return stacked


def _all_have(dtype: np.dtype[Any], parts: Any) -> bool:
    try:
        return {dtype}.issuperset(map(_DTYPE_OF, parts))  # for hundreds of arrays, a loop would take noticeable time
    except AttributeError:
        return False


def _from_python(value: Any, dtype: np.dtype[Any] | None) -> np.ndarray[Any, Any]:
    """Convert Python numbers, to `dtype`, and strings. Raises if a value cannot be represented."""
    if (dtype is not None and dtype.hasobject) or isinstance(_first_leaf(value), (str, bytes)):
        # numpy's string arrays drop trailing zero bytes.
        return np.array(value, object)
    exact = np.asarray(value)
    if exact.dtype.kind in "SUT":  # a mix of numbers and strings
        return np.array(value, object)
    if dtype is not None and (isinstance(value, (list, tuple, int, float, complex))):
        return _fitted(value, exact, dtype)
    if exact.dtype == np.float64 and (np.abs(exact) >= 2.0**53).any():
        integers = [leaf for leaf in leaves_of(value) if isinstance(leaf, (int, np.integer))]
        if len(integers) == exact.size:  # numpy falls back to floats when no integer dtype holds all values
            raise ValueError(f"no integer dtype holds both {min(integers)} and {max(integers)}")
        _check_rounding(value, exact)
    return exact


def _fitted(value: Any, exact: np.ndarray[Any, Any], dtype: np.dtype[Any]) -> np.ndarray[Any, Any]:
    """Convert Python numbers without loss. numpy 1 would wrap out-of-range values and truncate fractions."""
    if dtype.kind in "iub":
        if exact.dtype == np.float64 and (np.abs(exact) >= 2.0**53).any() and np.isfinite(exact).all():
            # If one integer exceeds int64, numpy converts all of them to floats, which drop digits.
            exact = np.array(value, object)
        if exact.dtype == object:
            low, high = (0, 1) if dtype.kind == "b" else (np.iinfo(dtype).min, np.iinfo(dtype).max)
            for number in exact.flat:
                if not (isinstance(number, _REAL) and low <= number <= high and number == int(number)):
                    raise ValueError(f"{number} does not fit")
            return exact.astype(dtype)
        with np.errstate(invalid="ignore"):
            fitted = (exact.real if exact.dtype.kind == "c" else exact).astype(dtype)
        if not np.array_equal(fitted, exact):
            raise ValueError(f"{exact[fitted != exact].flat[0]} does not fit")
        return fitted
    with np.errstate(all="ignore"):
        # The conversion that feed_dict does. Casting `exact` would drop imaginary parts.
        fitted = np.asarray(value, dtype)
        is_integer = "int" in dtype.name  # numpy computes the name each time
        if not is_integer and not isinstance(value, float):
            _check_rounding(value, fitted)
        if exact.dtype == object:
            return fitted
        lost = fitted.astype(float) != exact if is_integer else np.isfinite(exact) & ~np.isfinite(fitted)
    if lost.any():
        raise ValueError(f"{exact[lost].flat[0]} does not fit")
    return fitted


def _check_rounding(value: Any, floats: np.ndarray[Any, Any]) -> None:
    """Raise if an integer of `value` was rounded in `floats`. Fractions may be rounded, identifiers may not."""
    if floats.ndim and (np.abs(floats) < _first_rounded(floats.dtype)).all():
        return
    if isinstance(value, list) and {float}.issuperset(map(type, value)):  # a list of large floats costs little more
        return
    held = floats.real.astype(np.float64).reshape(-1).tolist()
    for leaf, number in zip(leaves_of(value), held):
        # Python compares its integers with its floats exactly. numpy would round the integer first.
        if isinstance(leaf, (int, np.integer)) and int(leaf) != number:
            if not np.isfinite(number):
                raise ValueError(f"{leaf} does not fit")
            holder = next((name for name in ("int64", "uint64") if _holds(name, int(leaf))), None)
            cure = f"Declare {holder}, or pass" if holder else "No integer dtype holds it: pass"
            raise ValueError(f"{leaf} would be rounded to {number:.0f}. {cure} float(value) to round it")


@functools.cache
def _first_rounded(dtype: np.dtype[Any]) -> float:
    """Return a power of two up to which a float dtype holds all integers: 2**53 for float64."""
    digits = 1
    while float(np.asarray(2**digits + 1).astype(dtype).real) == 2**digits + 1:
        digits += 1
    return 2.0**digits


def _holds(name: str, number: int) -> bool:
    limits = np.iinfo(name)
    return limits.min <= number <= limits.max


def _as_bytes(array: np.ndarray[Any, Any], where: str) -> np.ndarray[Any, Any]:
    """Convert an array of strings to `bytes` objects. Text is encoded as UTF-8, as in TensorFlow."""
    if array.dtype.kind == "S":
        return array.astype(object)
    objects = array if array.dtype.kind == "O" else array.astype(object)
    elements = objects.reshape(-1).tolist()
    if set(map(type, elements)) <= {bytes}:
        return objects
    strings = np.empty(len(elements), object)
    try:
        strings[:] = [item.encode() if type(item) is str else _checked_bytes(item, where) for item in elements]
    except UnicodeEncodeError as error:
        raise SpecError(
            f"{where} got the string {error.object!r:.60}, which cannot be encoded as UTF-8: "
            f"{error.object[error.start]!r} is a lone surrogate. Pass bytes: text.encode('utf-8', 'surrogateescape')."
        ) from error
    return strings.reshape(objects.shape)


def _checked_bytes(element: Any, where: str) -> bytes:
    if isinstance(element, bytes):
        return element
    if isinstance(element, str):
        return element.encode()
    raise SpecError(
        f"{where} got an array of Python objects (the first has type {type(element).__name__}), expected "
        f"numbers or strings. {_element_cure(element)}"
    )


def _element_cure(element: Any) -> str:
    if isinstance(element, (bytearray, memoryview)):
        return "Convert it to bytes: bytes(value)."
    if isinstance(element, (list, tuple, np.ndarray)):
        return "Pad rows of different lengths to the same length."
    if isinstance(element, numbers.Number):
        return "Give the array a numeric dtype: array.astype(np.float32)."
    return "Fill in missing values, and convert other objects to numbers or strings."
