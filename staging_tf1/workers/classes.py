"""Classes that a source has brought to a worker by value: a batch refers to them by number.

pickle finds a class by its name, but the main program's classes are in no module of a worker. cloudpickle would send
the whole class with every batch, and the training process would replace the methods of the original by copies.
"""

from __future__ import annotations

import itertools
import weakref
from collections.abc import Iterable

__all__ = ["class_of", "learn", "number_of", "numbered"]

_numbers: weakref.WeakKeyDictionary[type, int] = weakref.WeakKeyDictionary()
_classes: weakref.WeakValueDictionary[int, type] = weakref.WeakValueDictionary()
_next = itertools.count()


def numbered(kind: type) -> int:
    """Return the number of a class that is moved to a worker, a new one for a new class."""
    if kind not in _numbers:
        learn([(next(_next), kind)])
    return _numbers[kind]


def learn(known: Iterable[tuple[int, type]]) -> None:
    """Note the numbers that the training process has given to classes."""
    for number, kind in known:
        _numbers[kind] = number
        _classes[number] = kind


def number_of(kind: type) -> int | None:
    """Return the number of a class; None if it has none, so that pickle must find it by name."""
    return _numbers.get(kind)


def class_of(number: int) -> type:
    """Return the class with a number."""
    return _classes[number]
