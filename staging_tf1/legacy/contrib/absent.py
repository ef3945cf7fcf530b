"""The error message and the stand-in for a missing symbol of `tf.contrib`."""

from __future__ import annotations

import importlib.util
from typing import Any, NoReturn

from staging_tf1.errors import RemovedNameError
from staging_tf1.legacy.contrib.advice import replacement_of
from staging_tf1.legacy.contrib.homes import PACKAGES, REPLACEMENTS


def removal_message(symbol: str, part: str) -> str:
    """Return the error message for ``tf.<symbol>``, a symbol of the contrib module `part`."""
    if part not in REPLACEMENTS:
        return f"tf.{symbol}: TensorFlow 1.15 had no tf.contrib.{part}. Check the spelling."
    message = f"tf.{symbol} was removed with tf.contrib, and staging_tf1 does not restore it."
    name = symbol.rpartition(".")[2]
    replacement = replacement_of(part, name)
    if replacement is not None:
        return f"{message} Use instead: {replacement}." if replacement else f"{message} There is no replacement."
    if not REPLACEMENTS[part]:
        return f"{message} There is no replacement."
    message += f" Use instead: {REPLACEMENTS[part]}."
    if part in PACKAGES and symbol != f"contrib.{part}":
        # What tf_slim has was found, if it is installed.
        if importlib.util.find_spec("tf_slim") is not None:
            return f"{message} tf_slim has no {name}."
        message += " If tf_slim is installed (pip install tf_slim), its names are available here."
    return message


class Absent:
    """A stand-in for a symbol that old code may import without using it. Any use raises `RemovedNameError`."""

    def __init__(self, message: str) -> None:
        self.__dict__["_message"] = message

    def __call__(self, *args: Any, **kwargs: Any) -> NoReturn:
        raise RemovedNameError(self._message)

    def __getattr__(self, name: str) -> NoReturn:
        if name.startswith("__"):
            raise AttributeError(name)  # copy, pickle and inspect look these names up on any object
        raise RemovedNameError(self._message)

    def __mro_entries__(self, bases: tuple[Any, ...]) -> NoReturn:
        raise RemovedNameError(self._message)

    def __repr__(self) -> str:
        return f"<{self._message}>"
