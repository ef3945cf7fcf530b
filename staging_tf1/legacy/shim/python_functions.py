"""Functions of Python 3.7 that need more than another name."""

from __future__ import annotations

import collections
import html
import importlib.machinery
import importlib.util
import inspect
import locale
import math
import sys
import unittest
from collections.abc import Callable
from types import ModuleType
from typing import Any

ArgSpec = collections.namedtuple("ArgSpec", "args varargs keywords defaults")


def getargspec(function: Callable[..., Any]) -> Any:
    """Return the arguments of `function` as `inspect.getargspec` did before Python 3.11.

    Raises ValueError for keyword-only arguments and annotations, which the old form cannot represent.
    """
    full = inspect.getfullargspec(function)
    if full.kwonlyargs or full.annotations:
        raise ValueError(
            "Function has keyword-only parameters or annotations, use inspect.signature() API which can support them"
        )
    return ArgSpec(full.args, full.varargs, full.varkw, full.defaults)


def formatargspec(args: Any, varargs: Any = None, varkw: Any = None, defaults: Any = None, *_: Any, **__: Any) -> str:
    """Return the arguments of a function as text, without keyword-only arguments and annotations."""
    first = len(args) - len(defaults or ())
    shown = [name if i < first else f"{name}={defaults[i - first]!r}" for i, name in enumerate(args)]
    return f"({', '.join([*shown, *([f'*{varargs}'] if varargs else []), *([f'**{varkw}'] if varkw else [])])})"


def escape(s: str, quote: bool = False) -> str:
    """Return a text with the characters &, < and > escaped, as `cgi.escape` did."""
    return html.escape(s, quote).replace("&#x27;", "'")


def locale_format(percent: str, value: Any, grouping: bool = False, monetary: bool = False, *additional: Any) -> str:
    """Return a number as text, as `locale.format` did."""
    return locale.format_string(percent, (value, *additional) if additional else value, grouping, monetary)


def makeSuite(testCaseClass: Any, prefix: str = "test", sortUsing: Any = None, suiteClass: Any = None) -> Any:
    """Return the tests of a class, as `unittest.makeSuite` did."""
    loader = unittest.TestLoader()
    loader.testMethodPrefix = prefix
    loader.sortTestMethodsUsing = sortUsing or loader.sortTestMethodsUsing
    loader.suiteClass = suiteClass or loader.suiteClass
    return loader.loadTestsFromTestCase(testCaseClass)


def assert_dict_contains_subset(self: Any, subset: Any, dictionary: Any, msg: Any = None) -> None:
    """Fail unless a dictionary has the items of another."""
    self.assertEqual(dictionary, {**dictionary, **subset}, msg)


# ---- methods


def getchildren(self: Any) -> list[Any]:
    """Return the children of an element."""
    return list(self)


def getiterator(self: Any, tag: str | None = None) -> list[Any]:
    """Return the elements below, with this one."""
    return list(self.iter(tag))


def unescape(self: Any, s: str) -> str:
    """Return a text of HTML with its entities replaced."""
    return html.unescape(s)


def from_bytes(self: Any, buffer: Any) -> None:
    """Append bytes to an array, or a text as UTF-8."""
    self.frombytes(buffer.encode() if isinstance(buffer, str) else buffer)


# ---- functions that have changed, which come first


def sample(genuine: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
    """Draw from a population, which may be a set."""
    return genuine(*(tuple(each) if isinstance(each, (set, frozenset)) else each for each in args), **kwargs)


def shuffle(genuine: Callable[..., Any], *args: Any, random: Any = None, **kwargs: Any) -> None:
    """Shuffle a list in place, with the numbers of another function if there is one."""
    if args and callable(args[-1]):
        *args, random = args  # type: ignore[assignment]
    if random is None:
        genuine(*args, **kwargs)
        return
    x = kwargs["x"] if "x" in kwargs else args[-1]
    for i in reversed(range(1, len(x))):
        j = math.floor(random() * (i + 1))
        x[i], x[j] = x[j], x[i]


def without_encoding(genuine: Callable[..., Any], *args: Any, encoding: Any = None, **kwargs: Any) -> Any:
    """Read JSON. An encoding has had no effect since Python 3.1."""
    return genuine(*args, **kwargs)


def open_universal(genuine: Callable[..., Any], file: Any, mode: Any = "r", *args: Any, **kwargs: Any) -> Any:
    """Open a file. The mode may have a U, which has had no effect since Python 3.0."""
    return genuine(file, mode.replace("U", "") or "r" if isinstance(mode, str) else mode, *args, **kwargs)


# ---- the module imp


class imp:  # the module's spelling
    """What programs use of the module `imp`."""

    PY_SOURCE, PY_COMPILED, C_EXTENSION, PKG_DIRECTORY = 1, 2, 3, 5
    new_module = ModuleType
    reload = staticmethod(importlib.reload)

    @staticmethod
    def load_source(name: str, pathname: Any, file: Any = None) -> ModuleType:
        """Execute a file as a module, and return it."""
        loader = importlib.machinery.SourceFileLoader(name, str(pathname))
        return _loaded(importlib.util.spec_from_file_location(name, str(pathname), loader=loader))

    @staticmethod
    def find_module(name: str, path: Any = None) -> tuple[Any, str, tuple[str, str, int]]:
        """Return an open file, its path and its kind. Raises ImportError if there is none."""
        spec = importlib.machinery.PathFinder.find_spec(name, path)
        if spec is None or spec.origin is None:
            raise ImportError(f"No module named {name!r}", name=name)
        if spec.submodule_search_locations:
            return None, spec.submodule_search_locations[0], ("", "", imp.PKG_DIRECTORY)
        if isinstance(spec.loader, importlib.machinery.ExtensionFileLoader):
            return open(spec.origin, "rb"), spec.origin, (".so", "rb", imp.C_EXTENSION)
        return open(spec.origin, encoding="utf-8"), spec.origin, (".py", "r", imp.PY_SOURCE)

    @staticmethod
    def load_module(name: str, file: Any, filename: str, details: Any) -> ModuleType:
        """Load what `find_module` has found."""
        path = f"{filename}/__init__.py" if details[2] == imp.PKG_DIRECTORY else filename
        return _loaded(importlib.util.spec_from_file_location(name, path))


def _loaded(spec: Any) -> ModuleType:
    module = sys.modules.setdefault(spec.name, importlib.util.module_from_spec(spec))
    spec.loader.exec_module(module)
    return module
