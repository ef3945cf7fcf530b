"""Makes ``tensorflow.contrib`` and its submodules, packages that look up their names on access."""

from __future__ import annotations

import functools
import importlib
import importlib.util
import sys
from types import ModuleType
from typing import Any

from staging_tf1._tf import tf
from staging_tf1.errors import RemovedModuleError, RemovedNameError
from staging_tf1.legacy.contrib import homes
from staging_tf1.legacy.contrib.absent import Absent, removal_message
from staging_tf1.legacy.submodules import Make, substitute

_ROOT = "tensorflow.contrib"
_LEARN = {"learn"}  # a part of homes.OURS
_OFFERED = homes.OFFERED | _LEARN


def maker(fullname: str) -> Make:
    """Return a function that turns a new module into `fullname`: ``tensorflow.contrib`` or a module below it.

    Raises RemovedModuleError for parts of `tf.contrib` that are not restored.
    """
    if fullname == _ROOT:
        return _become(_Contrib)
    part, *below = fullname.removeprefix(_ROOT + ".").split(".")
    if part not in _OFFERED:
        raise RemovedModuleError(removal_message(fullname.removeprefix("tensorflow."), part))
    if not below:
        return _become(_Part)
    genuine = _in_package(part, below)
    if genuine is not None:
        return lambda fresh: substitute(fullname, genuine)
    # contrib.layers.python.layers.initializers and similar modules have the same names under a longer path.
    if part in homes.LENIENT or below[0] in ("python", "ops"):
        return _become(_Part)
    raise RemovedModuleError(removal_message(fullname.removeprefix("tensorflow."), part))


def _become(kind: type[ModuleType]) -> Make:
    def make(fresh: ModuleType) -> None:
        fresh.__class__ = kind

    return make


class _Contrib(ModuleType):
    """`tf.contrib`."""

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(f"module {_ROOT!r} has no attribute {name!r}")
        if name in _OFFERED:
            return importlib.import_module(f"{_ROOT}.{name}")
        raise RemovedNameError(removal_message(f"contrib.{name}", name))

    def __dir__(self) -> list[str]:
        return sorted(_OFFERED)


class _Part(ModuleType):
    """`tf.contrib.staging`, `tf.contrib.layers` and so on."""

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__") and name != "__all__":
            raise AttributeError(f"module {self.__name__!r} has no attribute {name!r}")
        part = self.__name__.removeprefix(_ROOT + ".").partition(".")[0]
        if name == "__all__":
            return dir(self)
        value = _find(part, name)
        if value is not None:
            setattr(self, name, value)
            return value
        message = removal_message(f"{self.__name__.removeprefix('tensorflow.')}.{name}", part)
        if part in homes.LENIENT:
            return Absent(message)
        raise RemovedNameError(message)

    def __dir__(self) -> list[str]:
        part = self.__name__.removeprefix(_ROOT + ".").partition(".")[0]
        names = set(homes.ALIASES.get(part, ()))
        if part in homes.LENT:
            names |= importlib.import_module(homes.LENT[part]).listed(part)
        for home in _packages(part):
            names.update(name for name in dir(home) if not name.startswith("_"))
        for path in homes.MODULES.get(part, ()):
            names.update(name for name in dir(_in_tensorflow(path)) if not name.startswith("_"))
        return sorted(names)


def _find(part: str, name: str) -> Any:
    home = homes.ALIASES.get(part, {}).get(name)
    if home is not None:
        return _at(home)
    if part in homes.LENT and (lent := importlib.import_module(homes.LENT[part]).find(part, name)) is not None:
        return lent
    for module in _packages(part):
        if hasattr(module, name):
            return getattr(module, name)
    for path in homes.MODULES.get(part, ()):
        module = _in_tensorflow(path)
        if name in dir(module):
            # Without Keras 2, tf.nn.rnn_cell still lists its names; reading one raises and says what to install.
            return getattr(module, name)
    return None


def _at(home: str) -> Any:
    module, _, attribute = home.partition(":")
    if attribute:
        return getattr(importlib.import_module(module), attribute)
    return _in_tensorflow(home)


def _in_tensorflow(path: str) -> Any:
    return functools.reduce(getattr, path.split("."), tf)


@functools.cache
def _packages(part: str) -> tuple[Any, ...]:
    found = []
    for name in homes.PACKAGES.get(part, ()):
        if importlib.util.find_spec(name.partition(".")[0]) is not None:
            found.append(importlib.import_module(name))
    return tuple(found)


def _in_package(part: str, below: list[str]) -> ModuleType | None:
    for home in _packages(part):
        name = ".".join([home.__name__, *below])
        try:
            importlib.import_module(name)
        except ModuleNotFoundError as error:
            if not (error.name and name.startswith(error.name)):
                raise
        else:
            return sys.modules[name]
    return None
