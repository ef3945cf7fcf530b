"""Moves the main program's functions and classes to workers by value, with their files and lines.

A batch refers to such a class by number. pickle finds a class by its name, but the main program's classes are in no
module of a worker. cloudpickle would send the whole class with every batch, and the training process would replace the
methods of the original by copies.
"""

from __future__ import annotations

import functools
import itertools
import linecache
import marshal
import operator
import os
import sys
import threading
import types
import weakref
from collections.abc import Callable, Iterable
from contextlib import suppress
from typing import Any

import cloudpickle

__all__ = ["ByValuePickler", "class_of", "learn", "number_of", "numbered"]


# cloudpickle has one list of the modules that it pickles by value.
_registering = threading.Lock()
# What `functools.cache` and `functools.lru_cache` make.
_Cached = type(functools.cache(len))


class ByValuePickler(cloudpickle.CloudPickler):  # type: ignore[misc]
    """Pickles functions and classes that no other process can import, as cloudpickle does.

    Their code keeps the name of its file, which some releases of cloudpickle replace, so tracebacks of the other
    process show it. Source text that is in no file, such as a notebook's, is pickled, too. The same holds for a module
    that was loaded by its path, and for cached functions, which cloudpickle does not know. Their caches are empty.
    """

    def __init__(self, *arguments: Any) -> None:
        super().__init__(*arguments)
        # The source text by the name of the file. The pickle has it once, however many functions it has.
        self._sources: dict[str, tuple[str, ...] | None] = {}
        # By name, whether another process can import a module.
        self._importable: dict[str, bool] = {}

    def reducer_override(self, value: Any) -> Any:
        if type(value) is types.FunctionType:
            # In a zip file, only the loader of the module has the source text.
            linecache.lazycache(value.__code__.co_filename, value.__globals__)
        if type(value) is types.CodeType:
            # Without the constants: a debugger or tracer may have added any object to them.
            shell = marshal.dumps(value.replace(co_consts=()))
            return _code, (shell, value.co_consts, self._source(value.co_filename))
        if type(value) is _Cached and not self._is_found(value):
            about = {name: each for name, each in vars(value).items() if name != "cache_parameters"}
            return _cached, (value.__wrapped__, value.cache_parameters()), about
        if type(value) is functools.singledispatchmethod:
            # From Python 3.12 on, its cache refers to each instance that has called it.
            about = {name: each for name, each in vars(value).items() if name != "_method_cache"}
            return functools.singledispatchmethod, (value.func,), about
        if type(value) is weakref.WeakKeyDictionary:
            # In a `functools.singledispatch`.
            return weakref.WeakKeyDictionary, (dict(value),)
        if isinstance(value, (type, types.FunctionType, types.ModuleType)):
            name = value.__name__ if isinstance(value, types.ModuleType) else value.__module__
            if not self._can_import(name):
                return self._reduced_by_value(value, sys.modules[name])
        return super().reducer_override(value)

    def _reduced_by_value(self, value: Any, home: types.ModuleType) -> Any:
        """Do what cloudpickle does for a module that is not in `sys.modules`, or for a part of it."""
        with _registering:
            before = cloudpickle.list_registry_pickle_by_value()
            cloudpickle.register_pickle_by_value(home)
            try:
                if isinstance(value, types.ModuleType):
                    return self.dispatch_table[types.ModuleType](value)
                return super().reducer_override(value)
            finally:
                if home.__name__ not in before:
                    cloudpickle.unregister_pickle_by_value(home)

    def _is_found(self, value: Any) -> bool:
        """Whether another process finds a value by the names of its module and itself."""
        with suppress(AttributeError):
            home = sys.modules.get(value.__module__)
            is_there = operator.attrgetter(value.__qualname__)(home) is value
            return is_there and value.__module__ != "__main__" and self._can_import(value.__module__)
        return False

    def _can_import(self, name: Any) -> bool:
        """Whether another process would import the same module by its name, or it is not loaded here either."""
        if name not in self._importable:
            module = sys.modules.get(name) if name != "__main__" else None
            self._importable[name] = module is None or self._would_find(name, module)
        return self._importable[name]

    def _would_find(self, name: str, module: Any) -> bool:
        file = getattr(module, "__file__", None)
        folder = name.rpartition(".")[0]
        parent = sys.modules.get(folder)
        path = getattr(parent, "__path__", None)
        if folder and (file is None or path is None):
            # An extension module makes modules that no file contains.
            return parent is not None and self._can_import(folder)
        own_name = getattr(module.__spec__, "name", name)
        if folder and own_name != name and sys.modules.get(own_name) is module:
            # The package gives it this name, too, as Python 3.13 does with `collections.abc`.
            return self._can_import(own_name) and self._can_import(folder)
        finders = [finder.find_spec for finder in sys.meta_path if hasattr(finder, "find_spec")]
        spec = next((spec for spec in (find(name, path) for find in finders) if spec is not None), None)
        if spec is None or file is None or spec.origin is None or not spec.has_location:
            return spec is not None
        return os.path.realpath(spec.origin) == os.path.realpath(str(file))

    def _source(self, filename: str) -> tuple[str, ...] | None:
        """Return the lines of a file that does not exist; None if it exists, or its lines are unknown."""
        if filename not in self._sources:
            lines = () if os.path.exists(filename) else tuple(linecache.getlines(filename))
            self._sources[filename] = lines or None
        return self._sources[filename]


def _cached(function: Callable[..., Any], parameters: dict[str, Any]) -> Any:
    return functools.lru_cache(**parameters)(function)


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
