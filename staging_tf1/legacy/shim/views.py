"""Modules with two faces: user code reads other attributes from them than the rest of the process.

``sys.modules`` holds one object for both, so identity checks, `importlib`, pickling and `unittest.mock` work as
usual. The calling code decides which face an attribute comes from. The alternative, two module objects and a
wrapped ``__import__``, adds frames of this package to every traceback of a failing import, and fails with
``sys.modules``, `importlib.reload` and pickle.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping
from types import ModuleType
from typing import Any

from staging_tf1.legacy.shim.origin import Origin

# Returned by a view for a name that the module itself provides.
UNCHANGED: Any = object()

# Full names of modules that exist for user code only; their parents must hide them from libraries.
made_for_user: set[str] = set()

# The import system runs for import statements of any module, so its assignments go to the module itself.
_IMPORT_SYSTEM = "importlib._bootstrap"


class View:
    """The face of one module that user code sees.

    Args:
      overlay: the values that differ for user code, by name.
      resolve: returns the value of any other name, or `UNCHANGED` for the module's own attribute.
      names: the public names that ``dir()`` and a star import in user code show, or None for the module's own.
    """

    def __init__(
        self,
        overlay: Mapping[str, Any],
        resolve: Callable[[str], Any] = lambda name: UNCHANGED,
        names: Callable[[], list[str]] | None = None,
    ) -> None:
        self.overlay = dict(overlay)
        self.resolve = resolve
        self.names = names

    def read(self, name: str) -> Any:
        """Return the value of `name` for user code, or `UNCHANGED`."""
        try:
            return self.overlay[name]
        except KeyError:
            return self.resolve(name)


class TwoFacedModule(ModuleType):
    """A module whose attributes depend on the calling code. `attach` turns a module into one."""

    _staging_view: View
    _staging_origin: Origin

    def __getattribute__(self, name: str) -> Any:
        mine = type(self)
        if mine._staging_origin.sees(sys._getframe(1), name):
            if name == "__dict__":
                return _user_dict(self, mine._staging_view)
            value = mine._staging_view.read(name)
            if value is not UNCHANGED:
                return value
        return super().__getattribute__(name)

    def __setattr__(self, name: str, value: Any) -> None:
        mine = type(self)
        frame = sys._getframe(1)
        by_import = frame.f_globals.get("__name__") == _IMPORT_SYSTEM
        if by_import:
            for_user = f"{own(self, '__name__')}.{name}" in made_for_user
        else:
            for_user = mine._staging_origin.sees(frame, name)
        if for_user:
            mine._staging_view.overlay[name] = value
        else:
            super().__setattr__(name, value)

    def __delattr__(self, name: str) -> None:
        mine = type(self)
        if mine._staging_origin.sees(sys._getframe(1), name) and name in mine._staging_view.overlay:
            del mine._staging_view.overlay[name]
        else:
            super().__delattr__(name)

    def __dir__(self) -> list[str]:
        mine = type(self)
        names = mine._staging_view.names
        if names is not None and mine._staging_origin.is_user(sys._getframe(1)):
            return sorted(names())
        return list(super().__dir__())


def attach(module: ModuleType, view: View, origin: Origin) -> None:
    """Give `module` a second face for user code. Attaching again replaces the view."""
    kind: Any = type(module).__mro__[2] if isinstance(module, TwoFacedModule) else type(module)
    bases = (TwoFacedModule,) if kind is ModuleType else (TwoFacedModule, kind)  # tf.compat.v1 has a class of its own
    face = type("module", bases, {"_staging_view": view, "_staging_origin": origin})
    super(kind, module).__setattr__("__class__", face)


def lazy(module: ModuleType, read: Callable[[str], Any]) -> ModuleType:
    """Let `read` return the names that a module does not have, except for Python's own, such as ``__path__``."""

    def __getattr__(name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(f"module {module.__name__!r} has no attribute {name!r}")
        return read(name)

    module.__dict__["__getattr__"] = __getattr__
    return module


def own(module: ModuleType, name: str) -> Any:
    """Return the attribute that libraries see, whatever the calling code. Raises AttributeError if there is none."""
    if isinstance(module, TwoFacedModule):
        return super(TwoFacedModule, module).__getattribute__(name)
    return getattr(module, name)


def _user_dict(module: ModuleType, view: View) -> dict[str, Any]:
    names = view.names() if view.names is not None else []
    merged = dict(ModuleType.__getattribute__(module, "__dict__")) if view.names is None else {}
    for name in names:
        try:
            merged[name] = getattr(module, name) if (value := view.read(name)) is UNCHANGED else value
        except AttributeError:  # listed by the API, but Keras 2, which provides it, is not installed
            continue
    merged.update(view.overlay)
    return merged
