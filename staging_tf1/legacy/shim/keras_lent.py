"""``import keras``: Keras 2.2.5 of keras.io for the program, and the installed Keras for libraries.

A module that both have is one object in ``sys.modules`` with two faces. The program's is the dictionary of the genuine
module, so the functions there see what a program assigns.
"""

from __future__ import annotations

import importlib.util
import os
import re
import sys
from importlib.machinery import ModuleSpec, PathFinder
from pathlib import Path
from types import ModuleType
from typing import Any

from staging_tf1.errors import RemovedModuleError
from staging_tf1.legacy.contrib import store
from staging_tf1.legacy.shim import views
from staging_tf1.legacy.shim.keras_two import is_wanted
from staging_tf1.legacy.shim.origin import Origin

# What no release before 2.3 had: packages, and a version that is not in this form.
_NEW = ("api", "protobuf", "src")
_OLD_VERSION = re.compile(r"^__version__ = '(?:[01]\.|2\.[0-2]\.)", re.MULTILINE)

# The packages of which the program sees the genuine modules.
_lent: set[str] = set()


def covers(fullname: str) -> bool:
    """Whether a module belongs to Keras, by its full name."""
    package, below, *_ = *fullname.split("."), ""
    return package in store.KERAS and below not in _NEW and not below.startswith("_")


def installed_path(fullname: str) -> Any:
    """Return the folders in which libraries look for a module of Keras; None for a package."""
    parent = sys.modules.get(fullname.rpartition(".")[0])
    try:
        return None if parent is None else views.own(parent, "__path__")
    except AttributeError:
        return []  # it is no package there


def choose(fullname: str, spec: ModuleSpec | None, origin: Origin, for_user: bool) -> tuple[ModuleSpec | None, Any]:
    """Return how to load a module that another finder would load with `spec`, and a function to run on it then.

    Without the former, the function makes the module. Raises RemovedModuleError for an import of the program if Keras
    2.2.5 is not fetched.
    """
    if fullname.rpartition(".")[0] in views.made_for_user:
        spec = None  # it was found in a folder of the genuine files
    if not is_lent(fullname, spec, origin) or not (for_user or spec):
        return spec, None
    if not for_user:
        return spec, lambda module: give_face(module, origin)
    lent = _find(fullname, origin)
    if "." in fullname and (root := _face_of(fullname.partition(".")[0])):
        root.execute()
        if there := sys.modules.get(fullname):  # it has imported this one
            return None, lambda module: sys.modules.update({fullname: there})
    if lent and spec:
        return spec, lambda module: give_face(module, origin).execute()
    views.made_for_user.add(fullname)
    return lent, None


def is_lent(fullname: str, spec: ModuleSpec | None, origin: Origin) -> bool:
    """Whether the program sees a genuine module in place of the one that `spec` leads to."""
    package, *below = fullname.split(".")
    if not below:
        _lent.discard(package)
        file = None if spec is None else spec.origin
        if file and (package != "keras" or _OLD_VERSION.search(Path(file).read_text("utf-8", "replace"))):
            origin.lend(os.path.dirname(file))
        if is_wanted() and not (file and origin.sees_all(file)):
            _lent.add(package)
    return package in _lent


def give_face(module: ModuleType, origin: Origin) -> _Face:
    """Let the program see a module of the installed Keras as the genuine one."""
    view = _Face(views.own(module, "__name__"), origin)
    views.attach(module, view, origin)
    return view


def _find(fullname: str, origin: Origin) -> ModuleSpec | None:
    folder = store.fetched(store.KERAS[fullname.partition(".")[0]])
    if folder is None:
        raise RemovedModuleError(
            f"{fullname} of a TensorFlow 1 program is Keras 2.2.5, which is not fetched. Fetch it (once, with "
            f"tf.contrib): {store.FETCH}. The program itself needs no change. For the installed Keras set "
            "TF_USE_LEGACY_KERAS=0."
        )
    origin.lend(folder)
    spec = PathFinder.find_spec(fullname, [os.path.join(folder, *fullname.split(".")[:-1])])
    return None if spec is None else store.genuine(spec)


class _Face(views.View):
    """The names of a genuine module, which is executed when the program needs one of them."""

    def __init__(self, fullname: str, origin: Origin) -> None:
        super().__init__({}, self._missing, lambda: [*self.execute()])
        self._fullname = fullname
        self._origin = origin
        self._executed = False

    def execute(self) -> dict[str, Any]:
        """Execute the module, once. Return its dictionary, which is empty if Keras 2.2.5 does not have it."""
        spec = None if self._executed else _find(self._fullname, self._origin)
        if spec and spec.loader:
            module = importlib.util.module_from_spec(spec)
            self.overlay, self._executed = vars(module), True  # before: it imports itself
            try:
                spec.loader.exec_module(module)
            except BaseException:
                self.overlay, self._executed = {}, False
                raise
        return self.overlay

    def _missing(self, name: str) -> Any:
        if name.startswith("__") and name not in ("__all__", "__version__"):
            return views.UNCHANGED
        if name in self.execute():
            return self.overlay[name]
        below = _face_of(full := f"{self._fullname}.{name}")
        if below and below.execute():
            return sys.modules[full]
        raise AttributeError(f"module {self._fullname!r} has no attribute {name!r}")


def _face_of(fullname: str) -> _Face | None:
    face = getattr(type(sys.modules.get(fullname)), "_staging_view", None)
    return face if isinstance(face, _Face) else None
