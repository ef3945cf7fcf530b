"""Arrays as in numpy 1.18, the numpy of TensorFlow 1.15: how they print, and the methods that numpy 2 removed."""

from __future__ import annotations

import ctypes
import functools
import logging
import sys
import types
import warnings
from collections.abc import Callable
from types import ModuleType
from typing import Any

from staging_tf1.legacy.shim.origin import Origin

_log = logging.getLogger("staging_tf1")


def attach(numpy: ModuleType, origin: Origin) -> None:
    """Change the loaded numpy: printing for the whole process, methods and functions for user code."""
    _print_as_before(numpy)
    for name, function in _methods(numpy).items():
        for kind in (numpy.ndarray, numpy.generic):
            if not hasattr(numpy.zeros(1) if kind is numpy.ndarray else numpy.float64(0), name):
                _set(kind, name, _RemovedMethod(name, function, origin))
    _read_bytes_from_strings(numpy, origin)
    _arrays_as_before(numpy, origin)
    _convert_arrays_of_one_element(numpy, origin)


def _print_as_before(numpy: ModuleType) -> None:
    # numpy 2 prints np.float32(2.5) where TensorFlow 1 programs, and the parsers of their logs, expect 2.5.
    numpy.set_printoptions(legacy="1.21")
    # In numpy 2.1 and later, the options that are set belong to one thread. Feed threads print, too.
    defaults = getattr(sys.modules.get("numpy._core.printoptions"), "default_format_options_dict", None)
    if defaults is not None:
        defaults["legacy"] = 121


def _methods(numpy: ModuleType) -> dict[str, Callable[..., Any]]:
    def tostring(self: Any, order: Any = "C") -> Any:
        return self.tobytes(order)

    def itemset(self: Any, *args: Any) -> None:
        *index, value = args
        place = index[0] if len(index) == 1 else tuple(index)
        if isinstance(place, tuple):
            self[place] = value
        else:
            self.flat[place] = value

    def newbyteorder(self: Any, new_order: str = "S") -> Any:
        return self.view(self.dtype.newbyteorder(new_order))

    def ptp(self: Any, *args: Any, **kwargs: Any) -> Any:
        return numpy.ptp(self, *args, **kwargs)

    return {"tostring": tostring, "itemset": itemset, "newbyteorder": newbyteorder, "ptp": ptp}


class _RemovedMethod:
    """A method of numpy's types that exists for user code only. The first use is logged."""

    def __init__(self, name: str, function: Callable[..., Any], origin: Origin) -> None:
        self._name = name
        self._function = function
        self._origin = origin

    def __get__(self, instance: Any, owner: type) -> Any:
        if not self._origin.sees_old_names(sys._getframe(1)):
            raise AttributeError(f"{owner.__name__!r} object has no attribute {self._name!r}")
        _log_once(self._name)
        return self._function if instance is None else types.MethodType(self._function, instance)


_INSTEAD = {
    "tostring": "tobytes()",
    "itemset": "an assignment",
    "newbyteorder": "a view of the new dtype",
    "ptp": "numpy.ptp()",
}


@functools.cache
def _log_once(name: str) -> None:
    _log.warning("numpy.ndarray.%s was removed; using %s instead.", name, _INSTEAD[name])


# Where a type of CPython keeps its flags, and the one that setattr() respects.
_FLAGS_OFFSET = 21 * ctypes.sizeof(ctypes.c_void_p)
_IMMUTABLE = 1 << 8


def _set(kind: type, name: str, value: Any) -> None:
    """Set an attribute of a type that is written in C, which Python marks as immutable.

    Rewriting the source of user modules instead would miss the program itself, which Python and not the import system
    loads.
    """
    flags = ctypes.c_ulong.from_address(id(kind) + _FLAGS_OFFSET)
    if flags.value != kind.__flags__:
        return  # another Python, whose types look different
    flags.value &= ~_IMMUTABLE
    try:
        setattr(kind, name, value)
    finally:
        flags.value |= _IMMUTABLE


def _convert_arrays_of_one_element(numpy: Any, origin: Origin) -> None:
    """Let user code write ``float(x)``, ``int(x)`` and ``"%d" % x`` for an array of one element and any shape."""
    for name in ("__float__", "__int__", "__complex__"):
        if _refuses(getattr(numpy.ones(1), name)):
            _set(numpy.ndarray, name, _of_one_element(getattr(numpy.ndarray, name), origin))


def _of_one_element(genuine: Any, origin: Origin) -> Any:
    @functools.wraps(genuine)
    def convert(self: Any) -> Any:
        if self.ndim and self.size == 1 and origin.sees_old_names(sys._getframe(1)):
            return genuine(self.reshape(()))
        return genuine(self)

    return convert


def _read_bytes_from_strings(numpy: Any, origin: Origin) -> None:
    """Let user code read binary data with `np.fromstring`, if this numpy refuses it."""
    genuine = numpy.fromstring
    if not _refuses(lambda: genuine(b"\0", numpy.uint8)):
        return

    @functools.wraps(genuine)
    def fromstring(string: Any, dtype: Any = float, count: int = -1, sep: str = "", **kwargs: Any) -> Any:
        if sep or not origin.sees_old_names(sys._getframe(1)):
            return genuine(string, dtype, count, sep=sep, **kwargs)
        content = string.encode("latin-1") if isinstance(string, str) else string
        return numpy.frombuffer(content, dtype, count).copy()

    numpy.fromstring = fromstring


def _arrays_as_before(numpy: Any, origin: Origin) -> None:
    """Let user code write ``np.array(x, copy=False)`` for "copy if needed", and make arrays of rows of unequal lengths.

    numpy 2 spells the first ``copy=None``. numpy 1.24 and later want ``dtype=object`` for the second.
    """
    genuine = numpy.array
    if_needed = None if _refuses(lambda: genuine([1], copy=False)) else False

    @functools.wraps(genuine)
    def array(*args: Any, **kwargs: Any) -> Any:
        if not origin.sees_old_names(sys._getframe(1)):
            return genuine(*args, **kwargs)
        if kwargs.get("copy") is False:
            kwargs["copy"] = if_needed
        try:
            return genuine(*args, **kwargs)
        except ValueError as error:
            if not _are_rows_of_unequal_lengths(error, args, kwargs):
                raise
            return genuine(*args, **{**kwargs, "dtype": object})

    numpy.array = array
    genuine_asarray = numpy.asarray

    @functools.wraps(genuine_asarray)
    def asarray(*args: Any, **kwargs: Any) -> Any:
        try:
            return genuine_asarray(*args, **kwargs)
        except ValueError as error:
            if not (_are_rows_of_unequal_lengths(error, args, kwargs) and origin.sees_old_names(sys._getframe(1))):
                raise
            return genuine_asarray(*args, **{**kwargs, "dtype": object})

    numpy.asarray = asarray


def _are_rows_of_unequal_lengths(error: ValueError, args: Any, kwargs: Any) -> bool:
    return "inhomogeneous shape" in str(error) and len(args) == 1 and kwargs.get("dtype") is None


def _refuses(call: Callable[[], Any]) -> bool:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            call()
        except (TypeError, ValueError):
            return True
    return False
