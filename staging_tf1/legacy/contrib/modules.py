"""Makes ``tensorflow.contrib`` and ``tensorflow.examples``, whose modules are the genuine files of TensorFlow 1.15.5.

A few parts are ours: see `homes.OURS`.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable
from types import ModuleType
from typing import Any

from staging_tf1.errors import RemovedModuleError, RemovedNameError
from staging_tf1.legacy.contrib import homes, store
from staging_tf1.legacy.shim import views
from staging_tf1.legacy.shim.old_names import value_at
from staging_tf1.legacy.shim.origin import is_lent

Make = Callable[[ModuleType], None]
_ROOT = "tensorflow.contrib"


def maker(fullname: str) -> Make:
    """Return a function that turns a new module into `fullname`, a module that is no file of TensorFlow 1.15.5.

    Raises RemovedModuleError for one that would be such a file.
    """
    if fullname in (_ROOT, "tensorflow.examples"):
        return _become(_Contrib if fullname == _ROOT else ModuleType)
    symbol = fullname.removeprefix("tensorflow.")
    part, *below = symbol.split(".")[1:]
    if fullname.startswith(_ROOT) and part in homes.OURS and (not below or below[0] == "python"):
        return _become(_Part)
    raise RemovedModuleError(_removal_message(symbol, part))


def _become(kind: type[ModuleType]) -> Make:
    def make(fresh: ModuleType) -> None:
        fresh.__class__ = kind

    return make


class _Contrib(ModuleType):
    """`tf.contrib`."""

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(f"module {_ROOT!r} has no attribute {name!r}")
        try:
            importlib.import_module(f"{_ROOT}.{name}")
            return importlib.import_module(f"{_ROOT}.{homes.ATTRIBUTES.get(name, name)}")
        except ModuleNotFoundError as error:
            if error.name != f"{_ROOT}.{name}":
                raise
            raise RemovedNameError(_removal_message(f"contrib.{name}", name)) from None

    def __setattr__(self, name: str, value: Any) -> None:
        # The import system sets each part that it has loaded.
        if name not in homes.ATTRIBUTES:
            super().__setattr__(name, value)

    def __dir__(self) -> list[str]:
        return sorted(homes.PARTS)


class _Part(ModuleType):
    """`tf.contrib.staging` and other parts that are ours, and the modules below them."""

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__") and name != "__all__":
            raise AttributeError(f"module {self.__name__!r} has no attribute {name!r}")
        part = self.__name__.split(".")[2]
        if name == "__all__":
            return dir(self)
        value = _find(part, name)
        if value is not None:
            setattr(self, name, value)
            return value
        raise RemovedNameError(_removal_message(f"{self.__name__.removeprefix('tensorflow.')}.{name}", part))

    def __dir__(self) -> list[str]:
        return sorted(homes.OURS[self.__name__.split(".")[2]].names)


def _find(part: str, name: str) -> Any:
    ours = homes.OURS[part]
    for home in ours.homes:
        there = value_at(home)
        # A module also has names that the part never had.
        if name in dir(there) and (name in ours.names or not isinstance(there, ModuleType)):
            return getattr(there, name)
    return None


def _removal_message(symbol: str, part: str) -> str:
    """Return the error message for a symbol below ``tensorflow``: of the part `part` of contrib, or of examples."""
    full = f"{'tf' if symbol.startswith('contrib.') else 'tensorflow'}.{symbol}"
    if symbol.startswith("contrib.") and part not in homes.PARTS:
        return f"{full}: TensorFlow 1.15 had no tf.contrib.{part}. Check the spelling."
    if symbol.startswith("contrib.") and part in homes.OURS:
        return (
            f"{full} was removed with tf.contrib, and staging_tf1 does not restore it. "
            f"Use instead: {homes.OURS[part].instead}."
        )
    if store.fetched() is None:
        return (
            f"{full} is not in TensorFlow 2. Fetch it from TensorFlow 1.15.5 (110 MB, once): {store.FETCH}. The "
            "program itself needs no change."
        )
    return f"{full} is not among the files of TensorFlow 1.15.5. Check the spelling."


def remove_undocumented(module_name: str, *args: Any, **kwargs: Any) -> None:
    """Remove the undocumented names of a module of `tf.contrib`. Do nothing to TensorFlow's own modules."""
    if is_lent(module_name):
        genuine = views.own(importlib.import_module("tensorflow.python.util.all_util"), "remove_undocumented")
        genuine(module_name, *args, **kwargs)
