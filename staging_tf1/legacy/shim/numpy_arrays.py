"""Arrays as in numpy 1.18, the numpy of TensorFlow 1.15: how they print and are made."""

from __future__ import annotations

import functools
import sys
import warnings
from collections.abc import Callable
from types import ModuleType
from typing import Any

from staging_tf1.legacy.shim.origin import Origin


def attach(numpy: ModuleType, origin: Origin) -> None:
    """Change the loaded numpy: printing for the whole process, functions for user code."""
    _print_as_before(numpy)
    _read_bytes_from_strings(numpy, origin)
    _arrays_as_before(numpy, origin)


def _print_as_before(numpy: ModuleType) -> None:
    # numpy 2 prints np.float32(2.5) where TensorFlow 1 programs, and the parsers of their logs, expect 2.5.
    numpy.set_printoptions(legacy="1.21")
    # In numpy 2.1 and later, the options that are set belong to one thread. Feed threads print, too.
    defaults = getattr(sys.modules.get("numpy._core.printoptions"), "default_format_options_dict", None)
    if defaults is not None:
        defaults["legacy"] = 121


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
