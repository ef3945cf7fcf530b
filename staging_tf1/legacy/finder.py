"""The import hook: acts when a module is loaded, and loads nothing itself."""

from __future__ import annotations

import importlib.util
import sys
from collections.abc import Callable, Sequence
from importlib.abc import Loader, MetaPathFinder
from importlib.machinery import ModuleSpec
from types import ModuleType
from typing import Any

from staging_tf1.legacy.origin import Origin, stands_at_import_statement
from staging_tf1.legacy.views import made_for_user

AfterLoad = Callable[[ModuleType], None]
# What is to be done with a TensorFlow submodule of this name: a function of the module, or None.
Maker = Callable[[str], AfterLoad | None]


class Finder(MetaPathFinder):
    """Runs a function after a named module was executed, and makes TF1's submodules on demand.

    Args:
      after_load: functions by the full name of the module that each waits for.
      maker: makes a module below ``tensorflow`` that nothing else finds, and that user code imports.
      second_face: for a module below ``tensorflow`` that was found.
      origin: tells user code from libraries.
    """

    def __init__(self, after_load: dict[str, AfterLoad], maker: Maker, second_face: Maker, origin: Origin) -> None:
        self._origin = origin
        self._after_load = after_load
        self._maker = maker
        self._second_face = second_face

    def install(self) -> None:
        """Goes first in `sys.meta_path`, and serves the modules that are loaded already."""
        sys.meta_path.insert(0, self)
        for name, act in self._after_load.items():
            if (module := sys.modules.get(name)) is not None:
                act(module)

    def find_spec(
        self, fullname: str, path: Sequence[str] | None = None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        act = self._after_load.get(fullname)
        below_tensorflow = fullname.startswith("tensorflow.")
        if act is None and not below_tensorflow:
            return None
        if act is None:
            act = self._second_face(fullname)
        found = _find_elsewhere(self, fullname, path, target)
        if found is not None:
            if act is not None and found.loader is not None:
                found.loader = _ActingLoader(found.loader, act)
            return found
        asking = sys._getframe(1)
        if not self._origin.is_user(asking):
            return None
        try:
            make = self._maker(fullname)
        except ImportError:
            # __import__(package, fromlist=["anything"]) asks for the package; a name that is not there is no error.
            if stands_at_import_statement(self._origin.user_frame(asking)):
                raise
            make = None
        if make is None:
            return None
        made_for_user.add(fullname)
        return importlib.util.spec_from_loader(fullname, _MakingLoader(make), is_package=True)


def _find_elsewhere(
    skip: MetaPathFinder, fullname: str, path: Sequence[str] | None, target: ModuleType | None
) -> ModuleSpec | None:
    for finder in sys.meta_path:
        if finder is skip or not hasattr(finder, "find_spec"):
            continue
        if (spec := finder.find_spec(fullname, path, target)) is not None:
            return spec
    return None


class _ActingLoader(Loader):
    """Another loader, and a function that runs after it."""

    def __init__(self, loader: Loader, act: AfterLoad) -> None:
        self._loader = loader
        self._act = act

    def __getattr__(self, name: str) -> Any:
        return getattr(self._loader, name)

    def create_module(self, spec: ModuleSpec) -> ModuleType | None:
        return self._loader.create_module(spec)

    def exec_module(self, module: ModuleType) -> None:
        # The module keeps its genuine loader: inspect, pkgutil and linecache ask it for the source.
        if module.__spec__ is not None:
            module.__spec__.loader = self._loader
        module.__loader__ = self._loader
        self._loader.exec_module(module)
        self._act(module)


class _MakingLoader(Loader):
    def __init__(self, make: AfterLoad) -> None:
        self._make = make

    def exec_module(self, module: ModuleType) -> None:
        self._make(module)
