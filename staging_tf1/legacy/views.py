"""Modules with two faces: what user code reads from them, and what everybody else does.

One object stands in ``sys.modules``, so that identity, `importlib`, pickling and `unittest.mock` behave. Which
face an attribute comes from depends on the code that asks. Two module objects and a wrapped ``__import__``
were the alternative; they put our frames into every traceback of a failing import, and ``sys.modules``,
`importlib.reload` and pickle saw through them.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping
from types import ModuleType
from typing import Any

from staging_tf1.legacy.origin import Origin

# What a view answers for a name that it leaves to the module itself.
UNCHANGED: Any = object()

# Full names of modules that exist for user code only; their parents must not show them to libraries.
made_for_user: set[str] = set()

# The import system asks on behalf of an import statement anywhere; what it stores is the module's own.
_IMPORT_SYSTEM = "importlib._bootstrap"


class View:
    """The user's face of one module.

    Args:
      overlay: names that differ for the user, by name.
      resolve: asked for any other name; returns `UNCHANGED` where the module's own attribute serves.
      names: the public names that the user's ``dir()`` and star import show, or None for the module's own.
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
        """The user's value of `name`, or `UNCHANGED`."""
        try:
            return self.overlay[name]
        except KeyError:
            return self.resolve(name)


class TwoFacedModule(ModuleType):
    """A module whose attributes depend on who reads them. `attach` makes modules into it."""

    _staging_view: View
    _staging_origin: Origin

    def __getattribute__(self, name: str) -> Any:
        mine = type(self)
        if mine._staging_origin.is_user(sys._getframe(1)):
            if name == "__dict__":
                return _user_dict(self, mine._staging_view)
            value = mine._staging_view.read(name)
            if value is not UNCHANGED:
                return value
        return ModuleType.__getattribute__(self, name)

    def __setattr__(self, name: str, value: Any) -> None:
        mine = type(self)
        frame = sys._getframe(1)
        by_import = frame.f_globals.get("__name__") == _IMPORT_SYSTEM
        if by_import:
            for_user = f"{own(self, '__name__')}.{name}" in made_for_user
        else:
            for_user = mine._staging_origin.is_user(frame)
        if for_user:
            mine._staging_view.overlay[name] = value
        else:
            ModuleType.__setattr__(self, name, value)

    def __delattr__(self, name: str) -> None:
        mine = type(self)
        if mine._staging_origin.is_user(sys._getframe(1)) and name in mine._staging_view.overlay:
            del mine._staging_view.overlay[name]
        else:
            ModuleType.__delattr__(self, name)

    def __dir__(self) -> list[str]:
        mine = type(self)
        names = mine._staging_view.names
        if names is not None and mine._staging_origin.is_user(sys._getframe(1)):
            return sorted(names())
        return sorted(ModuleType.__getattribute__(self, "__dict__"))


def attach(module: ModuleType, view: View, origin: Origin) -> None:
    """Gives `module` a second face for user code. Attaching again replaces the view."""
    face = type("module", (TwoFacedModule,), {"_staging_view": view, "_staging_origin": origin})
    ModuleType.__setattr__(module, "__class__", face)


def own(module: ModuleType, name: str) -> Any:
    """The attribute that libraries see, whoever asks.

    Raises:
      AttributeError: the module has no such attribute of its own.
    """
    return ModuleType.__getattribute__(module, name)


def _user_dict(module: ModuleType, view: View) -> dict[str, Any]:
    names = view.names() if view.names is not None else []
    merged = dict(ModuleType.__getattribute__(module, "__dict__")) if view.names is None else {}
    for name in names:
        try:
            merged[name] = getattr(module, name) if (value := view.read(name)) is UNCHANGED else value
        except AttributeError:  # listed by the API, but its home (Keras 2) is not installed
            continue
    merged.update(view.overlay)
    return merged
