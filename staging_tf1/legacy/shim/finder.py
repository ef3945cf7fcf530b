"""The import hook: runs functions after modules are loaded, and loads no module itself."""

from __future__ import annotations

import importlib.util
import os
import sys
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from importlib.abc import Loader, MetaPathFinder
from importlib.machinery import ModuleSpec
from types import FrameType, ModuleType
from typing import Any

from staging_tf1.legacy.contrib import homes, store
from staging_tf1.legacy.shim import keras_lent
from staging_tf1.legacy.shim.old_names import GONE_MODULES
from staging_tf1.legacy.shim.origin import Origin, is_at_import_statement, is_lent
from staging_tf1.legacy.shim.views import made_for_user

AfterLoad = Callable[[ModuleType], None]
Around = Callable[[], AbstractContextManager[None]]
# No genuine files: they import all others.
OURS = frozenset({"tensorflow.contrib", *(f"tensorflow.contrib.{part}" for part in homes.OURS)})
# Other names of the modules of tf.contrib, for programs that do not see them as those.
_ALIASES = "staging_tf1.contrib."
_NO_ALIAS = "staging_tf1.contrib.keras_two"
_BELOW = ("tensorflow.", "tensorflow_estimator.contrib")
# Takes the name of a TensorFlow submodule and returns the function to run on the module, or None.
Maker = Callable[[str], AfterLoad | None]


class Finder(MetaPathFinder):
    """Runs a function after a module is executed, and makes TF1's submodules on demand.

    Args:
      after_load: the functions to run, by the full name of the module.
      maker: for a module below ``tensorflow`` that user code imports and no other finder finds.
      second_face: for such a module that another finder finds.
      origin: distinguishes user code from libraries.
      around: context managers in which modules are executed, by their full name, or by their package and ".*".
    """

    def __init__(
        self,
        after_load: Mapping[str, AfterLoad],
        maker: Maker,
        second_face: Maker,
        origin: Origin,
        around: Mapping[str, Around] | None = None,
    ) -> None:
        self._origin = origin
        self._first = after_load
        self._after_load: dict[str, list[AfterLoad]] = {}
        self._around = dict(around or {})
        self._maker = maker
        self._second_face = second_face

    def install(self) -> None:
        """Put this finder first in `sys.meta_path`, and run the functions of modules that are already loaded."""
        sys.meta_path.insert(0, self)
        for name, module in list(sys.modules.items()):
            if keras_lent.covers(name) and keras_lent.is_lent(name, module.__spec__, self._origin):
                keras_lent.give_face(module, self._origin)
            elif name.startswith(_BELOW) and (act := self._second_face(name)) is not None:
                act(module)
        self.add(self._first)

    def add(self, after_load: Mapping[str, AfterLoad], around: Mapping[str, Around] | None = None) -> None:
        """Add functions, to run after those that are there, and contexts. They run now for loaded modules."""
        self._around |= around or {}
        for name, act in after_load.items():
            self._after_load.setdefault(name, []).append(act)
            if (module := sys.modules.get(name)) is not None:
                act(module)

    def find_spec(
        self, fullname: str, path: Sequence[str] | None = None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        if fullname.startswith(_ALIASES) and fullname != _NO_ALIAS:
            return importlib.util.spec_from_loader(fullname, _MakingLoader(_alias), is_package=True)
        acts = [*self._after_load.get(fullname, ())]
        around = self._around.get(fullname) or self._around.get(f"{fullname.partition('.')[0]}.*")
        is_ours_to_find = fullname.startswith(_BELOW) or fullname in GONE_MODULES
        if keras_lent.covers(fullname):
            return self._find_keras(fullname, target, sys._getframe(1))
        if not acts and around is None and not is_ours_to_find:
            return None
        if is_ours_to_find and (face := self._second_face(fullname)) is not None:
            acts.append(face)
        spec = None if fullname in OURS else _find_elsewhere(self, fullname, path, target)
        if spec is not None:
            if is_lent(fullname):
                store.genuine(spec)
            return _acting(spec, acts, around)
        if not is_ours_to_find:
            return None
        asking = sys._getframe(1)
        if fullname in GONE_MODULES:
            if not self._origin.sees_old_names(asking):
                return None
        elif not self._origin.sees(asking, _name_in_tf(fullname)):
            return None
        if is_lent(fullname) and fullname not in OURS and (files := store.fetched()) is not None:
            folder = os.path.join(files, *fullname.split(".")[1:-1])
            if (spec := _find_elsewhere(self, fullname, [folder], target)) is not None:
                made_for_user.add(fullname)
                return _acting(store.genuine(spec), acts)
        try:
            make = self._maker(fullname)
        except ImportError:
            # __import__(package, fromlist=["anything"]) imports the package: a missing name is not an error.
            if fullname in GONE_MODULES or is_at_import_statement(self._origin.user_frame(asking)):
                raise
            make = None
        if make is None:
            return None
        made_for_user.add(fullname)
        return importlib.util.spec_from_loader(fullname, _MakingLoader(make), is_package=True)

    def _find_keras(self, fullname: str, target: ModuleType | None, asking: FrameType) -> ModuleSpec | None:
        spec = _find_elsewhere(self, fullname, keras_lent.installed_path(fullname), target)
        spec, act = keras_lent.choose(fullname, spec, self._origin, self._origin.sees(asking, "keras"))
        if spec is not None and act is not None:
            return _acting(spec, [act])
        return importlib.util.spec_from_loader(fullname, _MakingLoader(act)) if spec is None and act else spec


def _alias(fresh: ModuleType) -> None:
    sys.modules[fresh.__name__] = importlib.import_module(_ALIASES.rstrip(".")).module_of(fresh.__name__)


def _name_in_tf(fullname: str) -> str:
    """Return the name of `tf` that a module below ``tensorflow`` belongs to."""
    first, *below = fullname.removeprefix("tensorflow.compat.v1.").removeprefix("tensorflow.").split(".")
    return below[0] if first == "python" and below else first


def _find_elsewhere(
    skip: MetaPathFinder, fullname: str, path: Sequence[str] | None, target: ModuleType | None
) -> ModuleSpec | None:
    for finder in sys.meta_path:
        if finder is skip or not hasattr(finder, "find_spec"):
            continue
        if (spec := finder.find_spec(fullname, path, target)) is not None:
            return spec
    return None


def _acting(spec: ModuleSpec, acts: list[AfterLoad], around: Around | None = None) -> ModuleSpec:
    if (acts or around is not None) and spec.loader is not None:
        spec.loader = _ActingLoader(spec.loader, acts, around or nullcontext)
    return spec


class _ActingLoader(Loader):
    """Wraps another loader: runs it in a context, and functions after it."""

    def __init__(self, loader: Loader, acts: list[AfterLoad], around: Around) -> None:
        self._loader = loader
        self._acts = acts
        self._around = around

    def __getattr__(self, name: str) -> Any:
        return getattr(self._loader, name)

    def create_module(self, spec: ModuleSpec) -> ModuleType | None:
        return self._loader.create_module(spec)

    def exec_module(self, module: ModuleType) -> None:
        # The module keeps its original loader: inspect, pkgutil and linecache get the source from it.
        if module.__spec__ is not None:
            module.__spec__.loader = self._loader
        module.__loader__ = self._loader
        with self._around():
            self._loader.exec_module(module)
        for act in self._acts:
            act(module)


class _MakingLoader(Loader):
    def __init__(self, make: AfterLoad) -> None:
        self._make = make

    def exec_module(self, module: ModuleType) -> None:
        self._make(module)
