"""Modules of TF1 that this package has as a whole, such as `tensorflow.examples.tutorials.mnist.input_data`."""

from __future__ import annotations

import importlib
from types import ModuleType
from typing import Any

from staging_tf1.errors import RemovedModuleError, RemovedNameError
from staging_tf1.legacy.contrib.absent import removal_message
from staging_tf1.legacy.contrib.homes import OURS
from staging_tf1.legacy.submodules import Make, substitute

_PACKAGES = {".".join(full.split(".")[:depth]) for full in OURS for depth in range(2, full.count(".") + 1)}
_PACKAGES.discard("tensorflow.contrib")


def maker(fullname: str) -> Make | None:
    """Return a function that turns a new module into `fullname`, or None if it is none of these modules.

    Raises RemovedModuleError for the other modules of a package that has one of them.
    """
    if fullname in OURS:
        return lambda fresh: substitute(fullname, _ours(fullname))
    if fullname in _PACKAGES:
        return _become_package
    if fullname.rpartition(".")[0] in _PACKAGES:
        raise RemovedModuleError(_message(fullname))
    return None


def _become_package(fresh: ModuleType) -> None:
    fresh.__class__ = _Package


class _Package(ModuleType):
    def __getattr__(self, name: str) -> Any:
        full = f"{self.__name__}.{name}"
        if full in OURS:
            return _ours(full)
        if full in _PACKAGES:
            return importlib.import_module(full)
        if name.startswith("__"):
            raise AttributeError(f"module {self.__name__!r} has no attribute {name!r}")
        raise RemovedNameError(_message(full))

    def __dir__(self) -> list[str]:
        below = f"{self.__name__}."
        return sorted({full.removeprefix(below).partition(".")[0] for full in OURS if full.startswith(below)})


def _ours(full: str) -> Any:
    module, _, attribute = OURS[full].partition(":")
    home = importlib.import_module(module)
    return getattr(home, attribute) if attribute else home


def _message(full: str) -> str:
    symbol = full.removeprefix("tensorflow.")
    if symbol.startswith("contrib."):
        return removal_message(symbol, symbol.split(".")[1])
    offered = " and ".join(sorted(name for name in OURS if name.startswith("tensorflow.examples.")))
    return f"{full} was removed in TensorFlow 2, and staging_tf1 does not restore it. It restores {offered}."
