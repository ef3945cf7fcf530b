"""Checks of the numbers that users give."""

from __future__ import annotations

import operator
from typing import Any


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
