"""The words, and the stand-in, for a symbol of `tf.contrib` that is not there."""

from __future__ import annotations

from typing import Any, NoReturn

from staging_tf1.errors import RemovedNameError
from staging_tf1.legacy.contrib.homes import PACKAGES, WHERE_IT_WENT


def told(symbol: str, part: str) -> str:
    """The message about ``tf.<symbol>``, of the contrib module `part`."""
    if part not in WHERE_IT_WENT:
        return f"tf.{symbol}: TensorFlow 1.15 had no tf.contrib.{part}. Check the spelling."
    message = f"tf.{symbol} went away with tf.contrib, and staging_tf1 does not bring it back."
    went = WHERE_IT_WENT[part]
    if went == "nowhere":
        return f"{message} It has no successor."
    message += f" Its successor: {went}."
    if part in PACKAGES:
        message += " Where tf_slim is installed (pip install tf_slim), its names are found in it."
    return message


class Absent:
    """Stands for a symbol that old code may import and never use. Any use raises.

    Args:
      message: what the error says.
    """

    def __init__(self, message: str) -> None:
        self.__dict__["_message"] = message

    def __call__(self, *args: Any, **kwargs: Any) -> NoReturn:
        raise RemovedNameError(self._message)

    def __getattr__(self, name: str) -> NoReturn:
        if name.startswith("__"):
            raise AttributeError(name)  # what copy, pickle and inspect ask of any object
        raise RemovedNameError(self._message)

    def __mro_entries__(self, bases: tuple[Any, ...]) -> NoReturn:
        raise RemovedNameError(self._message)

    def __repr__(self) -> str:
        return f"<{self._message}>"
