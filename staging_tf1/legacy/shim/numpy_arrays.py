"""Arrays as in numpy 1.18, the numpy of TensorFlow 1.15: how they print and are made, and their `tostring()`."""

from __future__ import annotations

import ctypes
import functools
import logging
import sys
import types
import warnings
from collections.abc import Callable, Sequence
from types import ModuleType
from typing import Any

from staging_tf1.legacy.shim.origin import Origin

_log = logging.getLogger("staging_tf1")


def attach(numpy: ModuleType, origin: Origin) -> None:
    """Change the loaded numpy: printing for the whole process, functions and `tostring` for user code."""
    _print_as_before(numpy)
    if not hasattr(numpy.ndarray, "tostring"):
        _lend_tostring([numpy.ndarray, numpy.generic], origin)
    _read_bytes_from_strings(numpy, origin)
    _arrays_as_before(numpy, origin)


def _print_as_before(numpy: ModuleType) -> None:
    # numpy 2 prints np.float32(2.5) where TensorFlow 1 programs, and the parsers of their logs, expect 2.5.
    numpy.set_printoptions(legacy="1.21")
    # In numpy 2.1 and later, the options that are set belong to one thread. Feed threads print, too.
    defaults = getattr(sys.modules.get("numpy._core.printoptions"), "default_format_options_dict", None)
    if defaults is not None:
        defaults["legacy"] = 121


class _ToString:
    """`tostring` of numpy's types, which exists for user code only. The first use is logged."""

    def __init__(self, origin: Origin) -> None:
        self._origin = origin

    def __get__(self, instance: Any, owner: type) -> Any:
        if not self._origin.sees_old_names(sys._getframe(1)):
            raise AttributeError(f"{owner.__name__!r} object has no attribute 'tostring'")
        _log_once()
        return _tostring if instance is None else types.MethodType(_tostring, instance)


def _tostring(self: Any, order: Any = "C") -> Any:
    return self.tobytes(order)


@functools.cache
def _log_once() -> None:
    _log.warning("numpy.ndarray.tostring was removed; using tobytes() instead.")


# Where a type of CPython keeps its flags, and the one that setattr() respects.
_FLAGS_OFFSET = 21 * ctypes.sizeof(ctypes.c_void_p)
_IMMUTABLE = 1 << 8


def _lend_tostring(kinds: Sequence[type], origin: Origin) -> None:
    """Set `tostring` on types that are written in C, which Python marks as immutable.

    Rewriting the source of user modules instead would miss the program itself, which Python and not the import system
    loads. In a Python whose types look different nothing is written, a warning says so, and `tostring` stays missing.
    """
    flags = {kind: ctypes.c_ulong.from_address(id(kind) + _FLAGS_OFFSET) for kind in kinds}
    # Types with other flags, so that they agree by chance at no other place.
    samples = {kind: ctypes.c_ulong.from_address(id(kind) + _FLAGS_OFFSET) for kind in (int, list, type, Origin)}
    if any(field.value != kind.__flags__ for kind, field in (flags | samples).items()):
        _log.warning("numpy.ndarray.tostring cannot be restored in this version of Python. Write x.tobytes() instead.")
        return
    for kind, field in flags.items():
        field.value &= ~_IMMUTABLE
        try:
            kind.tostring = _ToString(origin)  # type: ignore[attr-defined]
        finally:
            field.value |= _IMMUTABLE


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
