"""Moves the main program's functions and classes to workers by value, with their files and lines.

A batch refers to such a class by number. pickle finds a class by its name, but the main program's classes are in no
module of a worker. cloudpickle would send the whole class with every batch, and the training process would replace the
methods of the original by copies.
"""

from __future__ import annotations

import itertools
import linecache
import marshal
import os
import types
import weakref
from collections.abc import Iterable
from typing import Any

import cloudpickle

__all__ = ["ByValuePickler", "class_of", "learn", "number_of", "numbered"]


class ByValuePickler(cloudpickle.CloudPickler):  # type: ignore[misc]
    """Pickles functions and classes that no other process can import, as cloudpickle does.

    Their code keeps the name of its file, which some releases of cloudpickle replace, so tracebacks of the other
    process show it. Source text that is in no file, such as a notebook's, is pickled, too.
    """

    def __init__(self, *arguments: Any) -> None:
        super().__init__(*arguments)
        # The source text by the name of the file. The pickle has it once, however many functions it has.
        self._sources: dict[str, tuple[str, ...] | None] = {}

    def reducer_override(self, value: Any) -> Any:
        if type(value) is types.FunctionType:
            # In a zip file, only the loader of the module has the source text.
            linecache.lazycache(value.__code__.co_filename, value.__globals__)
        if type(value) is types.CodeType:
            # Without the constants: a debugger or tracer may have added any object to them.
            shell = marshal.dumps(value.replace(co_consts=()))
            return _code, (shell, value.co_consts, self._source(value.co_filename))
        return super().reducer_override(value)

    def _source(self, filename: str) -> tuple[str, ...] | None:
        """Return the lines of a file that does not exist; None if it exists, or its lines are unknown."""
        if filename not in self._sources:
            lines = () if os.path.exists(filename) else tuple(linecache.getlines(filename))
            self._sources[filename] = lines or None
        return self._sources[filename]


def _code(shell: bytes, constants: tuple[Any, ...], source: tuple[str, ...] | None) -> types.CodeType:
    code: types.CodeType = marshal.loads(shell).replace(co_consts=constants)
    if source is not None:
        lines = list(source)
        # As `timeit` and doctests do: an entry without a time is not compared with a file.
        linecache.cache.setdefault(code.co_filename, (sum(map(len, lines)), None, lines, code.co_filename))
    return code


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
