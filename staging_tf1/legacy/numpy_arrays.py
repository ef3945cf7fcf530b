"""Arrays as in numpy 1.18, the numpy of TensorFlow 1.15: how they print, and the methods that numpy 2 removed."""

from __future__ import annotations

import ctypes
import functools
import gc
import logging
import sys
import types
import warnings
from collections.abc import Callable
from types import ModuleType
from typing import Any

from staging_tf1.legacy.origin import Origin

_log = logging.getLogger("staging_tf1")


def attach(numpy: ModuleType, origin: Origin) -> None:
    """Change the loaded numpy: printing for the whole process, methods and functions for user code."""
    _print_as_before(numpy)
    for name, function in _methods(numpy).items():
        for kind in (numpy.ndarray, numpy.generic):
            if not hasattr(numpy.zeros(1) if kind is numpy.ndarray else numpy.float64(0), name):
                _add_method(kind, name, function, origin)
    _read_bytes_from_strings(numpy, origin)
    _arrays_as_before(numpy, origin)


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


def _add_method(kind: type, name: str, function: Callable[..., Any], origin: Origin) -> None:
    """Add an attribute to a type that is written in C.

    Python refuses to set it, but the dictionary behind the type's read-only one accepts it. Rewriting the source of
    user modules instead would miss the program itself, which Python and not the import system loads.
    """
    behind = [each for each in gc.get_referents(kind.__dict__) if type(each) is dict]
    if len(behind) == 1:
        behind[0][name] = _RemovedMethod(name, function, origin)
        ctypes.pythonapi.PyType_Modified(ctypes.py_object(kind))


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
            if "inhomogeneous shape" not in str(error) or len(args) > 1 or kwargs.get("dtype") is not None:
                raise
            return genuine(*args, **{**kwargs, "dtype": object})

    numpy.array = array


def _refuses(call: Callable[[], Any]) -> bool:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            call()
        except ValueError:
            return True
    return False
