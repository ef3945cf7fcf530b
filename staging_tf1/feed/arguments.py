"""Checks of the arguments that `staged()` and `CustomRunner` have in common."""

from __future__ import annotations

import operator
import re
from typing import Any

# What TensorFlow takes for a scope at the root of a graph.
_SCOPE = re.compile(r"[A-Za-z0-9.][A-Za-z0-9_.\\/>-]*")


def at_least(value: Any, least: int, argument: str, what: str) -> int:
    """`value` as an int; numpy integers count.

    Raises:
      TypeError: not a whole number.
      ValueError: less than `least`.
    """
    wanted = f"wanted a whole number of at least {least}"
    try:
        number = operator.index(value)
    except TypeError:
        raise TypeError(f"{what} got {argument}={value!r}, {wanted}.") from None
    if isinstance(value, bool):
        raise TypeError(f"{what} got {argument}={value!r}, {wanted}.")
    if number < least:
        raise ValueError(f"{what} got {argument}={value!r}, {wanted}.")
    return number


def check_name(name: Any, what: str) -> None:
    """Raises unless `name` is None or can stand before the names of ops."""
    if name is None:
        return
    if not isinstance(name, str):
        raise TypeError(f"{what} got name={name!r}, wanted a string.")
    if not _SCOPE.fullmatch(name):
        raise ValueError(f"{what} got name={name!r}, wanted a name that TensorFlow takes for an op, such as 'train'.")
