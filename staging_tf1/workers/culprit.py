"""Finds the attribute for which an object cannot be pickled."""

from __future__ import annotations

import functools
import types
from collections.abc import Callable, Iterator, Mapping
from typing import Any

__all__ = ["culprit_of"]

# An object graph may be deeper, but nobody reads a longer path.
_DEEPEST = 12


def culprit_of(value: Any, path: str, can_be_pickled: Callable[[Any], bool]) -> tuple[str, Any]:
    """Return the path to the innermost part of `value` that cannot be pickled, and that part.

    >>> import pickle
    >>> def picklable(value):
    ...     try:
    ...         return bool(pickle.dumps(value))
    ...     except Exception:
    ...         return False
    >>> culprit_of({"a": [1, print, (n for n in ())]}, "value", picklable)[0]
    "value['a'][2]"
    """
    for _ in range(_DEEPEST):
        for part_path, part in _parts(value, path):
            if not can_be_pickled(part):
                path, value = part_path, part
                break
        else:
            break
    return path, value


def _parts(value: Any, path: str) -> Iterator[tuple[str, Any]]:
    if isinstance(value, Mapping):
        yield from ((f"{path}[{key!r}]", each) for key, each in value.items())
    elif isinstance(value, (list, tuple)):
        yield from ((f"{path}[{number}]", each) for number, each in enumerate(value))
    elif isinstance(value, functools.partial):
        yield f"{path}.func", value.func
        yield from _parts(value.args, f"{path}.args")
        yield from _parts(value.keywords, f"{path}.keywords")
    elif isinstance(value, types.MethodType):
        yield path.rpartition(".")[0] or path, value.__self__
    elif isinstance(value, types.FunctionType):
        yield from _used_by(value, path)
    else:
        yield from ((f"{path}.{name}", each) for name, each in getattr(value, "__dict__", {}).items())


def _used_by(function: types.FunctionType, path: str) -> Iterator[tuple[str, Any]]:
    """Yield the closure variables, the globals and the defaults of a function."""
    for name, cell in zip(function.__code__.co_freevars, function.__closure__ or ()):
        try:
            yield f"{path} (its variable '{name}')", cell.cell_contents
        except ValueError:  # not assigned yet
            continue
    for name in function.__code__.co_names:
        if name in function.__globals__:
            yield f"{path} (the global '{name}')", function.__globals__[name]
    for name, each in zip(("its default",) * len(function.__defaults__ or ()), function.__defaults__ or ()):
        yield f"{path} ({name})", each
