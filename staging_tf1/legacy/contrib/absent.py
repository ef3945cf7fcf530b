"""The error message and the stand-in for a missing symbol of `tf.contrib`."""

from __future__ import annotations

from typing import Any, NoReturn

from staging_tf1.errors import RemovedNameError
from staging_tf1.legacy.contrib import store
from staging_tf1.legacy.contrib.homes import OURS, PARTS


def removal_message(symbol: str, part: str) -> str:
    """Return the error message for a symbol below ``tensorflow``: of the part `part` of contrib, or of examples."""
    full = f"{'tf' if symbol.startswith('contrib.') else 'tensorflow'}.{symbol}"
    if symbol.startswith("contrib.") and part not in PARTS:
        return f"{full}: TensorFlow 1.15 had no tf.contrib.{part}. Check the spelling."
    if symbol.startswith("contrib.") and part in OURS:
        return (
            f"{full} was removed with tf.contrib, and staging_tf1 does not restore it. "
            f"Use instead: {OURS[part].instead}."
        )
    if store.found() is None:
        return (
            f"{full} is not in TensorFlow 2. Fetch it from TensorFlow 1.15.5 (110 MB, once): {store.FETCH}. The "
            "program itself needs no change."
        )
    return f"{full} is not among the files of TensorFlow 1.15.5. Check the spelling."


class _Absent(type):
    """A class of which any use raises `RemovedNameError`, except to subclass it and to ask for its instances."""

    _message: str

    def __call__(cls, *args: Any, **kwargs: Any) -> NoReturn:
        raise RemovedNameError(cls._message)

    def __getattr__(cls, name: str) -> NoReturn:
        if name.startswith("__"):
            raise AttributeError(name)  # copy, pickle and inspect look these names up on any object
        raise RemovedNameError(cls._message)

    def __repr__(cls) -> str:
        return f"<{cls._message}>"


def absent(message: str) -> type:
    """Return a stand-in for a symbol that old code may import without using it."""
    return _Absent("Absent", (), {"_message": message})


def is_absent(value: Any) -> bool:
    """Whether a value is such a stand-in."""
    return isinstance(value, _Absent)
